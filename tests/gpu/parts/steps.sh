# shellcheck shell=bash disable=SC2034,SC2154
# How gpu_check.sh runs a step, counts it and says what came of it. Sourced: $build, $logs, $here, $library, $gpus, $part.

# Steps that run beside each other; with lanes_of_gpus each on a GPU of its own.
lanes=1
lanes_of_gpus=
lane_pids=()

# Texts (grep -E) that a step's log has to have, one a line, or must not have; set before the call of step.
wanted=
refused=

count() {
  case $1 in
    step) grep -c '"exit":' "$logs/steps.json" ;;
    failed) grep -c '"exit":[^0]' "$logs/steps.json" ;;
    skipped) grep -c '"skipped":' "$logs/steps.json" ;;
  esac
}

# skip NAME REASON
skip() {
  printf '{"part":"%s","step":"%s","skipped":"%s"}\n' "$part" "$1" "$2" >>"$logs/steps.json"
  printf 'skip  %-52s %s\n' "$1" "$2"
}

# Ends what runs. timeout has a process group of its own, which Ctrl-C does not reach.
interrupt() {
  # shellcheck disable=SC2046
  kill $(jobs -p) 2>/dev/null
  exit 130
}

# A command that ends with 77 cannot run here; the last line of its log says why.
run_step() {
  local name=$1 seconds=$2 log began status took text
  shift 2
  log=$logs/${name//[^A-Za-z0-9_.-]/_}.log
  began=$(date +%s%3N)
  trap interrupt INT TERM # also where this is a lane's shell
  timeout -k 5 "$seconds" "$@" >"$log" 2>&1 &
  wait $!
  status=$?
  took=$(($(date +%s%3N) - began))
  if [ $status -eq 77 ]; then
    skip "$name" "$(tail -n 1 "$log" | tr -cd '[:alnum:][:blank:].,:;_()/=+-' | cut -c1-200)"
    return
  fi
  while [ $status -eq 0 ] && [ -n "$wanted" ] && read -r text; do
    if ! grep -qE "$text" "$log"; then
      echo "FAIL: nothing in the log is like '$text'" >>"$log"
      status=99
    fi
  done <<<"$wanted"
  if [ $status -eq 0 ] && [ -n "$refused" ] && grep -qE "$refused" "$log"; then
    echo "FAIL: the log has '$refused'" >>"$log"
    status=98
  fi
  printf '{"part":"%s","step":"%s","exit":%s,"ms":%s}\n' "$part" "$name" $status "$took" >>"$logs/steps.json"
  if [ $status -eq 0 ]; then
    printf 'ok    %-52s %6d ms\n' "$name" "$took"
    return
  fi
  printf 'FAIL  %-52s exit %s after %s ms\n%s\n' "$name" "$status" "$took" \
    "$(grep -E 'rror|WARN|FAIL|wrong|Failure|tutti' "$log" | tail -n 6 | cut -c1-300 | sed 's/^/      /')"
}

# step NAME SECONDS COMMAND...: where there are several lanes, in the first that is free.
step() {
  local lane
  if [ "$lanes" -le 1 ]; then
    run_step "$@"
    return
  fi
  while :; do
    for ((lane = 0; lane < lanes; ++lane)); do
      kill -0 "${lane_pids[lane]:-none}" 2>/dev/null || break 2
    done
    wait -n
  done
  (
    [ -z "$lanes_of_gpus" ] || export CUDA_VISIBLE_DEVICES=$lane
    run_step "$@"
  ) &
  lane_pids[lane]=$!
}

# Lanes for steps whose time is no matter: with all GPUs each as many as there are CPUs for, or (each) one a GPU.
open_lanes() {
  finish_lanes
  lanes_of_gpus=$([ "${1:-}" != each ] || echo yes)
  local shared=$(($(nproc) / 10))
  [ "$shared" -ge 3 ] || shared=3
  lanes=$([ -n "$lanes_of_gpus" ] && echo "$gpus" || echo "$shared")
  [ "$lanes" -le "${TUTTI_CHECK_LANES:-8}" ] || lanes=$TUTTI_CHECK_LANES
  # One lane has its GPU all the same.
  [ -z "$lanes_of_gpus" ] || [ "$lanes" -gt 1 ] || export CUDA_VISIBLE_DEVICES=0
}

finish_lanes() {
  wait
  [ -z "$lanes_of_gpus" ] || unset CUDA_VISIBLE_DEVICES
  lanes=1 lanes_of_gpus='' lane_pids=()
}

# tutti_perf NAME SECONDS OPTIONS...: checked, and its calls go from GPU to GPU.
tutti_perf() {
  local wanted="GPU rank, from GPU to GPU${proof:+$'\n'$proof}"
  step "$1" "$2" "$build/bin/tutti" perf "${@:3}"
}

# told TEXT SUBSYSTEMS NAME SECONDS OPTIONS...: tutti_perf whose log has the text, too.
told() {
  local proof=$1
  NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=$2 tutti_perf "${@:3}"
}

# The other libnccl.so.2, if there is one; TUTTI_PEER_LIBRARY=none: as if there were none.
peer_library() {
  if [ -n "${TUTTI_PEER_LIBRARY:-}" ]; then
    [ "$TUTTI_PEER_LIBRARY" = none ] || echo "$TUTTI_PEER_LIBRARY"
    return
  fi
  python3 -c 'import glob, nvidia.nccl as n; print(glob.glob(list(n.__path__)[0] + "/lib/libnccl.so.2")[0])' 2>/dev/null
}
