#!/usr/bin/env bash
# clang-tidy over the sources that a configured build compiles:
#   clang-tidy.sh BUILD [JOBS [FILE-REGEX]]
# The regex picks files by path. Tests are left out unless it names them: they are slow to parse, and
# their macros are not ours. Prints the findings and how many files were read; exits 1 on a finding.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${1:?usage: clang-tidy.sh BUILD [JOBS [FILE-REGEX]]}
jobs=${2:-$(nproc)}
regex=${3:-"$PWD/(src|tools)/.*(?<!_test)(?<!_bench)(?<!_fuzz)\\.cc\$"}
# 16 is the first of Debian 12's that knows std::source_location; systems without it have newer ones.
tool=$(command -v run-clang-tidy-16 || command -v run-clang-tidy || true)
if [[ -z $tool ]]; then
  echo "clang-tidy is not installed (scripts/install-deps.sh lint)" >&2
  exit 77
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
code=0
"$tool" -quiet -use-color=0 -j "$jobs" -p "$build" "$regex" >"$log" 2>/dev/null || code=1
grep -vE '^clang-tidy-|^[0-9]+ warnings|^$' "$log" | awk '!seen[$0]++' || true
echo "clang-tidy: $(grep -c '^clang-tidy-' "$log") files, $(grep -E ' (error|warning): ' "$log" | sort -u | wc -l) findings"
exit "$code"
