# shellcheck shell=bash disable=SC2034,SC2154
# Parts one, all, programs: every collective through the library, checked element by element.

operations="all_reduce all_gather reduce_scatter broadcast reduce alltoall gather scatter sendrecv"

# each NAME RANKS SIZES...: every collective in `tutti perf`.
each() {
  local operation
  for operation in $operations; do
    tutti_perf "$1 $operation" 60 "$operation" "${@:2}" --min-time 0.002 -T 50
  done
}

# Sizes that are powers of two, and such that no rank count but 13's multiples divides.
perf() {
  each "$@" -b 8 -e 32M -f 16
  each "$1, odd counts" "${@:2}" -b 12 -e 40M -f 13
}

# Few calls: processes that share a GPU take turns on it, and such programs beside each other, each with its own, do not get through
# their start-up in 80 s (4 of 11 ranks on 4 GPUs).
shared() {
  local operation
  for operation in $operations; do
    tutti_perf "$1 $operation" 90 "$operation" "${@:2}" -b 12 -e 6M -f 79 --iters 2 -w 1 -T 80
  done
}

types() {
  local operation
  for operation in all_reduce reduce reduce_scatter; do
    tutti_perf "$1 types $operation" 120 $operation "${@:2}" -o all -d all -b 1000 -e 4M -f 4194 --min-time 0.0005 -T 110
  done
  for operation in broadcast reduce gather scatter; do
    tutti_perf "$1 roots $operation" 60 $operation "${@:2}" -r all -b 1000 -e 1M -f 1024 --min-time 0.0005 -T 50
  done
  for operation in $operations; do
    tutti_perf "$1 misaligned $operation" 60 "$operation" "${@:2}" -u 1 -d half,int8 -b 2 -e 4M -f 64 --min-time 0.0005 -T 50
  done
}

# forms NAME RANKS: graphs, groups, and memory that peers write to, as logs of 8 ranks or fewer have to tell.
forms() {
  local operation direct=${direct-'bytes at .* are written directly by peers'} engines=''
  [ -z "$direct" ] || engines='to [1-7] of [1-7] peers by copy engines'
  for operation in all_reduce alltoall broadcast; do
    tutti_perf "$1 graphs $operation" 60 $operation "${@:2}" -G 5 -b 8 -e 16M -f 64 -T 50
  done
  NCCL_GRAPH_REGISTER=1 told "$direct" REG "$1 graphs that register" 60 all_gather "${@:2}" -G 5 -b 1M -e 64M -f 8 -T 50
  told "$direct" REG "$1 registered" 60 all_gather "${@:2}" -R 1 -b 1M -e 64M -f 8 -T 50
  told "$direct" REG "$1 registered, all-to-all" 60 alltoall "${@:2}" -R 1 -b 1M -e 64M -f 8 -T 50
  told "$direct" REG "$1 windows" 60 alltoall "${@:2}" -R 2 -b 1M -e 64M -f 8 -T 50
  tutti_perf "$1 long" 60 reduce "${@:2}" -b 32M -e 128M -f 4 --min-time 0.002 -T 50
  told "$direct" REG "$1 long windows" 60 all_gather "${@:2}" -R 2 -b 16M -e 256M -f 4 --min-time 0.002 -T 50
  NCCL_CTA_POLICY=2 told "$engines" COLL "$1 copy engines" 60 alltoall "${@:2}" -R 2 -b 64 -e 64M -f 64 --min-time 0.002 -T 50
  tutti_perf "$1 groups" 60 all_reduce "${@:2}" -m 50 -b 8 -e 256K -f 64 --min-time 0.002 -T 50
}

# profiles NAME RANKS: of traces and plug-ins.
profiles() {
  step "$1, profilers" 240 python3 "$here/tests/gpu/profile_check.py" "$build" "$2"
}

# behaviour RANKS WHERE: test_gpu. A test that is skipped is a failure: here are GPUs.
behaviour() {
  local refused='\[  SKIPPED \]|\[  PASSED  \] 0 tests' wanted='\[  PASSED  \]'
  TUTTI_TEST_RANKS=$1 step "behaviour, $1 ranks $2" 240 "$build/bin/test_gpu" \
    "--gtest_filter=-Endings.HostMemoryIsRefusedWhereBuffersAreChecked:Memory.*"
  NCCL_GRAPH_REGISTER=1 TUTTI_TEST_RANKS=$1 step "registration, $1 ranks $2" 120 \
    "$build/bin/test_gpu" --gtest_filter='Registration.*'
  NCCL_CHECK_POINTERS=1 TUTTI_TEST_RANKS=$1 step "checked pointers, $1 ranks $2" 60 "$build/bin/test_gpu" --gtest_filter='Endings.*Memory*'
}

