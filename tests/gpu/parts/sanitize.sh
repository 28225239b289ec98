# shellcheck shell=bash disable=SC2034,SC2154
# Part sanitize: the kernels, each type's in its short form, and the library, under compute-sanitizer.

# sanitized TOOL NAME COMMAND...: one GPU, or all where the name says so.
sanitized() {
  TUTTI_GPU_WAIT_MS=60000 step "$1, $2" 300 "$sanitizer" --tool "$1" --error-exitcode 1 "${@:3}"
}

sanitized_perf() {
  local wanted='GPU rank, from GPU to GPU'
  sanitized "$1" "$2" "$build/bin/tutti" perf "${@:3}" --iters 1 -w 0 -T 250
}

part_sanitize() {
  local sanitizer tool ranks options algorithm
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
  if [ -z "$sanitizer" ]; then
    skip "compute-sanitizer" "it is not installed"
    return
  fi
  open_lanes each
  while read -r tool ranks options; do
    # shellcheck disable=SC2086
    sanitized "$tool" "kernels of $ranks ranks${options:+ $options}" "$build/bin/gpu_kernels_bench" check --ranks "$ranks" --short \
      --timeout-ms 60000 $options
  done <<<$'memcheck 2\nmemcheck 4\nracecheck 2\nsynccheck 2\nmemcheck 4 --shared\nracecheck 4 --shared'
  for tool in memcheck racecheck synccheck; do
    for algorithm in ring twoshot; do
      # Of two ranks two-shot is a program, too.
      NCCL_ALGO=$algorithm sanitized_perf $tool "2 ranks by the program of $algorithm" all_reduce -t 2 -b 8 -e 1M -f 64 -d half
      NCCL_PROTO=LL128 NCCL_ALGO=$algorithm sanitized_perf $tool "2 ranks by $algorithm, LL128" all_reduce -t 2 -b 8 -e 1M -f 16 -d half
    done
    # More ranks than kernels know: those that move and those that send and receive are programs.
    sanitized_perf $tool "9 ranks send and receive" sendrecv -t 9 -b 8 -e 64K -f 64
    sanitized_perf $tool "9 ranks move" all_gather -t 9 -b 72 -e 64K -f 64
    sanitized_perf $tool "graphs" all_reduce -t 2 -G 1 -b 8 -e 1M -f 64
    sanitized_perf $tool "windows" all_gather -t 2 -R 2 -b 64K -e 4M -f 8
  done
  # A capture that is broken off on purpose, and such calls, fail in the driver.
  TUTTI_TEST_RANKS=2 step "memcheck, behaviour" 300 "$sanitizer" --tool memcheck --report-api-errors no --error-exitcode 1 \
    "$build/bin/test_gpu" '--gtest_filter=Order.*:Registration.ResultsAreTheSame*:Endings.Split*:Endings.*Memory*Buffer:Endings.APreMul*:Faults.AStream*'
  sanitized_perf memcheck "registered" alltoall -t 2 -R 1 -b 64K -e 4M -f 8
  finish_lanes
  if [ "$gpus" -gt 1 ]; then
    sanitized_perf memcheck "$gpus GPUs all_reduce" all_reduce -t "$gpus" -b 8 -e 4M -f 64
    sanitized_perf memcheck "$gpus GPUs alltoall" alltoall -t "$gpus" -R 2 -b 64 -e 4M -f 64
  fi
}
