#!/usr/bin/env bash
# Makes sure that the packages of Debian 12 or 13, or Ubuntu 24.04, for the named uses are there:
#   install-deps.sh build|test|torch|docs|bench|lint|package|bare|fuzz ...
# Quick and silent when nothing is missing. Otherwise installs through apt, as root or by sudo; when
# it may not, it prints the line that would do it and exits 3. On a system without dpkg it checks
# nothing: CMake says what it misses.
#
# test also wants CUDA's compiler, to compile the kernels, and NVTX's headers. Where no toolkit is installed they come from
# PyPI (100 MB) into build/cuda-toolkit; where they cannot be had, that is said, and what needs them is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

toolkit=build/cuda-toolkit
# The clang that the rules were written for, where the system has it: Debian 12's own lacks std::source_location.
case $(. /etc/os-release 2>/dev/null && echo "$ID${VERSION_ID:-}") in
  debian12 | ubuntu24.04) clang=-16 layout=clang-format-14 ;;
  *) clang="" layout="" ;;
esac

# The wheels of what is not there.
missing_wheels() {
  local nvcc=${CUDACXX:-nvcc} root=${CUDA_HOME:-${CUDA_PATH:-/usr/local/cuda}}
  if ! "$nvcc" --version >/dev/null 2>&1 && [[ ! -x $root/bin/nvcc && ! -x $(echo $toolkit/nvidia/*/bin/nvcc) ]]; then
    echo "nvidia-cuda-nvcc==13.0.* nvidia-cuda-crt==13.0.* nvidia-nvvm==13.0.* nvidia-cuda-runtime==13.0.* nvidia-cuda-cccl==13.0.*"
  fi
  if [[ ! -e $root/include/nvtx3/nvToolsExtPayload.h && ! -e /usr/include/nvtx3/nvToolsExtPayload.h &&
        ! -e $(echo $toolkit/nvidia/*/include/nvtx3/nvToolsExtPayload.h) ]]; then
    echo "nvidia-nvtx==13.0.*"
  fi
}

install_wheels() {
  local wheels log
  read -ra wheels <<<"$(missing_wheels | tr '\n' ' ')"
  ((${#wheels[@]})) || return 0
  echo "Installing into $toolkit: ${wheels[*]}"
  log=$(mktemp)
  rm -rf "$toolkit.new"
  if python3 -m pip install --quiet --disable-pip-version-check --no-deps --retries 1 --timeout 20 \
      --target "$toolkit.new" "${wheels[@]}" >"$log" 2>&1; then
    mkdir -p "$toolkit"
    cp -a "$toolkit.new/." "$toolkit/"
  else
    tail -n 3 "$log" >&2
    echo "They could not be had: tests do not compile the GPU kernels, or the ranges of NVTX are left out." >&2
  fi
  rm -rf "$toolkit.new" "$log"
}

packages_for() {
  case "$1" in
    build) echo g++ cmake ninja-build make pkg-config libsodium-dev libfmt-dev libcli11-dev \
                libhwloc-dev libpugixml-dev libyaml-dev nlohmann-json3-dev libfabric-dev libibverbs-dev ;;
    test) packages_for build
          echo libgtest-dev libgmock-dev openmpi-bin libopenmpi-dev python3 spin iproute2 libfabric-bin
          echo dpkg-dev file rpm groff-base zsh fish  # what packages are tested with
          echo abigail-tools python3-numpy python3-pytest python3-mpi4py ;;
    torch) packages_for test; echo python3-torch libtorch-dev pybind11-dev ;;  # many: no part of test
    docs) packages_for build; echo mkdocs mkdocs-material ;;
    package) packages_for build; echo dpkg-dev file rpm ;;
    bare) echo debootstrap ;;
    bench) packages_for build; echo libbenchmark-dev ;;
    lint) packages_for test; echo $layout clang-tidy$clang mypy g++-aarch64-linux-gnu ;;
    fuzz) packages_for test; echo clang$clang libclang-rt$clang-dev ;;
    *) echo "install-deps.sh: unknown use '$1'; known are build, test, torch, docs, bench, lint, package, bare, fuzz" >&2; exit 2 ;;
  esac
}

wanted=""
wants_wheels=0
for use in "${@:-build}"; do
  wanted="$wanted $(packages_for "$use")"
  [[ $use != test ]] || wants_wheels=1
done
if ((wants_wheels)) && [[ -n $(missing_wheels) ]]; then
  wanted="$wanted python3-pip"
fi
finish() {
  ((!wants_wheels)) || install_wheels
  exit 0
}

if ! command -v dpkg-query >/dev/null; then
  echo "Not a Debian system: packages are not checked. Needed are what these hold:$wanted" >&2
  finish
fi

native=$(dpkg --print-architecture)  # a package may be there for another architecture, too
missing=()
for package in $(printf '%s\n' $wanted | sort -u); do
  states=$(dpkg-query -W -f ' ${Architecture}:${db:Status-Status} ' "$package" 2>/dev/null || true)
  [[ $states == *" $native:installed "* || $states == *" all:installed "* ]] || missing+=("$package")
done
((${#missing[@]})) || finish

line="apt-get install -y --no-install-recommends ${missing[*]}"
become=()
if ((EUID != 0)); then
  if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
    become=(sudo)
  else
    echo "Packages are missing. Run as root, then try again:" >&2
    echo "  apt-get update && $line" >&2
    exit 3
  fi
fi
echo "Installing: ${missing[*]}"
install() {
  "${become[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$log" 2>&1
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# A machine whose lists are fresh needs no update; one that was never updated fails at once.
if ! install; then
  "${become[@]}" apt-get update -qq >"$log" 2>&1 || true
  if ! install; then
    tail -n 20 "$log" >&2
    echo "The packages could not be installed. Run as root, then try again:" >&2
    echo "  apt-get update && $line" >&2
    exit 3
  fi
fi
finish