# The kernels that the driver makes of PTX, as on a GPU that came after them: it compiles each image, for minutes in all, on a CPU.
from_ptx() {
  local lanes=1
  CUDA_FORCE_PTX_JIT=1 CUDA_CACHE_DISABLE=1 CUDA_VISIBLE_DEVICES=0 tutti_perf "1 GPU, kernels from PTX" 500 all_reduce -t 2 \
    -b 8 -e 32M -f 64 -d float,bfloat16 -T 490
}

part_one() {
  local ranks
  open_lanes each
  from_ptx &
  for ranks in 8 4 2; do
    behaviour $ranks "on one GPU"
    step "kernels bit by bit, $ranks ranks" 240 "$build/bin/gpu_kernels_bench" check --ranks $ranks
  done
  step "kernels bit by bit, 3 ranks" 240 "$build/bin/gpu_kernels_bench" check --ranks 3
  perf "1 GPU, 2 threads" -t 2
  types "1 GPU, 2 threads" -t 2
  forms "1 GPU, 2 threads" -t 2
  shared "1 GPU, 2 processes" -n 2
  finish_lanes
  profiles "1 GPU, 2 processes" 2
  open_lanes each
  for ranks in 4 8; do
    each "1 GPU, $ranks threads" -t $ranks -b 36 -e 40M -f 97
    shared "1 GPU, $ranks processes" -n $ranks
  done
}

part_all() {
  if [ "$gpus" -le 1 ]; then
    skip "every GPU" "there is one"
    return
  fi
  open_lanes
  perf "$gpus GPUs, threads" -t "$gpus"
  perf "$gpus GPUs, processes" -n "$gpus"
  types "$gpus GPUs, threads" -t "$gpus"
  types "$gpus GPUs, processes" -n "$gpus"
  forms "$gpus GPUs, processes" -n "$gpus"
  each "2 threads a GPU" -t $((2 * gpus)) -b 36 -e 40M -f 97
  finish_lanes
  profiles "$gpus GPUs" "$gpus"
  shared "2 processes a GPU" -n $((2 * gpus))
  behaviour "$gpus" "on $gpus GPUs"
  behaviour $((2 * gpus)) "on $gpus GPUs"
}

# Algorithms that no kernel has by hand, and more ranks than those know.
part_programs() {
  local algorithm protocol ranks=$((gpus > 1 ? gpus : 4))
  open_lanes
  each "12 ranks, threads" -t 12 -b 8 -e 32M -f 16
  tutti_perf "12 ranks, threads, types" 90 all_reduce -t 12 -o all -d all -b 1000 -e 4M -f 4194 --min-time 0.0005 -T 80
  direct='' forms "12 ranks, threads" -t 12
  for algorithm in ring tree pat doubling; do
    NCCL_ALGO=$algorithm tutti_perf "$algorithm, $ranks ranks all_reduce" 60 all_reduce -t "$ranks" -b 8 -e 128M -f 16 --min-time 0.002 -T 50
  done
  NCCL_ALGO=ring types "ring, $ranks ranks" -t "$ranks"
  for algorithm in ring pat; do
    NCCL_ALGO=$algorithm tutti_perf "$algorithm, $ranks ranks all_gather" 60 all_gather -t "$ranks" -b 8 -e 128M -f 16 --min-time 0.002 -T 50
    NCCL_ALGO=$algorithm tutti_perf "$algorithm, $ranks ranks reduce_scatter" 60 reduce_scatter -t "$ranks" -b 8 -e 128M -f 16 --min-time 0.002 -T 50
  done
  for protocol in LL LL128 Simple; do
    NCCL_PROTO=$protocol tutti_perf "12 ranks, $protocol all_reduce" 60 all_reduce -t 12 -b 8 -e 4M -f 8 --min-time 0.002 -T 50
    NCCL_PROTO=$protocol tutti_perf "12 ranks, $protocol alltoall" 60 alltoall -t 12 -b 96 -e 6M -f 8 --min-time 0.002 -T 50
    NCCL_ALGO=ring NCCL_PROTO=$protocol tutti_perf "ring, $protocol, $ranks ranks, types" 90 all_reduce -t "$ranks" -o all -d all \
      -b 1000 -e 4M -f 4194 --min-time 0.0005 -T 80
    NCCL_ALGO=ring NCCL_PROTO=$protocol tutti_perf "ring, $protocol, $ranks ranks, misaligned" 60 reduce_scatter -t "$ranks" -u 1 -d half \
      -b 2 -e 4M -f 64 --min-time 0.0005 -T 50
  done
  NCCL_ALGO=ring,tree tutti_perf "tree, $ranks ranks broadcast" 60 broadcast -t "$ranks" -b 8 -e 32M -f 16 -r all --min-time 0.002 -T 50
  finish_lanes
  shared "11 ranks, processes" -n 11
  behaviour 9 "by programs"
}
