# shellcheck shell=bash disable=SC2034,SC2154
# Parts hosts, direct, between: each GPU a host of its own by NCCL_HOSTID.

# hosts NAME OPTIONS...: hosts_check.py.
hosts() {
  step "$1" 120 python3 "$here/tests/gpu/hosts_check.py" "$build" "${@:2}"
}

part_hosts() {
  open_lanes
  hosts "2 hosts, each collective" 2 2
  hosts "2 hosts, 4 ranks, each collective" 4 2
  hosts "2 hosts, types" 2 2 all_reduce,reduce,reduce_scatter -- -o all -d all -b 1000 -e 1M -f 1049 --min-time 0.0001 -w 1
  hosts "2 hosts, roots" 2 2 broadcast,gather,scatter -- -r all -b 1000 -e 1M -f 1024 --min-time 0.0001 -w 1
  hosts "2 hosts, misaligned" 2 2 -- -u 1 -d half -b 2 -e 1M -f 64 --min-time 0.0001 -w 1
  hosts "2 hosts, graphs" 2 2 all_reduce,sendrecv -- -G 5 -b 8 -e 4M -f 64 --iters 4
  hosts "2 hosts, groups" 2 2 all_reduce -- -m 50 -b 8 -e 256K -f 64 --min-time 0.0001 -w 1
  finish_lanes
  local wanted='\[  PASSED  \]' refused='\[  SKIPPED \]'
  NCCL_P2P_DISABLE=1 TUTTI_TEST_RANKS=2 step "behaviour through host memory" 240 \
    "$build/bin/test_gpu" '--gtest_filter=-Registration.*:Endings.HostMemoryIsRefusedWhereBuffersAreChecked:Memory.*'
  # What is left out has all ranks in one process, or windows, which end at a host, or measures memory of all ranks.
  local ranks
  for ranks in 2 4; do
    TUTTI_TEST_HOSTS=2 TUTTI_TEST_RANKS=$ranks step "behaviour of $ranks ranks on 2 hosts" $((120 * ranks)) "$build/bin/test_gpu" \
      '--gtest_filter=-Registration.Windows*:Registration.CopyEngines*:Endings.HostMemoryIsRefusedWhereBuffersAreChecked:Memory.*:Order.OneThread*:OrderSeeds.*:GraphLives.*'
  done
}

part_direct() {
  TUTTI_CHECK_RANKS=2 step "GPUDirect, 2 hosts" 400 python3 "$here/tests/gpu/direct_check.py" "$build" \
    "$build/lib/libnccl-net-fake11.so"
}

# Beside NCCL's sockets, both over loopback.
part_between() {
  local peer
  peer=$(peer_library)
  if [ -z "$peer" ] || [ "$gpus" -le 1 ]; then
    skip "times between hosts" "there is no other libnccl.so.2, or one GPU"
    return
  fi
  NCCL_SOCKET_IFNAME=lo step "times between hosts" 300 python3 "$here/tests/gpu/hosts_check.py" "$build" 2 2 \
    all_reduce,all_gather,broadcast,sendrecv -- --lib "$peer" -b 1K -e 64M -f 16 --min-time 0.2
}
