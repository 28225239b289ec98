# shellcheck shell=bash disable=SC2034,SC2154
# Part death: ranks that die, stop or never come.

part_death() {
  step "a killed rank" 60 python3 "$here/tests/gpu/death_check.py" "$build"
  step "a killed rank, copy engines" 60 python3 "$here/tests/gpu/death_check.py" "$build" 2 engines
}
