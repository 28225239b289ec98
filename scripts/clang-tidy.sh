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
version=16  # the first of Debian 12's that knows std::source_location

if ! command -v "run-clang-tidy-$version" >/dev/null; then
  echo "run-clang-tidy-$version is not installed (apt-get install -y clang-tidy-$version)" >&2
  exit 77
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
code=0
"run-clang-tidy-$version" -quiet -use-color=0 -j "$jobs" -p "$build" "$regex" >"$log" 2>/dev/null || code=1
grep -vE '^clang-tidy-|^[0-9]+ warnings|^$' "$log" | awk '!seen[$0]++' || true
echo "clang-tidy: $(grep -c '^clang-tidy-' "$log") files, $(grep -E ' (error|warning): ' "$log" | sort -u | wc -l) findings"
exit "$code"
