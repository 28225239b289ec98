#!/usr/bin/env bash
# Installs the debs into a bare Debian of this one's release made for the purpose, and uses them there (`make package-check`):
#   scripts/package_check.sh FOLDER_WITH_DEBS [ROOT]
# runs the command, compiles and runs a program with pkg-config and with CMake, stands beside NVIDIA's packages (their
# names and files, made here), and is removed again without a trace. Needs root, debootstrap and a Debian mirror
# (DEBIAN_MIRROR); ROOT is an existing bare system to use instead, which is changed. Exits 77 where it cannot run.
set -euo pipefail
debs=$(realpath "${1:?folder with the debs}")
source=$(realpath "$(dirname "$0")/..")
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")
skip() { echo "skipped: $*" >&2; exit 77; }

((EUID == 0)) || skip "needs root, for chroot"
# Mounts of a namespace of its own end with it, whatever ends the script.
if [[ -z ${TUTTI_PACKAGE_CHECK_INSIDE:-} ]]; then
  unshare --mount true 2>/dev/null || skip "this system lets nobody make a mount namespace"
  TUTTI_PACKAGE_CHECK_INSIDE=1 exec unshare --mount --propagation private "$0" "$@"
fi
root=${2:-}
made=""
cleanup() {
  [[ -n $made ]] || return 0
  umount "$made/root/dev/shm" "$made/root/proc" 2>/dev/null || true
  rm -rf --one-file-system "$made"
}
trap cleanup EXIT
if [[ -z $root ]]; then
  command -v debootstrap >/dev/null || skip "debootstrap is not installed"
  made=$(mktemp -d /tmp/tutti-bare.XXXXXX)
  root=$made/root
  debootstrap --variant=minbase "$release" "$root" "$mirror" >"$made/log" 2>&1 ||
    { tail -n 5 "$made/log" >&2; skip "no bare Debian could be made: is $mirror reachable?"; }
fi
for each in proc dev/shm; do
  mkdir -p "$root/$each"
  mount --bind "/$each" "$root/$each" || skip "/$each cannot be mounted in $root"
done
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LANG=C.UTF-8 \
  TUTTI_DEVICE=host "$@"; }
inside true || skip "chroot does not work here"
step() { echo "== $*"; }
fail() { echo "$*" >&2; exit 1; }
# apt, silent unless it fails
get() {
  inside apt-get install -y -qq --no-install-recommends --allow-downgrades "$@" >"$root/opt/check/apt.log" 2>&1 ||
    { cat "$root/opt/check/apt.log" >&2; fail "apt-get install $*"; }
}

# line 'BEGINNING' [TEXT INSTEAD]: runs the command line of the pages that begins so, in the folder of the check.
line() {
  local command
  command=$(python3 - "$source/scripts" "$1" <<'EOF'
import sys
sys.path.insert(0, sys.argv[1])
import docs_commands
print(*(line for line in docs_commands.lines() if line.startswith(sys.argv[2])), sep="\n")
EOF
)
  [[ -n $command && $command != *$'\n'* ]] || fail "no line of the pages, or several, begin with $1: $command"
  [[ -z ${2:-} ]] || command=${command/"$2"/"$3"}
  echo "\$ $command"
  inside sh -ec "cd /opt/check && $command" >"$root/opt/check/line.log" 2>&1 || { cat "$root/opt/check/line.log" >&2; fail "$command"; }
}

rm -rf "$root/opt/check"
mkdir -p "$root/opt/check/debs"
cp "$debs"/*.deb "$root/opt/check/debs/"
cp -r "$source/examples" "$root/opt/check/"
cp /etc/resolv.conf "$root/etc/resolv.conf"
inside apt-get update -qq || skip "$mirror is not reachable from inside"
step "what the pages install"
line 'apt-get install -y git make'
get gcc g++ cmake make pkg-config
libraries=/usr/lib/$(inside gcc -print-multiarch)
(cd "$root" && find etc usr var/lib | sort) >"$root/opt/check/before"

step "installing"
ours=()
for each in "$debs"/*.deb; do ours+=("/opt/check/debs/${each##*/}"); done
get "${ours[@]}"
inside dpkg-query -W -f '${Package} ${Version}: ${Depends}\n' libtutti-nccl2 libtutti-dev tutti
step "the command"
inside tutti version
inside tutti perf all_reduce -n 2 -b 64K -e 64K --iters 5 | tail -n 6
step "pkg-config"
inside sh -ec 'cd /opt/check && cc examples/threads.c -o threads $(pkg-config --cflags --libs tutti) -pthread && ./threads 3'
step "CMake"
line 'cmake -S examples/find_package' '-DCMAKE_PREFIX_PATH=$HOME/tutti' ''
inside sh -ec 'cd /opt/check && build/app/threads 3 && build/app/cpp_raii 2'
inside sh -ec 'cd /opt/check && cmake -S examples/find_package -B two -DPACKAGE=NCCL -DCMAKE_PREFIX_PATH=/usr/lib/tutti >/dev/null &&
  cmake --build two >/dev/null && two/threads 3'
