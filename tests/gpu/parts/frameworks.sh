# shellcheck shell=bash disable=SC2034,SC2154
# Parts torch, torchsuite, cupy, nccltests: what frameworks and NCCL's own benchmarks do with NCCL, with ours in its place.

has_module() {
  python3 -c "import $1" 2>/dev/null
}

# torch OPTIONS...: torch_check.py with NCCL, then with ours, whose losses have to be the same.
torch() {
  local run=(python3 -m torch.distributed.run --standalone --nproc-per-node "$gpus" "$here/tests/gpu/torch_check.py")
  step "PyTorch, NCCL${*:+ $*}" 120 "${run[@]}" "$@" --losses "$logs/nccl$*.json"
  LD_PRELOAD=$library step "PyTorch, tutti${*:+ $*}" 120 "${run[@]}" "$@" --losses "$logs/tutti$*.json" --against "$logs/nccl$*.json"
}

# torch_calls NAME: torch_calls_check.py with NCCL, then with ours, of which each result has to be NCCL's.
torch_calls() {
  local run=(python3 -m torch.distributed.run --standalone --nproc-per-node "$gpus" "$here/tests/gpu/torch_calls_check.py")
  step "PyTorch's calls, NCCL$1" 150 "${run[@]}" --keep "$logs/calls-nccl$1"
  NCCL_DEBUG=INFO NCCL_DEBUG_FILE=$logs/calls$1-%p.log LD_PRELOAD=$library step "PyTorch's calls, tutti$1" 150 "${run[@]}" \
    --keep "$logs/calls-tutti$1" --against "$logs/calls-nccl$1" --split-words "by ncclCommSplit"
}

# torch_shared RANKS: several on one GPU, where NCCL has none: what they have to get comes from one process, and from Gloo.
torch_shared() {
  local run=(python3 -m torch.distributed.run --standalone --nproc-per-node "$1")
  step "PyTorch, what $1 ranks have to learn" 60 python3 "$here/tests/gpu/torch_check.py" --alone "$1" --losses "$logs/alone$1.json"
  LD_PRELOAD=$library step "PyTorch, $1 ranks of a GPU" 120 "${run[@]}" "$here/tests/gpu/torch_check.py" --losses "$logs/shared$1.json" \
    --against "$logs/alone$1.json"
  CUDA_VISIBLE_DEVICES='' step "PyTorch's calls, Gloo, $1 ranks" 120 "${run[@]}" "$here/tests/gpu/torch_calls_check.py" --backend gloo \
    --keep "$logs/calls-gloo$1"
  NCCL_DEBUG=INFO NCCL_DEBUG_FILE=$logs/calls-shared$1-%p.log LD_PRELOAD=$library step "PyTorch's calls, $1 ranks of a GPU" 150 "${run[@]}" \
    "$here/tests/gpu/torch_calls_check.py" --keep "$logs/calls-shared$1" --against "$logs/calls-gloo$1" --split-words "by ncclCommSplit"
}

part_torch() {
  if ! has_module torch; then
    skip "PyTorch" "it is not installed"
    return
  fi
  if [ "$gpus" -eq 1 ]; then
    torch_shared 2 &
    torch_shared 4 &
    step "a serving engine's calls, 2 ranks of a GPU" 120 python3 "$here/tests/gpu/vllm_check.py" --ranks 2 --lib "$library"
    wait
  fi
  # Beside each other, each NCCL's before ours: importing PyTorch is most of it.
  torch &
  torch --hosts &
  torch_calls "" &
  TORCH_NCCL_USE_COMM_NONBLOCKING=1 torch_calls ", nonblocking" &
  wait
  step "a serving engine's calls" 120 python3 "$here/tests/gpu/vllm_check.py" --ranks "$gpus" --lib "$library"
  LD_PRELOAD=$library step "PyTorch, ranks that die or do not come" 170 python3 "$here/tests/gpu/torch_faults_check.py"
  step "PyTorch, times of steps" 240 python3 "$here/tests/gpu/torch_steps_check.py" --lib "$library" --ranks "$gpus" --own NCCL_CTA_POLICY=1
}

# PyTorch's own tests of its NCCL backend: with ours, then with NCCL those that failed, of which none may pass. Ours begins no test after
# TUTTI_CHECK_SUITE_S seconds, and a test ends after 150. The ranks of so many tests come when they come: their kernels wait for them.
part_torchsuite() {
  local seconds=${TUTTI_CHECK_SUITE_S:-400} module
  for module in torch expecttest; do
    if ! has_module $module; then
      skip "PyTorch's own tests" "$module is not installed"
      return
    fi
  done
  if [ "$gpus" -le 1 ]; then
    skip "PyTorch's own tests" "they want two GPUs"
    return
  fi
  local run=(python3 "$here/tests/gpu/torch_suite.py" --timeout 150)
  rm -f "$logs"/suite-*.json
  TUTTI_GPU_WAIT_MS=0 LD_PRELOAD=$library step "PyTorch's own tests, tutti" $((seconds + 200)) "${run[@]}" --within "$seconds" --json "$logs/suite-tutti.json"
  [ -s "$logs/suite-tutti.json" ] || return
  step "PyTorch's own tests, those that failed, NCCL" 900 "${run[@]}" --failed-in "$logs/suite-tutti.json" --json "$logs/suite-nccl.json"
}

part_cupy() {
  if ! has_module cupy; then
    skip "CuPy" "it is not installed"
    return
  fi
  # With NCCL, too: what the check expects is what CuPy gives there.
  step "CuPy, NCCL" 90 python3 "$here/tests/gpu/cupy_check.py"
  LD_PRELOAD=$library step "CuPy, tutti" 90 python3 "$here/tests/gpu/cupy_check.py"
  [ "$gpus" -gt 1 ] || LD_PRELOAD=$library step "CuPy, 2 ranks of a GPU" 120 python3 "$here/tests/gpu/cupy_check.py" --ranks 2
}

# nccl_test NAME COMMAND...: right in every element, as the program itself counts.
nccl_test() {
  local wanted='Out of bounds values : 0 OK'
  LD_PRELOAD=$library step "nccl-tests, $1" 90 "${@:2}"
}

# The programs of nccl-tests, built by whoever has them: NCCL_TESTS is their folder, NCCL_TESTS_MPI that of those built with MPI.
part_nccltests() {
  local program ranks=(mpirun --allow-run-as-root --oversubscribe -np 2)
  if [ -z "${NCCL_TESTS:-}" ]; then
    skip "nccl-tests" "NCCL_TESTS names no folder of them"
    return
  fi
  for program in all_reduce all_gather reduce_scatter broadcast reduce alltoall sendrecv scatter gather hypercube; do
    nccl_test "$program" "$NCCL_TESTS/${program}_perf" -g "$gpus" -b 8 -e 64M -f 32 -n 3 -w 1 -c 1
    # Ranks that share a GPU take turns on it: few and short calls.
    [ -z "${NCCL_TESTS_MPI:-}" ] || NCCL_TESTS_DEVICE=0 nccl_test "$program, 2 ranks of a GPU" "${ranks[@]}" \
      "$NCCL_TESTS_MPI/${program}_perf" -g 1 -b 8 -e 1M -f 32 -n 2 -w 1 -c 1
  done
  nccl_test "all types and operations" "$NCCL_TESTS/all_reduce_perf" -g "$gpus" -b 8 -e 1M -f 64 -n 2 -w 1 -c 1 -d all -o all
  nccl_test "graphs, registered" "$NCCL_TESTS/all_gather_perf" -g "$gpus" -b 8 -e 16M -f 64 -n 2 -w 1 -c 1 -G 5 -R 1
}
