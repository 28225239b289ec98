#!/usr/bin/env bash
# Builds the Python wheel, installs it into a fresh virtual environment and uses it there:
#   scripts/wheel_check.sh [PYTHON]
# Needs a package index for scikit-build-core, NumPy and pytest; exits 77 where there is none. Where PYTHON (the system's if
# it has torch, else python3) has torch, that is lent to the environment, and the PyTorch example runs, too:
# torch.distributed over CPU ranks with the wheel's backend.
set -euo pipefail
python=${1:-}
if [[ -z $python ]]; then # the one of the two that has torch
  for each in /usr/bin/python3 python3; do
    python=$each
    ! "$each" -c 'import torch, venv, ensurepip' 2>/dev/null || break
  done
fi
source=$(realpath "$(dirname "$0")/..")
work=$(mktemp -d /tmp/tutti-wheel.XXXXXX)
trap 'rm -rf "$work"' EXIT

"$python" -m venv "$work/venv"
venv=$work/venv/bin
"$venv/pip" install -q numpy pytest || { echo "no package index" >&2; exit 77; }
# The line of the pages, in the tree; what it writes there goes elsewhere.
line=$(sed -n 's/^    \(pip wheel .*\)/\1/p' "$source/python/README.md")
[[ $line == "pip wheel "*"-w dist "*"dist/tutti-"* ]] || { echo "python/README.md has no line with pip wheel" >&2; exit 1; }
# The compiler by the name, and the warnings, of the release build: a compiler cache then has most of it already.
export CC=${CC:-cc} CXX=${CXX:-c++} SKBUILD_CMAKE_DEFINE="TUTTI_WERROR=ON${SKBUILD_CMAKE_DEFINE:+;$SKBUILD_CMAKE_DEFINE}"
(cd "$source" && PATH=$venv:$PATH PIP_QUIET=1 bash -ec "${line//dist/$work/dist}")
ls -l "$work/dist"
"$venv/python" -m zipfile -l "$work"/dist/tutti-*.whl | grep -E 'libnccl|bin/tutti'
cd "$work" # nothing of the source tree is in sight
export TUTTI_DEVICE=host CUDA_VISIBLE_DEVICES="" PYTHONDONTWRITEBYTECODE=1
"$venv/tutti" version
"$venv/python" -m tutti run -n 4 "$source/examples/train.py"
"$venv/python" -m pytest -q -p no:cacheprovider --ignore="$source/python/tests/test_torch.py" "$source/python/tests"
if torch=$("$python" -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parent.parent)' 2>/dev/null); then
  # That torch was built for the NumPy beside it, and may refuse the newest, with which the package was tested.
  "$venv/pip" uninstall -q -y numpy
  if "$python" -c 'import sys, torch; sys.exit(not torch.__version__.startswith("1."))' 2>/dev/null; then
    "$venv/pip" install -q 'numpy<2' # as python/README.md says
  fi
  echo "$torch" >"$("$venv/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch.pth"
  TUTTI_TORCH_CACHE=$work/cache OMP_NUM_THREADS=1 "$venv/python" -m tutti run -n 4 "$source/examples/train_torch.py"
else
  echo "$python has no torch: the PyTorch example did not run"
fi
echo "== all good"
