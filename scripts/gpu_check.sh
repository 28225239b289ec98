#!/usr/bin/env bash
# Checks the library on a machine with GPUs: every collective, type and operation; groups, streams, graphs, split and
# abort; several ranks on one GPU, one rank on each, threads and processes, hosts played by NCCL_HOSTID; PyTorch where it is
# installed; the kernels under compute-sanitizer; and how long they take beside NCCL, where there is one, as a table and a picture.
#
#   scripts/gpu_check.sh [BUILD] [LOGS] [PART...]   BUILD: build/cuda; LOGS: BUILD/gpu_check
#   parts: build (before the others where BUILD has no library), one (one GPU), all (every GPU), programs (the general executor: many
#   ranks, named algorithms), hosts, direct (GPUDirect, over the plug-in of the tests), death, torch, sanitize, bench
#
# Goes on after a failure; one line a step, with the end of its log where it failed, and LOGS/steps.json of all. Exit code 1 if
# any did. `bench` writes times.csv and times.svg to LOGS; TUTTI_PEER_LIBRARY is the other libnccl.so.2, else the Python package's.
set -uo pipefail
build=${1:-build/cuda}
logs=${2:-$build/gpu_check}
parts=${*:3}
parts=${parts:-one all programs hosts direct death torch sanitize bench}
here=$(cd "$(dirname "$0")/.." && pwd)
library=$build/lib/libnccl.so.2
mkdir -p "$logs"

# Kernels of ranks that share a GPU wait for each other, so their streams need hardware queues of their own.
export CUDA_DEVICE_MAX_CONNECTIONS=32
# A kernel that waits longer than this ends with an error, whatever the host does.
export TUTTI_GPU_WAIT_MS=${TUTTI_GPU_WAIT_MS:-15000}
failures=0
steps=0
: >"$logs/steps.json"

