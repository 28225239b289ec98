"""Ranks on several hosts: every collective is right, and whatever happens to a host or its wire, every call returns."""

import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "faults"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import bed  # noqa: E402
from harness import REMOTE, USAGE, FaultCase  # noqa: E402

T = 1.0
BOUND = T + 4  # T, and a margin for a loaded machine: what is cut or frozen is noticed by the clock alone


class HostCase(FaultCase):
    def make_hosts(self, count):
        hosts = bed.Hosts(count)
        self.addCleanup(hosts.end)
        return hosts

    def launch_on(self, hosts, places, *steps_by_rank, **settings):
        """Rank r on host places[r]."""
        prefixes = [hosts[place].prefix for place in places]
        settings.setdefault("timeout_ms", int(T * 1000))
        return self.launch(*steps_by_rank, prefixes=prefixes, **settings)


class Collectives(HostCase):
    def run_all(self, places, **settings):
        """The conformance suite's body on these hosts, met by a fixed address."""
        hosts = self.make_hosts(max(places) + 1)
        with tempfile.NamedTemporaryFile("w") as secret:
            secret.write("a secret that the ranks of this test share")
            secret.flush()
            environment = dict(os.environ, TEST_RANK_COUNT=str(len(places)), TEST_ID="fixed", TUTTI_SECRET_FILE=secret.name,
                               NCCL_COMM_ID=settings.pop("meeting", f"{hosts[places[0]].address}:4242"), **settings)
            words = [os.environ["CONFORMANCE"], "--gtest_filter=HostRanks.DISABLED_AllCollectives",
                     "--gtest_also_run_disabled_tests", "--gtest_brief=1"]
            ranks = [subprocess.Popen(hosts[place].prefix + words, env=environment | {"TEST_RANK": str(rank)},
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                     for rank, place in enumerate(places)]
            outputs = [rank.communicate(timeout=200)[0] for rank in ranks]
        for rank, output in zip(ranks, outputs):
            self.assertEqual(rank.returncode, 0, output)
        return outputs

    def test_on_two_hosts(self):
        self.run_all([0, 1])

    def test_on_three_hosts_of_unequal_size(self):
        self.run_all([0, 1, 1, 2])

    def test_on_four_hosts(self):
        self.run_all([0, 1, 2, 3])

    def test_over_ipv6(self):
        self.run_all([0, 1], NCCL_SOCKET_FAMILY="AF_INET6", meeting="[fd77::1]:4242")

    def test_ranks_of_a_host_share_memory_and_others_a_wire(self):
        outputs = self.run_all([0, 0, 1, 1], NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="ALL")
        kinds = {tuple(sorted(map(int, found[:2]))): found[2]
                 for output in outputs for found in re.findall(r"link (\d+) <- (\d+) lane \d via (\w+)", output)}
        self.assertEqual(kinds, {(0, 1): "shm", (2, 3): "shm", (0, 2): "net", (0, 3): "net", (1, 2): "net", (1, 3): "net"})


class Idle(HostCase):
    def test_threads_of_an_idle_rank_leave_the_cpu_to_others(self):
        hosts = self.make_hosts(2)
        ranks = self.launch_on(hosts, [0, 1], *["times:20:allreduce:20000 line allreduce:9"] * 2, timeout_ms=10000)
        self.expect_success(ranks, "times")
        time.sleep(0.2)  # whatever waits for the next call has gone to sleep
        before = [seconds_of_threads(rank.child.pid) for rank in ranks]
        span = 2.0
        time.sleep(span)
        for rank, spent in zip(ranks, before):
            for thread, (name, now) in seconds_of_threads(rank.child.pid).items():
                share = (now - spent.get(thread, (name, 0))[1]) / span
                self.assertLessEqual(share, 0.05, f"{name} of rank {rank.rank} uses {share:.0%} of a core while nothing is called")
        self.assertIn("tutti-net", [name for name, _ in before[0].values()])
        for rank in ranks:
            rank.say("go")
        self.expect_success(ranks, "allreduce:9")


def seconds_of_threads(pid):
    """By thread: its name, and the CPU time it has used."""
    found = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/stat") as file:
            name, fields = re.match(r"\d+ \((.*)\) (.*)", file.read()).groups()
        user, system = fields.split()[11:13]
        found[thread] = (name, (int(user) + int(system)) / os.sysconf("SC_CLK_TCK"))
    return found


class Faults(HostCase):
    def test_a_killed_rank_is_named_on_all_hosts(self):
        hosts = self.make_hosts(3)
        steps = "loop:allreduce:20000 shrink:1:abort allreduce:1000 destroy"
        ranks = self.launch_on(hosts, [0, 1, 2, 0], steps, "loop:allreduce:20000", steps, steps)
        time.sleep(0.3)
        killed = time.monotonic()
        ranks[1].child.kill()
        survivors = [ranks[0], ranks[2], ranks[3]]
        self.expect(survivors, "loop", REMOTE, r"rank 1 \(.*\) (died|ended)", killed, BOUND)
        self.expect_success(survivors, "shrink")
        self.expect_success(survivors, "allreduce")

    def test_a_frozen_rank_is_named_on_all_hosts(self):
        hosts = self.make_hosts(3)
        ranks = self.launch_on(hosts, [0, 1, 2], *["loop:allreduce:20000"] * 3)
        time.sleep(0.3)
        stopped = time.monotonic()
        ranks[1].child.send_signal(19)
        self.expect([ranks[0], ranks[2]], "loop", REMOTE, "rank 1 .* gave rank . no sign of life", stopped, BOUND)

    def test_a_cut_wire_is_an_error_on_both_sides(self):
        hosts = self.make_hosts(3)
        steps = "loop:allreduce:20000 shrink:2:abort allreduce:1000"
        # The survivors notice one after the other, and the first one's shrink waits for the second.
        ranks = self.launch_on(hosts, [0, 1, 2], steps, steps, "loop:allreduce:20000", timeout_ms=3000)
        time.sleep(0.3)
        cut = time.monotonic()
        hosts[2].cut()
        self.expect(ranks[:2], "loop", REMOTE, r"rank 2 \(", cut, BOUND + 2)
        self.expect([ranks[2]], "loop", REMOTE, r"rank [01] \(", cut, BOUND + 2, "a cut wire as the lonely host sees it")
        self.expect_success(ranks[:2], "shrink")
        self.expect_success(ranks[:2], "allreduce")

    def test_a_wire_that_is_cut_one_way_is_an_error_on_both_sides(self):
        hosts = self.make_hosts(2)
        ranks = self.launch_on(hosts, [0, 1], *["loop:allreduce:20000"] * 2)
        time.sleep(0.3)
        cut = time.monotonic()
        hosts[1].deafen()
        self.expect(ranks, "loop", REMOTE, "rank [01]", cut, BOUND)

    def test_a_host_that_vanishes_says_no_goodbye(self):
        hosts = self.make_hosts(2)
        ranks = self.launch_on(hosts, [0, 1], *["loop:alltoall:20000"] * 2)
        time.sleep(0.3)
        vanished = time.monotonic()
        hosts[1].cut()
        ranks[1].child.kill()
        self.expect([ranks[0]], "loop", REMOTE, r"rank 1 \(", vanished, BOUND)

    def test_a_wire_that_comes_back_in_time_is_no_fault(self):
        hosts = self.make_hosts(2)
        ranks = self.launch_on(hosts, [0, 1], *["times:5:allreduce:20000 line times:5:allreduce:20000"] * 2, timeout_ms=10000)
        self.expect_success(ranks, "times")
        hosts[1].cut()
        for rank in ranks:
            rank.say("go")
        time.sleep(0.7)
        hosts[1].mend()
        self.expect_success(ranks, "times", nth=1)

    def test_a_rank_that_computes_for_long_is_no_fault(self):
        hosts = self.make_hosts(2)
        ranks = self.launch_on(hosts, [0, 1], "allreduce:64 allreduce:5000", f"allreduce:64 sleep:{int(3 * T * 1000)} allreduce:5000")
        self.expect_success(ranks, "allreduce:64")
        self.expect_success(ranks, "allreduce:5000")
        self.assertRegex(ranks[0].log, r"rank 1 \(.*\) is on another host: .tutti why. on")

    def test_calls_that_differ_are_an_error(self):
        hosts = self.make_hosts(2)
        ranks = self.launch_on(hosts, [0, 1], "allreduce:64 allreduce:1000", "allreduce:64 allreduce:1001")
        self.expect_success(ranks, "allreduce:64")
        codes = [rank.result("allreduce:10")[0] for rank in ranks]
        self.assertIn(USAGE, codes)
        self.assertTrue(set(codes) <= {USAGE, REMOTE}, codes)

    def test_a_slow_wire_is_only_slow(self):
        hosts = self.make_hosts(2)
        hosts[1].slow_down("50mbit")
        ranks = self.launch_on(hosts, [0, 1], *["allreduce:4000000 destroy"] * 2)
        self.expect_success(ranks, "allreduce")
        self.expect_success(ranks, "destroy")

    def test_abort_does_not_wait_for_a_peer_that_takes_nothing(self):
        hosts = self.make_hosts(2)
        ranks = self.launch_on(hosts, [0, 1], "allreduce:64 abortafter:300 allreduce:4000000", "allreduce:64 line", timeout_ms=20000)
        code, _, _ = ranks[0].result("aborted")
        self.assertEqual(code, 0)
        began = time.monotonic()
        self.assertNotEqual(ranks[0].result("allreduce:4000000")[0], 0)
        self.assertLess(time.monotonic() - began, 2)

    def test_strangers_at_every_port_disturb_nobody(self):
        hosts = self.make_hosts(2)
        ranks = self.launch_on(hosts, [0, 1], *["times:20:allreduce:20000 line times:20:allreduce:20000 split:0:0 allreduce:9"] * 2,
                               timeout_ms=10000)
        self.expect_success(ranks, "times")
        ports = hosts[1].listening_ports()
        self.assertTrue(ports)
        probe = ("import socket,sys\n"
                 "for port in sys.argv[2:]:\n"
                 "  for text in (b'', b'GET / HTTP/1.1\\r\\n\\r\\n', bytes(300), b'\\x16\\x03\\x01' * 99):\n"
                 "    s = socket.create_connection((sys.argv[1], int(port)), 5); s.sendall(text); s.close()\n")
        hosts[0].inside(sys.executable, "-c", probe, hosts[1].address, *map(str, ports))
        for rank in ranks:
            rank.say("go")
        self.expect_success(ranks, "times", nth=1)
        self.expect_success(ranks, "allreduce:9")


if __name__ == "__main__":
    bed.enter()
    unittest.main(verbosity=1)
