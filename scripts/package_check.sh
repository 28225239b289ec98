#!/usr/bin/env bash
# Installs the debs into a bare Debian 12 made for the purpose, and uses them there:
#   scripts/package_check.sh FOLDER_WITH_DEBS [ROOT]
# runs the command, compiles and runs a program with pkg-config and with CMake, stands beside another
# libnccl.so.2, and is removed again without a trace. Needs root, debootstrap and a Debian mirror; ROOT is
# an existing bare system to use instead (it is changed). Exits 77 where it cannot run.
set -euo pipefail
debs=$(realpath "${1:?folder with the debs}")
source=$(realpath "$(dirname "$0")/..")
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}

((EUID == 0)) || { echo "needs root, for chroot" >&2; exit 77; }
root=${2:-}
made=""
mounted=()
cleanup() {
  for each in "${mounted[@]}"; do umount "$each" || true; done
  [[ -z $made ]] || rm -rf --one-file-system "$made"
}
trap cleanup EXIT
if [[ -z $root ]]; then
  command -v debootstrap >/dev/null || { echo "debootstrap is not installed" >&2; exit 77; }
  root=$(mktemp -d /tmp/tutti-bare.XXXXXX)
  made=$root
  debootstrap --variant=minbase bookworm "$root" "$mirror" >"$root.log" 2>&1 ||
    { tail -n 5 "$root.log" >&2; echo "no bare Debian: is $mirror reachable?" >&2; exit 77; }
  rm -f "$root.log"
fi
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LANG=C.UTF-8 \
  TUTTI_DEVICE=host "$@"; }
step() { echo "== $*"; }

mkdir -p "$root/opt/check/debs"
cp "$debs"/*.deb "$root/opt/check/debs/"
cp -r "$source/examples" "$source/tests/package/consumer" "$root/opt/check/"
cp /etc/resolv.conf "$root/etc/resolv.conf"
for each in proc dev/shm; do
  mkdir -p "$root/$each"
  if ! mountpoint -q "$root/$each"; then
    mount --bind "/$each" "$root/$each"
    mounted+=("$root/$each")
  fi
done
before=$(mktemp)
inside apt-get update -qq
inside sh -c 'apt-get install -y -qq --no-install-recommends gcc g++ cmake make pkg-config >/dev/null 2>&1'
(cd "$root" && find etc usr | sort) >"$before"

step "installing"
inside sh -c 'apt-get install -y -qq --no-install-recommends /opt/check/debs/*.deb 2>&1 | tail -n 3'
step "the command"
inside tutti version
inside tutti perf all_reduce -n 2 -b 64K -e 64K --iters 5 | tail -n 6
step "pkg-config"
inside sh -ec 'cd /opt/check && cc examples/threads.c -o threads $(pkg-config --cflags --libs tutti) -pthread && ./threads 3'
inside sh -ec 'ldd /opt/check/threads | grep nccl'
step "CMake"
inside sh -ec 'cd /opt/check && cmake -S consumer -B one -DPACKAGE=tutti -DEXAMPLES=/opt/check/examples >/dev/null &&
  cmake --build one >/dev/null && one/consumer_c 3 && one/consumer_cc 2'
inside sh -ec 'cd /opt/check && cmake -S consumer -B two -DPACKAGE=NCCL -DEXAMPLES=/opt/check/examples \
  -DCMAKE_PREFIX_PATH=/usr/lib/tutti >/dev/null && cmake --build two >/dev/null && two/consumer_c 3'
step "beside another libnccl.so.2"
inside sh -ec 'cd /usr/lib/x86_64-linux-gnu && echo "int ncclGetVersion(int* v){*v=1;return 0;}" > /tmp/other.c &&
  cc -shared -Wl,-soname,libnccl.so.2 /tmp/other.c -o libnccl.so.2.99 && ln -s libnccl.so.2.99 libnccl.so.2 && ldconfig'
first() { inside sh -c 'ldconfig && ldd /opt/check/threads | sed -n "s/.*=> \(.*libnccl[^ ]*\).*/\1/p"'; }
expect() { [[ $1 == "$2" ]] || { echo "libnccl.so.2 is $1, wanted $2" >&2; exit 1; }; echo "$1"; }
expect "$(first)" /lib/x86_64-linux-gnu/libnccl.so.2
inside update-alternatives --set tutti-nccl /usr/lib/tutti/ld.so.conf.first
expect "$(first)" /usr/lib/tutti/lib/libnccl.so.2
inside update-alternatives --auto tutti-nccl
expect "$(first)" /lib/x86_64-linux-gnu/libnccl.so.2
inside sh -c 'rm /usr/lib/x86_64-linux-gnu/libnccl.so.2*; ldconfig'
expect "$(first)" /usr/lib/tutti/lib/libnccl.so.2

step "removing"
inside sh -c 'apt-get purge -y -qq --autoremove tutti libtutti-dev libtutti-nccl2 >/dev/null 2>&1'
left=$(comm -13 "$before" <(cd "$root" && find etc usr | sort) | grep -i tutti || true)
rm -f "$before"
[[ -z $left ]] || { echo "left behind: $left" >&2; exit 1; }
echo "== all good"
