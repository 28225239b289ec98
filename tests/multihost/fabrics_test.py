"""Ranks that die, stand still or lose their wire while their messages go over another network than sockets: those who are left are
told of the guilty rank in time, and go on without it."""

import ctypes
import os
import pathlib
import signal
import tempfile
import time
import unittest

import bed
from host_case import BOUND, REMOTE, HostCase, between

PLACES = [0, 1, 2, 0, 1]  # five ranks on three hosts; rank 2 is alone on its own
GUILTY = 2
STEPS = "loop:allreduce:20000 shrink:2:abort allreduce:1000 alltoall:1000 destroy"


class OverANetwork:
    """What subclasses have: `network`, as the log names it, and each host's settings."""

    network = ""
    more_threads = 2  # that a process keeps: "tutti-fabric" and "tutti-netcalls"

    def settings(self, host):
        raise NotImplementedError

    def cut(self, hosts, number):
        hosts[number].cut()

    def start(self, loop="loop:allreduce:20000", **settings):
        hosts = self.make_hosts(max(PLACES) + 1)
        each = [self.settings(hosts[place]) for place in PLACES]
        steps = STEPS.replace("loop:allreduce:20000", loop)
        ranks = self.launch_on(hosts, PLACES, *[steps] * len(PLACES), each=each, NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET", **settings)
        self.wait_until_underway(ranks)
        for rank in ranks:
            self.assertIn(f"links to other hosts over {self.network}", rank.log)
            self.assertNotIn("goes over sockets", rank.log)
        return hosts, ranks, [rank for rank in ranks if rank.rank != GUILTY]

    def expect_rest(self, survivors):
        self.expect_survivors(survivors)
        for step in ("alltoall", "destroy"):
            self.expect_success(survivors, step)
        for rank in survivors:
            self.assertNotIn("goes over sockets", rank.log)

    def test_a_rank_that_leaves_much_unread_is_no_fault(self):
        hosts = self.make_hosts(2)
        each = [self.settings(host) for host in hosts.all[:2]]
        for rank in self.expect_patience(hosts, each=each, NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET"):
            self.assertIn(f"links to other hosts over {self.network}", rank.log)

    def test_threads_of_an_idle_rank_leave_the_cpu_to_others(self):
        hosts = self.make_hosts(2)
        each = [self.settings(host) for host in hosts.all]
        steps = "times:20:allreduce:20000 send:1:5 line allreduce:9"
        ranks = self.launch_on(hosts, [0, 1], steps, steps.replace("send:1", "recv:0"), timeout_ms=10000, each=each, NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET")
        self.expect_success(ranks, "times")
        for names in self.threads_of_idle(ranks):
            self.assertIn("tutti-fabric", names)
        for rank in ranks:
            self.assertIn(f"links to other hosts over {self.network}", rank.log)
            rank.say("go")
        self.expect_success(ranks, "allreduce:9")

    def test_abort_ends_a_call_that_connects_to_a_host_that_was_cut_off(self):
        hosts = self.make_hosts(2)
        self.expect_abort_while_it_connects(hosts, [0, 1], lambda: self.cut(hosts, 1), each=[self.settings(host) for host in hosts.all])

    def launch(self, *steps, **settings):
        return super().launch(*steps, FAULT_MORE_THREADS=str(self.more_threads), **settings)

    def test_a_killed_rank_is_named(self):
        _, ranks, survivors = self.start()
        killed = time.monotonic()
        ranks[GUILTY].child.kill()
        self.expect(survivors, "loop", REMOTE, rf"rank {GUILTY} \(.*\) (died|ended)", killed, BOUND)
        self.expect_rest(survivors)

    def test_a_rank_that_is_killed_in_long_messages_is_named(self):
        """Messages of which several are under way in pieces, over all adapters, from and to the callers' own memory."""
        _, ranks, survivors = self.start("loop:allgather:500000")
        killed = time.monotonic()
        ranks[GUILTY].child.kill()
        self.expect(survivors, "loop", REMOTE, rf"rank {GUILTY} \(.*\) (died|ended)", killed, BOUND)
        self.expect_rest(survivors)

    def test_a_rank_that_is_killed_amid_shared_buffers_is_named(self):
        """Adapters know the callers' memory, which is another for each call and freed after the one that fails."""
        _, ranks, survivors = self.start("loop:allgather:500000", FAULT_SHARED="1")
        killed = time.monotonic()
        ranks[GUILTY].child.kill()
        self.expect(survivors, "loop", REMOTE, rf"rank {GUILTY} \(.*\) (died|ended)", killed, BOUND)
        self.expect_rest(survivors)

    def test_a_rank_that_is_frozen_amid_shared_buffers_is_named(self):
        _, ranks, survivors = self.start("loop:sendrecv:3000000", FAULT_SHARED="1")
        stopped = time.monotonic()
        ranks[GUILTY].child.send_signal(signal.SIGSTOP)
        self.expect(survivors, "loop", REMOTE, rf"rank {GUILTY} .* gave rank \d no sign of life", stopped, BOUND)
        self.expect_rest(survivors)

    def test_a_frozen_rank_is_named(self):
        _, ranks, survivors = self.start()
        stopped = time.monotonic()
        ranks[GUILTY].child.send_signal(signal.SIGSTOP)
        self.expect(survivors, "loop", REMOTE, rf"rank {GUILTY} .* gave rank \d no sign of life", stopped, BOUND)
        self.expect_rest(survivors)

    def test_a_cut_wire_is_an_error_on_both_sides(self):
        # The survivors notice one after the other, and the first one's shrink waits for the last.
        hosts, ranks, survivors = self.start(timeout_ms=3000)
        cut = time.monotonic()
        self.cut(hosts, PLACES[GUILTY])
        self.expect(survivors, "loop", REMOTE, rf"rank {GUILTY} \(", cut, BOUND + 2)
        self.expect([ranks[GUILTY]], "loop", REMOTE, between(GUILTY), cut, BOUND + 2, "a cut wire as the lonely host sees it")
        self.expect_rest(survivors)


class Plugin(OverANetwork, HostCase):
    network = "Fake"
    more_threads = 3  # and the one for its lanes

    def settings(self, host):
        return {"NCCL_NET": "Fake", "NCCL_NET_PLUGIN": os.environ["NET_PLUGIN"], "FAKE_NET_ADDRESS": host.address}


@unittest.skipUnless(os.environ.get("VERBS_LIBRARIES"), "the stand-in for libibverbs is not built (no infiniband/verbs.h)")
class Verbs(OverANetwork, HostCase):
    """Two cards a host; a file is the cable, which leaves with the wire."""

    network = "IB"
    more_threads = 3  # and "tutti-ibevents"

    def make_hosts(self, count):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        return super().make_hosts(count)

    def settings(self, host):
        lines = []
        for card in range(2):
            place = self.folder / f"host{host.number}-{card}"
            lid = 10 * (host.number + 1) + card
            if not place.exists():
                place.mkdir()
                (place / "device").symlink_to(f"../../0000:{card}7:00.0")
            lines += [f"device mlx5_{card} {place} 64", f"port 1 active ib 64 2 {lid}", f"gid 0 ib fe80::{lid}"]
        devices = self.folder / f"devices{host.number}"
        devices.write_text("\n".join(lines) + "\n")
        self.cable(host).touch()
        return {"NCCL_NET": "IB", "LD_LIBRARY_PATH": os.environ["VERBS_LIBRARIES"], "FAKE_VERBS_DEVICES": str(devices),
                "FAKE_VERBS_FOLDER": str(self.folder), "FAKE_VERBS_CABLE": str(self.cable(host))}  # fmt: skip

    def cable(self, host):
        return self.folder / f"cable{host.number}"

    def cut(self, hosts, number):
        self.cable(hosts[number]).unlink()
        super().cut(hosts, number)


def has_libfabric():
    try:
        return ctypes.CDLL("libfabric.so.1") is not None
    except OSError:
        return False


@unittest.skipUnless(has_libfabric(), "there is no libfabric.so.1")
class Libfabric(OverANetwork, HostCase):
    network = "ofi: libfabric's tcp"

    def settings(self, host):
        return {"NCCL_NET": "ofi", "TUTTI_OFI_PROVIDER": "tcp"}


if __name__ == "__main__":
    bed.enter()
    unittest.main(verbosity=1)
