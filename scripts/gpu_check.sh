#!/usr/bin/env bash
# Checks the library on a machine with GPUs: every collective, type and operation; groups, streams, graphs, split and
# abort; several ranks on one GPU, one rank on each, threads and processes, hosts played by NCCL_HOSTID; deaths; PyTorch and CuPy;
# the kernels and the library under compute-sanitizer; and how long calls and communicators take beside NCCL.
#
#   scripts/gpu_check.sh [BUILD] [LOGS] [PART...]   BUILD: build/cuda; LOGS: BUILD/gpu_check
#   parts: build (before the others where BUILD has no library), one (one GPU), all (every GPU), programs (the general executor: many
#   ranks, named algorithms), hosts, direct (GPUDirect, over the plug-in of the tests), between (hosts, beside NCCL), death, torch,
#   torchsuite (PyTorch's own tests, begun within TUTTI_CHECK_SUITE_S seconds, 400; with NCCL those that failed), cupy, nccltests (built by whoever
#   has them: NCCL_TESTS, NCCL_TESTS_MPI), sanitize, kernels (bare ones beside NCCL), bench (the library beside NCCL), lifecycle
#   (start, end, memory); tests/gpu/parts/ has their steps
#
# Goes on after a failure; one line a step, with the end of its log where it failed, and LOGS/steps.json of all; what cannot run
# here is counted as skipped. Exit code 1 if a step failed. In the end, also where it is interrupted, LOGS/results has all that is
# worth keeping (scripts/gpu_results.py): summary.json, a page, the times as CSV and picture. TUTTI_PEER_LIBRARY is the other
# libnccl.so.2, else the Python package's; "none": none. TUTTI_CHECK_LANES=1: no steps beside each other.
set -uo pipefail
if [[ ${1:-} == -* ]]; then
  sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"
  [[ $1 == -h || $1 == --help ]] || exit 2
  exit 0
fi
build=${1:-build/cuda}
logs=${2:-$build/gpu_check}
parts=${*:3}
parts=${parts:-one all programs hosts direct death torch torchsuite cupy nccltests sanitize kernels bench between lifecycle}
here=$(cd "$(dirname "$0")/.." && pwd)
library=$build/lib/libnccl.so.2
mkdir -p "$logs"

# Kernels of ranks that share a GPU wait for each other, so their streams need hardware queues of their own.
export CUDA_DEVICE_MAX_CONNECTIONS=32
# A kernel that waits longer than this ends with an error, whatever the host does.
export TUTTI_GPU_WAIT_MS=${TUTTI_GPU_WAIT_MS:-15000}
: >"$logs/steps.json"

# shellcheck source=tests/gpu/parts/steps.sh
for file in "$here"/tests/gpu/parts/*.sh; do . "$file"; done

for part in $parts; do
  if [ "$part" != build ] && ! declare -F "part_$part" >/dev/null; then
    echo "unknown part: $part"
    exit 2
  fi
done

# Before GPUs are looked for: any machine can build.
part=build
if [[ " $parts " == *" build "* ]] || [ ! -e "$library" ]; then
  parts=${parts//build/}
  step "configured" 300 cmake -S "$here" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTUTTI_CUDA=ON \
    -DTUTTI_GPU_KERNELS=ON -DTUTTI_TESTS=ON
  step "built" 3600 cmake --build "$build" --target nccl tutti test_gpu fake_net11 fake_profilers gpu_kernels_bench gpu_enqueue
  step "the library's size" 10 python3 "$here/tests/abi/check_library.py" size --library "$library" --include "$here/include" --megabytes 20
  [ "$(count failed)" -eq 0 ] || exit 1
fi

gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
if [ "$gpus" -eq 0 ]; then
  echo "skipped: no GPU"
  exit 0
fi
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | uniq -c
nvidia-smi --query-gpu=name,memory.total,compute_cap,driver_version --format=csv,noheader >"$logs/gpus.csv"
gather() {
  python3 "$here/scripts/gpu_results.py" "$logs" "$logs/results" --build "$build" --seconds $SECONDS --parts "$parts"
}
trap gather EXIT
trap interrupt INT TERM

for part in $parts; do
  "part_$part"
  finish_lanes
done
echo "$(count step) steps, $(count failed) failed, $(count skipped) skipped; logs in $logs"
[ "$(count failed)" -eq 0 ]