line 'cmake -DNCCL_ROOT' ... "-S examples/find_package -B three -DPACKAGE=NCCL"
inside sh -ec 'cd /opt/check && cmake --build three >/dev/null && three/threads 3'
step "NCCL_HOME"
line 'export NCCL_HOME' /usr/lib/tutti '/usr/lib/tutti && cc examples/threads.c -o home -I$NCCL_HOME/include -L$NCCL_HOME/lib \
  -lnccl -Wl,-rpath,$NCCL_HOME/lib -pthread && ./home 3'

# theirs NAME: a package by that name of NVIDIA's, with its files. A file that two packages hold, dpkg refuses.
theirs() {
  local folder=$root/opt/check/theirs-$1
  mkdir -p "$folder/DEBIAN" "$folder$libraries" "$folder/usr/include"
  printf 'Package: %s\nVersion: 2.28.9-1+cuda13.0\nArchitecture: %s\nMaintainer: nobody <nobody@example.invalid>\n%s\n' "$1" \
    "$(inside dpkg --print-architecture)" "Description: stands for NVIDIA's package of this name" >"$folder/DEBIAN/control"
  if [[ $1 == libnccl2 ]]; then
    echo "int ncclGetVersion(int* v) { *v = 1; return 0; }" >"$root/opt/check/theirs.c"
    inside cc -shared -fPIC -Wl,-soname,libnccl.so.2 /opt/check/theirs.c -o "/opt/check/theirs-$1$libraries/libnccl.so.2.28.9"
    ln -s libnccl.so.2.28.9 "$folder$libraries/libnccl.so.2"
    echo "activate-noawait ldconfig" >"$folder/DEBIAN/triggers"
  else
    mkdir -p "$folder/usr/include/nccl_device" "$folder$libraries/pkgconfig" "$folder/usr/lib/cmake/NCCL"
    ln -s libnccl.so.2 "$folder$libraries/libnccl.so"
    touch "$folder$libraries/libnccl_static.a" "$folder$libraries/pkgconfig/nccl.pc" "$folder/usr/include/nccl.h" \
      "$folder/usr/include/nccl_device.h" "$folder/usr/include/nccl_device/core.h" "$folder/usr/lib/cmake/NCCL/NCCLConfig.cmake"
  fi
  inside dpkg-deb --root-owner-group -b "/opt/check/theirs-$1" "/opt/check/$1.deb" >/dev/null
}
first() { inside sh -c 'ldd /opt/check/threads | sed -n "s/.*=> \(.*libnccl[^ ]*\).*/\1/p"'; }
expect() { [[ $(first) == "$1" ]] || fail "libnccl.so.2 is $(first), wanted $1"; echo "libnccl.so.2 is $1"; }
our_library=/usr/lib/tutti/lib/libnccl.so.2
their_library=${libraries#/usr}/libnccl.so.2  # /lib leads to /usr/lib
step "beside NVIDIA's packages, which come second"
expect $our_library
theirs libnccl2
theirs libnccl-dev
get /opt/check/libnccl2.deb /opt/check/libnccl-dev.deb
expect "$their_library"
line 'update-alternatives --set'
expect $our_library
inside sh -ec 'cd /opt/check && ./threads 3'
line 'update-alternatives --auto'
expect "$their_library"
step "and which come first"
inside apt-get purge -y -qq tutti libtutti-dev libtutti-nccl2 >/dev/null 2>&1
get "${ours[@]}"
expect "$their_library"
inside tutti perf all_reduce -n 2 -b 64K -e 64K --iters 5 | grep -q "Out of bounds values : 0 OK" || fail "the command is wrong"
inside apt-get purge -y -qq libnccl2 libnccl-dev >/dev/null 2>&1
expect $our_library

step "removing"
inside apt-get purge -y -qq --autoremove tutti libtutti-dev libtutti-nccl2 >/dev/null 2>&1
left=$(comm -13 "$root/opt/check/before" <(cd "$root" && find etc usr var/lib | sort) | grep -i -e tutti -e nccl || true)
[[ -z $left ]] || fail "left behind: $left"
step "for 64-bit Arm"
echo 'APT::Get::Assume-Yes "true";' >"$root/etc/apt/apt.conf.d/90yes"
line 'dpkg --add-architecture'
line 'apt-get install g++-aarch64'
echo "== all good"
