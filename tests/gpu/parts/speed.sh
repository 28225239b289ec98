# shellcheck shell=bash disable=SC2034,SC2154
# Parts kernels, bench, lifecycle: how long it takes, beside NCCL in the same run. Nothing else runs meanwhile.

# The kernels by themselves; ours are started without the library, NCCL's by its API.
part_kernels() {
  local peer ranks
  peer=$(peer_library)
  rm -f "$logs/kernels.json"
  for ranks in 2 4; do
    [ "$gpus" -ge $ranks ] || continue
    step "kernels of $ranks ranks" 300 "$build/bin/gpu_kernels_bench" time --ranks $ranks --gpus $ranks --json "$logs/kernels.json" \
      ${peer:+--nccl "$peer"}
  done
  [ -s "$logs/kernels.json" ] || return
  step "kernels, table" 10 python3 "$here/scripts/gpu_table.py" "$logs/kernels.json" "$logs/kernels.csv"
  step "kernels, picture" 10 python3 "$here/scripts/gpu_plot.py" "$logs/kernels.csv" "$logs/kernels.svg"
}

# bench_times NAME RANKS OPTIONS...: times-RANKS.csv and .json.
bench_times() {
  step "$1" 590 python3 "$here/scripts/gpu_compare.py" --command "$build/bin/tutti" --ranks "$2" --csv "$logs/times-$2.csv" \
    --json "$logs/times-$2.json" "${@:3}"
}

# The library beside NCCL, both through their API: fails where a cell is slower than NCCL's default. Without NCCL, and on one GPU,
# of which NCCL has one rank, ours alone.
part_bench() {
  local peer ranks
  peer=$(peer_library)
  rm -f "$logs"/times*
  if [ "$gpus" -le 1 ]; then
    skip "times beside NCCL" "on one GPU NCCL has no two ranks"
    # Threads, since processes take turns on a GPU.
    bench_times "times of 2 ranks of a GPU" 2 --runs threads --modes eager --most $((64 << 20))
  else
    [ -n "$peer" ] || skip "times beside NCCL" "there is no other libnccl.so.2"
    for ranks in 2 4; do
      [ "$gpus" -lt $ranks ] || bench_times "times of $ranks ranks" $ranks ${peer:+--lib "$peer"}
    done
  fi
  compgen -G "$logs/times-[24].csv" >/dev/null || return
  awk 'FNR > 1 || NR == 1' "$logs"/times-[24].csv >"$logs/times.csv"
  step "picture of times" 10 python3 "$here/scripts/gpu_plot.py" "$logs/times.csv" "$logs/times.svg"
}

part_lifecycle() {
  local peer ranks
  peer=$(peer_library)
  rm -f "$logs"/lifecycle-*.json
  for ranks in 2 4; do
    [ "$gpus" -ge $ranks ] || continue
    step "lifecycle of $ranks ranks" 120 python3 "$here/scripts/gpu_lifecycle.py" --lib "$library" ${peer:+--lib "$peer"} --ranks $ranks \
      --enqueue "$build/bin/gpu_enqueue" --json "$logs/lifecycle-$ranks.json"
  done
}
