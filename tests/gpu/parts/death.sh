# shellcheck shell=bash disable=SC2034,SC2154
# Part death: ranks that die, stop or never come.

part_death() {
  local what ranks
  for what in killed queued engines replays; do
    for ranks in 2 4; do
      step "$what, $ranks ranks" 70 python3 "$here/tests/gpu/death_check.py" "$build" $ranks $what
    done
  done
  for what in stopped paused late; do
    step "$what, 4 ranks" 70 python3 "$here/tests/gpu/death_check.py" "$build" 4 $what
  done
  local wanted='\[  PASSED  \] 1 test' refused='\[  SKIPPED \]'
  TUTTI_TEST_RANKS=$gpus step "no memory at init" 60 "$build/bin/test_gpu" --gtest_filter='Memory.*'
}
