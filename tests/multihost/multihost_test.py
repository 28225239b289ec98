"""Ranks on several hosts: every collective is right, and whatever happens to a host or its wire, every call returns."""

import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

import bed
from host_case import BOUND, LIMIT, REMOTE, USAGE, HostCase, between


class Collectives(HostCase):
    def run_all(self, places, body="HostRanks.DISABLED_AllCollectives", prepare=lambda hosts: {}, **settings):
        """A body of the conformance suite on these hosts, met by a fixed address. `prepare`: gives more settings."""
        hosts = self.make_hosts(max(places) + 1)
        settings |= prepare(hosts)
        with tempfile.NamedTemporaryFile("w") as secret:
            secret.write("a secret that the ranks of this test share")
            secret.flush()
            environment = dict(os.environ, TEST_RANK_COUNT=str(len(places)), TEST_ID="fixed", TUTTI_SECRET_FILE=secret.name,
                               NCCL_COMM_ID=settings.pop("meeting", f"{hosts[places[0]].address}:4242"), **settings)
            words = [os.environ["CONFORMANCE"], f"--gtest_filter={body}",
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

    def test_working_on_while_messages_cross_the_network(self):
        self.run_all([0, 0, 1, 1], TUTTI_NET_OVERLAP="2")

    def test_working_on_with_one_rank_a_host(self):
        self.run_all([0, 1], TUTTI_NET_OVERLAP="2")

    def test_over_ipv6(self):
        self.run_all([0, 1], NCCL_SOCKET_FAMILY="AF_INET6", meeting="[fd77::1]:4242")

    def test_ranks_of_a_host_share_memory_and_others_a_wire(self):
        outputs = self.run_all([0, 0, 1, 1], NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="ALL")
        kinds = {tuple(sorted(map(int, found[:2]))): found[2]
                 for output in outputs for found in re.findall(r"link (\d+) <- (\d+) lane \d via (\w+)", output)}
        self.assertEqual(kinds, {(0, 1): "shm", (2, 3): "shm", (0, 2): "net", (0, 3): "net", (1, 2): "net", (1, 3): "net"})


class InTheNetwork(HostCase):
    """All-reduce, all-gather and reduce-scatter through a network that reduces: a process on the first host stands for the switch."""

    def add_switch(self, hosts):
        switch = subprocess.Popen(hosts[0].prefix + [os.environ["COLLNET_REDUCER"], hosts[0].address],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (switch.kill(), switch.communicate()))
        return {"NCCL_COLLNET_ENABLE": "1", "NCCL_NET_PLUGIN": os.environ["FAKE_COLLNET"],
                "FAKE_COLLNET_AT": f"{hosts[0].address}:{switch.stdout.readline().strip()}"}

    def run_over(self, places, algorithm):
        outputs = self.run_all(places, body="CollnetRanks.DISABLED_SumsAndProducts", prepare=self.add_switch, NCCL_DEBUG="INFO",
                               NCCL_DEBUG_SUBSYS="NET,TUNING", NCCL_ALGO=f"allreduce:{algorithm};ring,twoshot,direct,pairwise")
        for output in outputs:
            self.assertIn(f"-> {algorithm}", output)
            self.assertRegex(output, f"FakeSwitch reduces between {max(places) + 1} hosts")

    def test_a_chain_to_it_on_four_hosts(self):
        self.run_over([0, 0, 1, 2, 3], "collnetchain")

    def test_directly_from_heads_of_two_hosts(self):
        self.run_over([0, 0, 1, 1], "collnetdirect")

    def run_blocks(self, places):
        outputs = self.run_all(places, body="BlockRanks.DISABLED_Some", prepare=self.add_switch, NCCL_DEBUG="INFO",
                               NCCL_DEBUG_SUBSYS="NET,TUNING", NCCL_ALGO="allgather:collnetdirect;reducescatter:collnetdirect")
        for output in outputs:
            self.assertRegex(output, "AllGather: .*-> collnetdirect")
            self.assertRegex(output, "ReduceScatter: .*-> collnetdirect")

    def test_blocks_between_heads_of_two_hosts(self):
        self.run_blocks([0, 0, 1, 1])

    def test_blocks_between_three_hosts(self):
        self.run_blocks([0, 1, 2])

    run_all = Collectives.run_all


CALLS = 20
ELEMENTS = 1_000_000


class Wires(HostCase):
    """Several interfaces a host: links use all that NCCL_SOCKET_IFNAME names."""

    def expect_alike(self, sent, least):
        """Each interface its part of the bytes that the calls must have moved."""
        self.assertLessEqual(max(sent.values()), 1.05 * min(sent.values()), sent)
        self.assertGreaterEqual(sum(sent.values()), least, sent)

    def sent_over_each(self, hosts, places, **settings):
        steps = f"times:3:allreduce:{ELEMENTS} line times:{CALLS}:allreduce:{ELEMENTS}"
        ranks = self.launch_on(hosts, places, *[steps] * len(places), timeout_ms=20000, **settings)
        self.expect_success(ranks, "times")
        before = [host.sent_bytes() for host in hosts.all]
        for rank in ranks:
            rank.say("go")
        self.expect_success(ranks, "times", nth=1)
        return [{name: now - was[name] for name, now in host.sent_bytes().items()} for host, was in zip(hosts.all, before)]

    def test_four_wires_carry_alike(self):
        hosts = self.make_hosts(2)
        hosts.add_wires(3)
        for sent in self.sent_over_each(hosts, [0, 0, 0, 0, 1, 1, 1, 1], NCCL_SOCKET_IFNAME="eth"):
            self.assertEqual(len(sent), 4)
            self.expect_alike(sent, CALLS * 4 * ELEMENTS)  # of two hosts each sends as much as a vector

    def test_one_wire_is_used_where_one_is_named(self):
        hosts = self.make_hosts(2)
        hosts.add_wires(1)
        for sent in self.sent_over_each(hosts, [0, 1], NCCL_SOCKET_IFNAME="=eth1"):
            self.assertGreater(sent["eth1"], 100 * max(sent["eth0"], 1000))

    def test_rails_carry_what_is_relayed_inside_hosts(self):
        """Each seat of a host has an interface of its own: all-to-all goes over that of the receiver's seat alone."""
        hosts = self.make_hosts(2)
        hosts.add_wires(1)
        each = [{"NCCL_SOCKET_IFNAME": f"=eth{seat}"} for seat in (0, 1, 0, 1)]
        steps = f"times:2:alltoall:100000 line times:{CALLS}:alltoall:100000 allreduce:64"
        for level, is_relayed in (("2", True), ("0", False)):
            with self.subTest(level=level):
                ranks = self.launch_on(hosts, [0, 0, 1, 1], *[steps] * 4, timeout_ms=20000, each=each, NCCL_P2P_PXN_LEVEL=level, NCCL_DEBUG="INFO",
                                       NCCL_DEBUG_SUBSYS="ALL")  # fmt: skip
                self.expect_success(ranks, "times")
                found = re.findall(r"link (\d+) <- (\d+) lane \d via net", "".join(rank.log for rank in ranks))
                pairs = {tuple(sorted(map(int, ends))) for ends in found}
                self.assertEqual(pairs, {(0, 2), (1, 3)} if is_relayed else {(0, 2), (0, 3), (1, 2), (1, 3)})
                before = [host.sent_bytes() for host in hosts.all]
                for rank in ranks:
                    rank.say("go")
                self.expect_success(ranks, "times", nth=1)
                self.expect_success(ranks, "allreduce")
                for host, was in zip(hosts.all, before):
                    sent = {name: now - was[name] for name, now in host.sent_bytes().items()}
                    self.expect_alike(sent, CALLS * 2 * 2 * 4 * 100000)  # of two ranks to two

    def test_several_sockets_and_threads_bring_the_same(self):
        self.run_all([0, 0, 1, 1], NCCL_SOCKET_NTHREADS="2", NCCL_NSOCKS_PERTHREAD="3")

    run_all = Collectives.run_all


@unittest.skipUnless(os.environ.get("TUTTI"), "the tutti command is not built")
class Run(HostCase):
    """tutti run over hosts, with a stand-in for ssh."""

    def setUp(self):
        super().setUp()
        self.hosts = self.make_hosts(2)
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.ssh = pathlib.Path(self.folder) / "ssh"
        self.hosts.write_ssh(self.ssh)

    def run_on(self, *words, **options):
        path = {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        return subprocess.run([*self.hosts[0].prefix, os.environ["TUTTI"], "run", *words], capture_output=True, text=True, timeout=LIMIT,
                              stdin=subprocess.DEVNULL, env=os.environ | path | options.pop("env", {}), **options)  # fmt: skip

    def test_ranks_have_their_places_and_a_secret(self):
        words = "$(hostname) $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $NCCL_DEBUG $OURS"
        done = self.run_on("--hosts", f"{self.hosts[0].address}:2,host1:1", "--port", "4000", "-x", "OURS=it's", "--",
                           "sh", "-c", f'echo "{words}"; wc -c < "$TUTTI_SECRET_FILE"', env={"NCCL_DEBUG": "WARN"})  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        master = f"{self.hosts[0].address}:4000"
        expected = [f"[0] host0 0/3 0/2 {master} WARN it's", f"[1] host0 1/3 1/2 {master} WARN it's", f"[2] host1 2/3 0/1 {master} WARN it's"]
        self.assertEqual(sorted(line for line in done.stdout.splitlines() if "host" in line), expected)
        self.assertEqual(sorted(line for line in done.stdout.splitlines() if "host" not in line), ["[0] 64", "[1] 64", "[2] 64"])

    def test_a_collective_runs_over_them(self):
        hostfile = pathlib.Path(self.folder) / "hosts"
        hostfile.write_text(f"{self.hosts[0].address} slots=2  # the first\n{self.hosts[1].address}:2\n")
        done = self.run_on("--hostfile", str(hostfile), "--no-prefix", "--", os.environ["TUTTI"], "perf", "all_reduce", "-b", "1K", "-e", "1M", "-f", "32",
                           "--iters", "2", "-w", "1")  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        self.assertIn("1048576", done.stdout)

    def test_hosts_are_those_of_an_allocation_where_none_are_named(self):
        nodes = pathlib.Path(self.folder) / "nodes"
        nodes.write_text("host0\nhost0\nhost1\n")
        words = "--", "sh", "-c", "echo $(hostname) $LOCAL_RANK/$LOCAL_WORLD_SIZE"
        for name, env in (("SLURM_JOB_NODELIST", {"SLURM_JOB_NODELIST": "host[0-1]", "SLURM_TASKS_PER_NODE": "2,1"}),
                          ("PBS_NODEFILE", {"PBS_NODEFILE": str(nodes)})):  # fmt: skip
            done = self.run_on(*words, env=env)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(sorted(done.stdout.splitlines()), ["[0] host0 0/2", "[1] host0 1/2", "[2] host1 0/1"])
            self.assertIn(f"tutti run: on 2 hosts of {name}", done.stderr)
            for words_before in (("--local",), ("--hosts", "host0:2")):
                done = self.run_on(*words_before, *words, env=env)
                self.assertEqual(sorted(line.split()[-1] for line in done.stdout.splitlines()), ["0/2", "1/2"], done.stderr)
                self.assertNotIn(name, done.stderr)

    def test_a_rank_that_fails_ends_the_others_and_leaves_nothing(self):
        began = time.monotonic()
        done = self.run_on("--hosts", "host0,host1", "--", "sh", "-c", f'[ $RANK = 1 ] && exit 7; exec sleep 100.{os.getpid()}')
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertLess(self.taken(began), 15)
        self.assertIn("rank 1 (on host1) exited with code 7; ending the others", done.stderr)
        self.assertEqual([words for words in command_lines() if words[:2] == ["sleep", f"100.{os.getpid()}"]], [])

    def test_a_host_that_cannot_be_reached_is_named(self):
        done = self.run_on("--hosts", "host0,nowhere", "--", "sleep", "30")
        self.assertEqual(done.returncode, 255, done.stderr)
        self.assertIn("rank 1 (on nowhere) exited with code 255", done.stderr)
        self.assertIn("Could not resolve hostname nowhere", done.stderr)


class Idle(HostCase):
    def test_threads_of_an_idle_rank_leave_the_cpu_to_others(self):
        hosts = self.make_hosts(2)
        ranks = self.launch_on(hosts, [0, 1], *["times:20:allreduce:20000 line allreduce:9"] * 2, timeout_ms=10000)
        self.expect_success(ranks, "times")
        self.assertIn("tutti-net", self.threads_of_idle(ranks)[0])
        for rank in ranks:
            rank.say("go")
        self.expect_success(ranks, "allreduce:9")


def command_lines():
    """Of all processes."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            found.append(path.read_text(errors="replace").split("\0"))
    return found


class Faults(HostCase):
    def test_a_killed_rank_is_named_on_all_hosts(self):
        hosts = self.make_hosts(3)
        steps = "loop:allreduce:20000 shrink:1:abort allreduce:1000 destroy"
        ranks = self.launch_on(hosts, [0, 1, 2, 0], steps, "loop:allreduce:20000", steps, steps)
        self.wait_until_underway(ranks)
        killed = time.monotonic()
        ranks[1].child.kill()
        survivors = [ranks[0], ranks[2], ranks[3]]
        self.expect(survivors, "loop", REMOTE, r"rank 1 \(.*\) (died|ended)", killed, BOUND)
        self.expect_survivors(survivors)

    def test_a_frozen_rank_is_named_on_all_hosts(self):
        hosts = self.make_hosts(3)
        ranks = self.launch_on(hosts, [0, 1, 2], *["loop:allreduce:20000 shrink:1:abort allreduce:1000"] * 3)
        self.wait_until_underway(ranks)
        stopped = time.monotonic()
        ranks[1].child.send_signal(19)
        survivors = [ranks[0], ranks[2]]
        self.expect(survivors, "loop", REMOTE, "rank 1 .* gave rank . no sign of life", stopped, BOUND)
        self.expect_survivors(survivors)

    def test_a_cut_wire_is_an_error_on_both_sides(self):
        hosts = self.make_hosts(3)
        steps = "loop:allreduce:20000 shrink:2:abort allreduce:1000"
        # The survivors notice one after the other, and the first one's shrink waits for the second.
        ranks = self.launch_on(hosts, [0, 1, 2], steps, steps, "loop:allreduce:20000", timeout_ms=3000)
        self.wait_until_underway(ranks)
        cut = time.monotonic()
        hosts[2].cut()
        self.expect(ranks[:2], "loop", REMOTE, r"rank 2 \(", cut, BOUND + 2)
        self.expect([ranks[2]], "loop", REMOTE, between(2), cut, BOUND + 2, "a cut wire as the lonely host sees it")
        self.expect_survivors(ranks[:2])

    def test_a_wire_that_is_cut_one_way_is_an_error_on_both_sides(self):
        hosts = self.make_hosts(3)
        steps = "loop:allreduce:20000 shrink:2:abort allreduce:1000"
        ranks = self.launch_on(hosts, [0, 1, 2], steps, steps, "loop:allreduce:20000", timeout_ms=3000)
        self.wait_until_underway(ranks)
        cut = time.monotonic()
        hosts[2].deafen()
        self.expect(ranks, "loop", REMOTE, between(2), cut, BOUND + 2)  # whichever side notices first
        self.expect_survivors(ranks[:2])

    def test_a_host_that_vanishes_says_no_goodbye(self):
        hosts = self.make_hosts(3)
        ranks = self.launch_on(hosts, [0, 1, 2], *["loop:alltoall:20000 shrink:1:abort allreduce:1000"] * 3, timeout_ms=3000)
        self.wait_until_underway(ranks)
        vanished = time.monotonic()
        hosts[1].cut()
        ranks[1].child.kill()
        survivors = [ranks[0], ranks[2]]
        self.expect(survivors, "loop", REMOTE, r"rank 1 \(", vanished, BOUND + 2)
        self.expect_survivors(survivors)

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
        ranks = self.launch_on(hosts, [0, 1], "allreduce:64 allreduce:5000", f"allreduce:64 sleep:{int(3 * self.own_T * 1000)} allreduce:5000")
        self.expect_success(ranks, "allreduce:64")
        self.expect_success(ranks, "allreduce:5000")
        self.assertRegex(ranks[0].log, r"rank 1 \(.*\) has not called AllReduce #2 .*, 1 operation behind")

    def test_nor_is_one_that_leaves_much_unread(self):
        self.expect_patience(self.make_hosts(2))

    def test_calls_that_differ_are_an_error(self):
        hosts = self.make_hosts(2)
        ranks = self.launch_on(hosts, [0, 1], "allreduce:64 allreduce:1000", "allreduce:64 allreduce:1001")
        self.expect_success(ranks, "allreduce:64")
        codes = [rank.result("allreduce:10")[0] for rank in ranks]
        self.assertIn(USAGE, codes)
        self.assertTrue(set(codes) <= {USAGE, REMOTE}, codes)

    def slow_down(self, rate, elements, least, most):
        """Host 1's wire is held to the rate both ways; host 2's is not, and nobody says so of it. least, most: Mbit/s as they are told."""
        hosts = self.make_hosts(3)
        hosts[1].slow_down(rate)
        steps = [f"allreduce:{elements} destroy"] * 2
        for places in ([0, 1], [0, 2]):
            ranks = self.launch_on(hosts, places, *steps)
            self.expect_success(ranks, "allreduce")
            self.expect_success(ranks, "destroy")
            for number, rank in enumerate(ranks):
                found = re.search(r"a slow link: eth0 \(([\d.]+)\) to rank (\d) at [\d.:]+ carries [\d.]+ MB/s \(([\d.]+) Mbit/s; TCP measures [\d.]+ at best\), of an "
                                  r"interface that .* 10000 Mbit/s; the cable", rank.log)  # fmt: skip
                if places == [0, 2]:
                    self.assertNotIn("a slow link", rank.log)
                    continue
                self.assertTrue(found, rank.log)
                self.assertEqual((found[1], int(found[2])), (hosts[number].address, 1 - number))
                self.assertTrue(least < float(found[3]) < most, found[0])

    def test_a_slow_wire_is_only_slow_and_named_with_its_rate(self):
        self.slow_down("50mbit", 4_000_000, 20, 60)

    def test_one_of_one_megabit_is_named_too(self):
        self.slow_down("1mbit", 300_000, 0.05, 1.2)

    def test_one_of_a_ring_is_named_and_no_other(self):
        """All links of a ring carry as little; the others are fast in the moments in which they carry anything."""
        hosts = self.make_hosts(4)
        hosts[1].slow_down_sending("50mbit")
        ranks = self.launch_on(hosts, [0, 1, 2, 3], *["allreduce:4000000 destroy"] * 4, NCCL_ALGO="ring")
        for step in ("allreduce", "destroy"):
            self.expect_success(ranks, step)
        self.assertRegex(ranks[1].log, rf"a slow link: eth0 \({re.escape(hosts[1].address)}\) to rank 2 at ")
        for rank in (ranks[0], ranks[2], ranks[3]):
            self.assertNotIn("a slow link", rank.log)

    def test_a_wire_of_one_megabit_is_only_slow(self):
        """A message takes as long as T and longer, behind whose queue the signs of life wait: that is no death. T is longer
        than TCP takes to send anew what the full queue dropped, when nothing comes."""
        hosts = self.make_hosts(3)
        hosts[1].slow_down("1mbit")
        ranks = self.launch_on(hosts, [0, 1, 2], *["allreduce:300000 broadcast:20000:1 destroy"] * 3, timeout_ms=2500)
        for step in ("allreduce", "broadcast", "destroy"):
            self.expect_success(ranks, step)

    def test_abort_does_not_wait_for_a_peer_that_takes_nothing(self):
        hosts = self.make_hosts(2)
        ranks = self.launch_on(hosts, [0, 1], "allreduce:64 abortafter:300 allreduce:4000000", "allreduce:64 line", timeout_ms=20000)
        code, _, _ = ranks[0].result("aborted")
        self.assertEqual(code, 0)
        began = time.monotonic()
        self.assertNotEqual(ranks[0].result("allreduce:4000000")[0], 0)
        self.assertLess(self.taken(began), 2)

    def test_abort_ends_a_call_that_connects_to_a_host_that_was_cut_off(self):
        hosts = self.make_hosts(2)
        self.expect_abort_while_it_connects(hosts, [0, 1], hosts[1].cut)

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


class EncryptedFaults(HostCase):
    """With TUTTI_SECURE=encrypt: what a dead, silent or aborted side leaves of a sealed record is no message, and no other fault."""

    def launch(self, *steps, **settings):
        ranks = super().launch(*steps, TUTTI_SECURE="encrypt", NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET", **settings)
        self.addCleanup(self.expect_encryption, ranks)
        return ranks

    def expect_encryption(self, ranks):
        for rank in ranks:
            self.assertIn("; encrypted (TUTTI_SECURE=encrypt)", rank.log)

    test_a_killed_rank_is_named_on_all_hosts = Faults.test_a_killed_rank_is_named_on_all_hosts
    test_a_frozen_rank_is_named_on_all_hosts = Faults.test_a_frozen_rank_is_named_on_all_hosts
    test_a_cut_wire_is_an_error_on_both_sides = Faults.test_a_cut_wire_is_an_error_on_both_sides
    test_abort_does_not_wait_for_a_peer_that_takes_nothing = Faults.test_abort_does_not_wait_for_a_peer_that_takes_nothing
    test_abort_ends_a_call_that_connects_to_a_host_that_was_cut_off = Faults.test_abort_ends_a_call_that_connects_to_a_host_that_was_cut_off


if __name__ == "__main__":
    bed.enter()
    unittest.main(verbosity=1)
