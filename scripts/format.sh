#!/usr/bin/env bash
# Lays out all sources with clang-format; with --check it only says what differs. Layouts differ from
# version to version, so --check exits 77 (skipped) where the version of .clang-format is not there.
set -euo pipefail
cd "$(dirname "$0")/.."

version=14
tool=$(command -v "clang-format-$version" || command -v clang-format || true)
if [[ -z $tool ]] || ! "$tool" --version | grep -q "version $version\."; then
  echo "clang-format $version is not installed (apt-get install clang-format-$version, or pip install clang-format==$version.0.6)" >&2
  exit 77
fi

folders=()
for folder in src include tools tests bench examples sim python; do
  [[ -d $folder ]] && folders+=("$folder")
done
arguments=(-i)
[[ ${1:-} == --check ]] && arguments=(--dry-run -Werror --ferror-limit=1)
find "${folders[@]}" -type f \( -name '*.h' -o -name '*.hpp' -o -name '*.c' -o -name '*.cc' \
  -o -name '*.cu' -o -name '*.cuh' \) -print0 | xargs -0 -r "$tool" "${arguments[@]}"
