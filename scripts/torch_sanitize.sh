#!/usr/bin/env bash
# Runs the tests of the PyTorch backend with a sanitizer in the backend and in the library:
#   scripts/torch_sanitize.sh thread|address BUILD_WITH_THAT_SANITIZER [PYTHON] [ARGUMENTS OF PYTEST]
# Python and torch are not instrumented: python/tests/torch_tsan.supp says what that costs. Leaks are not looked for: both keep
# what they allocated. Ends with a failure when a test fails or a report was written.
set -euo pipefail
kind=${1:?thread or address} build=$(realpath "${2:?build folder}") python=${3:-/usr/bin/python3}
shift $(($# < 3 ? $# : 3))
source=$(realpath "$(dirname "$0")/..")
case $kind in
  thread) flags=thread runtimes=(libtsan.so) ;;
  address) flags=address,undefined runtimes=(libasan.so libubsan.so) ;;
  *) echo "torch_sanitize.sh: $kind: thread or address" >&2; exit 2 ;;
esac
work=$(mktemp -d "/tmp/tutti-$kind.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/python"
cp -r "$source/python/tutti" "$work/python/"
mkdir -p "$work/python/tutti/lib" "$work/python/tutti/bin"
ln -s "$build/lib/libnccl.so.2" "$work/python/tutti/lib/libnccl.so.2"
ln -s "$build/bin/tutti" "$work/python/tutti/bin/tutti"
ln -s "$source/include" "$work/python/tutti/include"
export PYTHONPATH=$work/python PYTHONDONTWRITEBYTECODE=1 TUTTI_DEVICE=host CUDA_VISIBLE_DEVICES="" OMP_NUM_THREADS=1
export TUTTI_TORCH_CACHE=${TUTTI_TORCH_CACHE:-$work/cache} CXX="g++ -fsanitize=$flags -fno-omit-frame-pointer -g1"

# Compiled without the runtime in front, of which a compiler has no need; so it is not loaded yet.
"$python" -m tutti.torch >"$work/compile" 2>&1 || true
compgen -G "$TUTTI_TORCH_CACHE/*/_C.so" >/dev/null || { cat "$work/compile" >&2; exit 1; }
preload=""
for each in "${runtimes[@]}"; do preload+="$(g++ -print-file-name="$each") "; done
symbolizer=$(command -v addr2line)  # names of inlined functions, by which suppressions go
export TSAN_OPTIONS="suppressions=$source/python/tests/torch_tsan.supp log_path=$work/report history_size=4 \
external_symbolizer_path=$symbolizer"
export ASAN_OPTIONS="detect_leaks=0 log_path=$work/report" UBSAN_OPTIONS="print_stacktrace=1 log_path=$work/report"
# ThreadSanitizer of GCC 12 cannot cope with the widest address randomisation of newer kernels.
status=0
setarch -R env LD_PRELOAD="$preload" "$python" -m pytest -q -p no:cacheprovider "$source/python/tests/test_torch.py" "$@" || status=$?
if compgen -G "$work/report.*" >/dev/null; then
  cat "$work"/report.*
  echo "== reports: $(cat "$work"/report.* | grep -cE '^(WARNING|==[0-9]+==ERROR)|runtime error')"
  exit 1
fi
echo "== no report of the $kind sanitizer"
exit "$status"