# step NAME SECONDS COMMAND...
step() {
  local name=$1 seconds=$2 log began status
  shift 2
  log=$logs/${name//[^A-Za-z0-9_.-]/_}.log
  began=$(date +%s%3N)
  timeout -k 5 "$seconds" "$@" >"$log" 2>&1
  status=$?
  steps=$((steps + 1))
  printf '{"step":"%s","exit":%s,"ms":%s}\n' "$name" $status $(($(date +%s%3N) - began)) >>"$logs/steps.json"
  if [ $status -eq 0 ]; then
    printf 'ok    %-44s %6d ms\n' "$name" $(($(date +%s%3N) - began))
    return
  fi
  failures=$((failures + 1))
  printf 'FAIL  %-44s exit %s\n' "$name" "$status"
  grep -E 'rror|WARN|FAIL|wrong|Failure|tutti' "$log" | tail -n 6 | cut -c1-300 | sed 's/^/      /'
}

# perf NAME RANKS...: every collective in `tutti perf`, checked.
perf() {
  local name=$1
  shift
  for operation in all_reduce all_gather reduce_scatter broadcast reduce alltoall gather scatter sendrecv; do
    step "$name $operation" 60 "$build/bin/tutti" perf $operation "$@" -b 8 -e 32M -f 16 --min-time 0.002 -T 50
  done
}

types() {
  step "$1 types" 90 "$build/bin/tutti" perf all_reduce "${@:2}" -o all -d all -b 1000 -e 4M -f 4194 --min-time 0.0005 -T 80
  step "$1 roots" 60 "$build/bin/tutti" perf broadcast "${@:2}" -r all -b 1000 -e 1M -f 1024 --min-time 0.0005 -T 50
  step "$1 misaligned" 60 "$build/bin/tutti" perf reduce_scatter "${@:2}" -u 1 -d half -b 2 -e 4M -f 64 --min-time 0.0005 -T 50
  step "$1 graphs" 60 "$build/bin/tutti" perf all_reduce "${@:2}" -G 5 -b 8 -e 16M -f 64 -T 50
  NCCL_GRAPH_REGISTER=1 step "$1 graphs that register" 60 "$build/bin/tutti" perf all_reduce "${@:2}" -G 5 -b 1M -e 64M -f 8 -T 50
  step "$1 registered" 60 "$build/bin/tutti" perf all_gather "${@:2}" -R 1 -b 1M -e 64M -f 8 -T 50
  step "$1 registered, all-to-all" 60 "$build/bin/tutti" perf alltoall "${@:2}" -R 1 -b 1M -e 64M -f 8 -T 50
  step "$1 windows" 60 "$build/bin/tutti" perf all_reduce "${@:2}" -R 2 -b 1M -e 64M -f 8 -T 50
  step "$1 long" 60 "$build/bin/tutti" perf reduce "${@:2}" -b 32M -e 128M -f 4 --min-time 0.002 -T 50
  step "$1 long windows" 60 "$build/bin/tutti" perf all_gather "${@:2}" -R 2 -b 16M -e 256M -f 4 --min-time 0.002 -T 50
  NCCL_CTA_POLICY=2 step "$1 copy engines" 60 "$build/bin/tutti" perf alltoall "${@:2}" -R 2 -b 64 -e 64M -f 64 --min-time 0.002 -T 50
  step "$1 groups" 60 "$build/bin/tutti" perf all_reduce "${@:2}" -m 50 -b 8 -e 256K -f 64 --min-time 0.002 -T 50
}

# behaviour RANKS
behaviour() {
  TUTTI_TEST_RANKS=$1 step "behaviour, $1 ranks${CUDA_VISIBLE_DEVICES:+ on one GPU}" 240 "$build/bin/test_gpu"
  NCCL_GRAPH_REGISTER=1 TUTTI_TEST_RANKS=$1 step "registration, $1 ranks${CUDA_VISIBLE_DEVICES:+ on one GPU}" 120 \
    "$build/bin/test_gpu" --gtest_filter='Registration.*'
}

# Algorithms that no kernel has by hand, and more ranks than those know.
programs() {
  local algorithm protocol ranks=$((gpus > 1 ? gpus : 4))
  perf "12 ranks, threads" -t 12
  types "12 ranks, threads" -t 12
  step "11 ranks, processes all_reduce" 90 "$build/bin/tutti" perf all_reduce -n 11 -b 8 -e 1M -f 64 --min-time 0.002 -w 1 -T 80
  behaviour 9
  for algorithm in ring tree pat doubling; do
    NCCL_ALGO=$algorithm step "$algorithm, $ranks ranks all_reduce" 60 "$build/bin/tutti" perf all_reduce -t $ranks -b 8 -e 128M -f 16 --min-time 0.002 -T 50
  done
  NCCL_ALGO=ring types "ring, $ranks ranks" -t $ranks
  for algorithm in ring pat; do
    NCCL_ALGO=$algorithm step "$algorithm, $ranks ranks all_gather" 60 "$build/bin/tutti" perf all_gather -t $ranks -b 8 -e 128M -f 16 --min-time 0.002 -T 50
    NCCL_ALGO=$algorithm step "$algorithm, $ranks ranks reduce_scatter" 60 "$build/bin/tutti" perf reduce_scatter -t $ranks -b 8 -e 128M -f 16 --min-time 0.002 -T 50
  done
  for protocol in LL LL128 Simple; do
    NCCL_PROTO=$protocol step "12 ranks, $protocol all_reduce" 60 "$build/bin/tutti" perf all_reduce -t 12 -b 8 -e 4M -f 8 --min-time 0.002 -T 50
    NCCL_PROTO=$protocol step "12 ranks, $protocol alltoall" 60 "$build/bin/tutti" perf alltoall -t 12 -b 96 -e 6M -f 8 --min-time 0.002 -T 50
    NCCL_ALGO=ring NCCL_PROTO=$protocol types "ring, $protocol, $ranks ranks" -t $ranks
  done
  NCCL_ALGO=ring,tree step "tree, $ranks ranks broadcast" 60 "$build/bin/tutti" perf broadcast -t $ranks -b 8 -e 32M -f 16 -r all --min-time 0.002 -T 50
}

# hosts NAME OPTIONS...: hosts_check.py.
hosts() {
  step "$1" 120 python3 "$here/tests/gpu/hosts_check.py" "$build" "${@:2}"
}

# torch OPTIONS...: torch_check.py with NCCL, then with ours, whose losses have to be the same.
torch() {
  local run=(python3 -m torch.distributed.run --standalone --nproc-per-node "$gpus" "$here/tests/gpu/torch_check.py")
  if ! python3 -c 'import torch' 2>/dev/null; then
    echo "skip  PyTorch is not installed"
    return
  fi
  step "PyTorch, NCCL${*:+ $*}" 120 "${run[@]}" "$@" --losses "$logs/nccl$*.json"
  LD_PRELOAD=$library step "PyTorch, tutti${*:+ $*}" 120 "${run[@]}" "$@" --losses "$logs/tutti$*.json" --against "$logs/nccl$*.json"
}

# The kernels alone, each type's in its short form; several ranks on one GPU.
sanitize() {
  local sanitizer tool ranks options algorithm
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
  if [ -z "$sanitizer" ]; then
    echo "skip  compute-sanitizer is not installed"
    return
  fi
  while read -r tool ranks options; do
    # shellcheck disable=SC2086
    step "$tool, $ranks ranks${options:+ $options}" 300 "$sanitizer" --tool "$tool" --error-exitcode 1 \
      "$build/bin/gpu_kernels_bench" check --ranks "$ranks" --short --timeout-ms 60000 $options
  done <<<$'memcheck 2\nmemcheck 4\nracecheck 2\nsynccheck 2\nmemcheck 4 --shared\nracecheck 4 --shared'
  for tool in memcheck racecheck synccheck; do
    for algorithm in ring twoshot; do
      # Of two ranks two-shot is a program, too.
      NCCL_ALGO=$algorithm TUTTI_GPU_WAIT_MS=60000 step "$tool, 2 ranks by the program of $algorithm" 300 "$sanitizer" --tool $tool \
        --error-exitcode 1 "$build/bin/tutti" perf all_reduce -t 2 -b 8 -e 1M -f 64 --iters 1 -w 0 -d half -T 250
      NCCL_PROTO=LL128 NCCL_ALGO=$algorithm TUTTI_GPU_WAIT_MS=60000 step "$tool, 2 ranks by $algorithm, LL128" 300 "$sanitizer" --tool $tool \
        --error-exitcode 1 "$build/bin/tutti" perf all_reduce -t 2 -b 8 -e 1M -f 16 --iters 1 -w 0 -d half -T 250
    done
  done
}

# How long the kernels take on 2 and 4 GPUs, and another library's in turn.
bench() {
  local peer=${TUTTI_PEER_LIBRARY:-}
  [ -n "$peer" ] || peer=$(python3 -c 'import glob, nvidia.nccl as n; print(glob.glob(list(n.__path__)[0] + "/lib/libnccl.so.2")[0])' 2>/dev/null)
  rm -f "$logs/times.json"
  for ranks in 2 4; do
    [ "$gpus" -ge $ranks ] || continue
    step "times of $ranks ranks" 300 "$build/bin/gpu_kernels_bench" time --ranks $ranks --gpus $ranks --json "$logs/times.json" \
      ${peer:+--nccl "$peer"}
  done
  [ -s "$logs/times.json" ] || return
  step "table of times" 10 python3 "$here/scripts/gpu_table.py" "$logs/times.json" "$logs/times.csv"
  [ -z "$peer" ] || step "picture of times" 10 python3 "$here/scripts/gpu_plot.py" "$logs/times.csv" "$logs/times.svg"
}

# Before GPUs are looked for: any machine can build.
if [[ " $parts " == *" build "* ]] || [ ! -e "$library" ]; then
  parts=${parts//build/}
  step "configured" 300 cmake -S "$here" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTUTTI_CUDA=ON \
    -DTUTTI_GPU_KERNELS=ON -DTUTTI_TESTS=ON
  step "built" 3600 cmake --build "$build" --target nccl tutti test_gpu fake_net11 gpu_kernels_bench
  [ $failures -eq 0 ] || exit 1
fi

gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
if [ "$gpus" -eq 0 ]; then
  echo "skipped: no GPU"
  exit 0
fi
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | uniq -c

for part in $parts; do
  case $part in
    one)
      export CUDA_VISIBLE_DEVICES=0
      perf "1 GPU, 2 threads" -t 2
      types "1 GPU, 2 threads" -t 2
      step "1 GPU, 4 threads all_reduce" 60 "$build/bin/tutti" perf all_reduce -t 4 -b 8 -e 32M -f 16 --min-time 0.002 -T 50
      step "1 GPU, 4 threads alltoall" 60 "$build/bin/tutti" perf alltoall -t 4 -b 8 -e 32M -f 16 --min-time 0.002 -T 50
      step "1 GPU, 2 processes all_reduce" 60 "$build/bin/tutti" perf all_reduce -n 2 -b 8 -e 1M -f 64 --min-time 0.002 -w 1 -T 50
      behaviour 2
      behaviour 4
      behaviour 8
      unset CUDA_VISIBLE_DEVICES
      ;;
    all)
      [ "$gpus" -gt 1 ] || continue
      perf "$gpus GPUs, threads" -t "$gpus"
      perf "$gpus GPUs, processes" -n "$gpus"
      types "$gpus GPUs, processes" -n "$gpus"
      step "2 threads a GPU all_reduce" 60 "$build/bin/tutti" perf all_reduce -t $((2 * gpus)) -b 8 -e 32M -f 16 --min-time 0.002 -T 50
      behaviour "$gpus"
      behaviour $((2 * gpus))
      ;;
    programs) programs ;;
    hosts)
      hosts "2 hosts, each collective" 2 2
      hosts "2 hosts, 4 ranks, each collective" 4 2
      hosts "2 hosts, types" 2 2 all_reduce,reduce,reduce_scatter -- -o all -d all -b 1000 -e 1M -f 1049 --min-time 0.0001 -w 1
      hosts "2 hosts, roots" 2 2 broadcast,gather,scatter -- -r all -b 1000 -e 1M -f 1024 --min-time 0.0001 -w 1
      hosts "2 hosts, misaligned" 2 2 all_gather,alltoall -- -u 1 -d half -b 2 -e 1M -f 64 --min-time 0.0001 -w 1
      hosts "2 hosts, graphs" 2 2 all_reduce,sendrecv -- -G 5 -b 8 -e 4M -f 64 --iters 4
      hosts "2 hosts, groups" 2 2 all_reduce -- -m 50 -b 8 -e 256K -f 64 --min-time 0.0001 -w 1
      NCCL_P2P_DISABLE=1 TUTTI_TEST_RANKS=2 step "behaviour through host memory" 240 \
        "$build/bin/test_gpu" --gtest_filter=-Registration.*
      torch --hosts
      ;;
    direct)
      TUTTI_CHECK_RANKS=2 step "GPUDirect, 2 hosts" 400 python3 "$here/tests/gpu/direct_check.py" "$build" \
        "$build/lib/libnccl-net-fake11.so"
      ;;
    death)
      step "a killed rank" 60 python3 "$here/tests/gpu/death_check.py" "$build"
      step "a killed rank, copy engines" 60 python3 "$here/tests/gpu/death_check.py" "$build" 2 engines
      ;;
    torch)
      if python3 -c 'import cupy' 2>/dev/null; then
        LD_PRELOAD=$library step "CuPy, tutti" 60 python3 "$here/tests/gpu/cupy_check.py"
      fi
      torch
      ;;
    sanitize) CUDA_VISIBLE_DEVICES=0 sanitize ;;
    bench) bench ;;
    *)
      echo "unknown part: $part"
      exit 2
      ;;
  esac
done
echo "$steps steps, $failures failed; logs in $logs"
[ $failures -eq 0 ]
