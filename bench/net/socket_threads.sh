#!/usr/bin/env bash
# Times two CPU ranks of two played hosts over loopback, by several socket threads a link: all-gather and all-reduce, some rounds.
#
#   [THREADS="1 2 4 8"] [ROUNDS="1 2 3"] [PER=1] [OTHER=path/to/libnccl.so.2] bench/net/socket_threads.sh BUILD OUTDIR
#
# From the top of a checkout. PER: sockets a thread. OTHER (an older build's) is measured in turns with BUILD's own. OUTDIR (empty
# before) gets a table a round and summary.txt: operation, MB, threads, then medians of ms out of place, of OTHER's, in place, of OTHER's.
set -u
build=$(realpath "$1")
out=$2
mkdir -p "$out"
export TUTTI_DEVICE=${TUTTI_DEVICE-host} NCCL_SOCKET_IFNAME=lo NCCL_NSOCKS_PERTHREAD=${PER:-1}
for round in ${ROUNDS:-1 2 3}; do
  for threads in ${THREADS:-1 2 4 8}; do
    NCCL_SOCKET_NTHREADS=$threads timeout 150 python3 tests/gpu/hosts_check.py "$build" 2 2 all_gather,all_reduce -- \
      --lib "${OTHER:-$build/lib/libnccl.so.2}" -b 1M -e 64M -f 4 --min-time 0.2 >"$out/$round-$threads.txt" 2>&1
  done
done
python3 - "$out" <<'PY' | tee "$out/summary.txt"
import collections, pathlib, re, statistics, sys
rows = collections.defaultdict(list)
for file in pathlib.Path(sys.argv[1]).glob("?-*.txt"):
    for name, table in re.findall(r"Collective test starting: (\w+)_perf(.*?)Collective test concluded", file.read_text(), re.S):
        for line in re.findall(r"^ +\d+ .*", table, re.M):
            f = line.split()
            rows[name, int(f[0]) >> 20, int(file.stem[2:])].append([float(f[i]) / 1000 for i in (5, 9, 11, 15)])
for key, values in sorted(rows.items()):
    print(*key, *(f"{statistics.median(column):.3f}" for column in zip(*values)))
PY
