"""Sends between hosts by way of the rank of the own host that is beside the receiver's adapter (NCCL_P2P_PXN_LEVEL): what arrives,
over which wire's network, and who is named when something happens on the way."""

import os
import pathlib
import re
import signal
import tempfile
import time
import unittest

import bed
from host_case import BOUND, REMOTE, USAGE, HostCase

RELAYED = {"NCCL_P2P_PXN_LEVEL": "2", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "ALL"}


def ways(ranks):
    """{(sender, receiver): whose process carries it}"""
    return {(int(found[0]), int(found[1])): int(found[2])
            for rank in ranks for found in re.findall(r"what rank (\d+) sends to rank (\d+) goes by way of rank (\d+)", rank.log)}  # fmt: skip


def by_seat(seats):
    return [{"NCCL_SOCKET_IFNAME": f"=eth{seat}"} for seat in range(seats)] * 2


class Relays(HostCase):
    def two_hosts(self, seats):
        """As many wires and ranks each."""
        hosts = self.make_hosts(2)
        hosts.add_wires(seats - 1)
        return hosts

    def launch_seats(self, hosts, seats, *steps, **settings):
        return self.launch_on(hosts, [0] * seats + [1] * seats, *steps, each=by_seat(seats), **(RELAYED | settings))

    def test_everybody_sends_to_everybody_by_way_of_the_receivers_seat(self):
        seats = 4
        hosts = self.two_hosts(seats)
        everybody = range(2 * seats)
        for elements in (3, 5_000, 300_001):
            with self.subTest(elements=elements):
                exchanges = [" ".join(f"send:{peer}:{elements} recv:{peer}:{elements}" for peer in everybody if peer != rank) for rank in everybody]
                ranks = self.launch_seats(hosts, seats, *[f"group {each} endgroup allreduce:64" for each in exchanges], timeout_ms=20000)
                self.expect_success(ranks, "endgroup")
                self.expect_success(ranks, "allreduce")
                expected = {(sender, receiver): sender // seats * seats + receiver % seats for sender in everybody for receiver in everybody
                            if sender // seats != receiver // seats and sender % seats != receiver % seats}  # fmt: skip
                self.assertEqual(ways(ranks), expected)

    def test_nobody_relays_where_it_is_forbidden_or_not_needed(self):
        hosts = self.two_hosts(2)
        for settings in ({"NCCL_PXN_DISABLE": "1"}, {"NCCL_P2P_PXN_LEVEL": "0"}, {"NCCL_P2P_PXN_LEVEL": "1"}):
            with self.subTest(settings):
                ranks = self.launch_seats(hosts, 2, "send:3:5000", "line", "line", "recv:0:5000", **settings)
                self.expect_success([ranks[0]], "send")
                self.expect_success([ranks[3]], "recv")
                self.assertEqual(ways(ranks), {})

    def test_who_carries_leaves_the_cpu_to_others_while_nothing_comes(self):
        hosts = self.two_hosts(2)
        ranks = self.launch_seats(hosts, 2, "send:3:50000 line allreduce:9", *["line allreduce:9"] * 2, "recv:0:50000 line allreduce:9")
        self.expect_success([ranks[0]], "send")
        self.expect_success([ranks[3]], "recv")
        self.assertEqual(ways(ranks), {(0, 3): 1})
        self.assertIn("tutti-relay", self.threads_of_idle(ranks)[1])
        for rank in ranks:
            rank.say("go")
        self.expect_success(ranks, "allreduce:9")

    def test_abort_ends_a_call_whose_carrier_connects_to_a_host_that_was_cut_off(self):
        hosts = self.two_hosts(2)

        def cut():
            hosts[1].cut()
            bed.run("ip", "link", "set", hosts[1].further_ports[0], "nomaster")

        self.expect_abort_while_it_connects(hosts, [0, 0, 1, 1], cut, each=by_seat(2), **RELAYED)

    def test_sizes_that_differ_are_an_error_of_both(self):
        hosts = self.two_hosts(2)
        ranks = self.launch_seats(hosts, 2, "send:3:100 send:3:9000000", "line", "line", "recv:0:100 recv:0:9000001")
        self.expect_success([ranks[0]], "send:3:100")
        code, _, message = ranks[3].result("recv:0:9000001")
        self.assertEqual(code, USAGE, message)
        self.assertIn("rank 0", message)
        code, _, message = ranks[0].result("send:3:9000000")
        self.assertIn(code, (USAGE, REMOTE), message)
        self.assertIn("rank 3", message)
        self.assertEqual(ways(ranks), {(0, 3): 1})

    def expect_named(self, struck, number, watchers, what):
        """One of three gets the signal amid what rank 0 sends to rank 3 by way of rank 1."""
        hosts = self.two_hosts(2)
        ranks = self.launch_seats(hosts, 2, "loop:send:3:200000", "line", "line", "loop:recv:0:200000")
        self.wait_until_underway([ranks[0], ranks[3]])
        began = time.monotonic()
        ranks[struck].child.send_signal(number)
        self.expect([ranks[watcher] for watcher in watchers], "loop", REMOTE, rf"rank {struck} \(", began, BOUND, what)

    def test_a_carrier_that_is_killed_is_named_on_both_sides(self):
        self.expect_named(1, signal.SIGKILL, (0, 3), "a carrier that is killed")

    def test_a_carrier_that_is_frozen_is_named_on_both_sides(self):
        self.expect_named(1, signal.SIGSTOP, (0, 3), "a carrier that is frozen")

    def test_a_sender_that_is_killed_is_named_not_its_carrier(self):
        self.expect_named(0, signal.SIGKILL, (3,), "a sender whose messages are carried is killed")

    def test_a_receiver_that_is_killed_is_named_not_the_carrier(self):
        self.expect_named(3, signal.SIGKILL, (0,), "a receiver to whom messages are carried is killed")

    def test_a_process_carries_on_whatever_its_rank_does(self):
        """It computes, aborts its communicator, and ends: what is under way arrives first."""
        hosts = self.two_hosts(2)
        for steps in (f"sleep:{int(3 * self.own_T * 1000)}", "abort sleep:2000", "destroy sleep:500 exit"):
            with self.subTest(steps):
                ranks = self.launch_seats(hosts, 2, "broadcast:8:0 send:3:64 line times:50:send:3:50000 destroy", f"broadcast:8:0 {steps}", "broadcast:8:0 line",
                                          "broadcast:8:0 recv:0:64 line times:50:recv:0:50000 destroy")  # fmt: skip
                self.expect_success([ranks[0]], "send")
                self.expect_success(ranks, "broadcast")
                if steps[0] != "s":
                    self.expect_success([ranks[1]], steps.split()[0])
                for rank in (ranks[0], ranks[3]):
                    rank.say("go")
                self.expect_success([ranks[0], ranks[3]], "times")
                self.expect_success([ranks[0], ranks[3]], "destroy")
                self.assertEqual(ways(ranks), {(0, 3): 1})

    def test_profilers_of_both_ends_are_told_of_each_message_that_another_process_carries(self):
        hosts = self.two_hosts(2)
        told = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()), "told")
        # The answer says that the carrier has given all to the network.
        ranks = self.launch_seats(hosts, 2, "times:3:send:3:200000 recv:3:1 destroy", "line", "line", "times:3:recv:0:200000 send:0:1 destroy",
                                  NCCL_PROFILER_PLUGIN=os.environ["PROFILER"], FAKE_PROFILER_FILE=told)  # fmt: skip
        self.expect_success([ranks[0], ranks[3]], "times")
        self.expect_success([ranks[0], ranks[3]], "destroy")
        self.assertEqual(ways(ranks), {(0, 3): 1, (3, 0): 2})
        for rank, transfer in ((0, "peer 3 send 1"), (3, "peer 0 send 0")):
            with self.subTest(rank=rank):
                lines = told.with_suffix(f".{rank}").read_text()
                transfers = re.findall(rf"start (\d+) kind 8 .* {transfer} steps (\d+)", lines)
                messages = [number for parent, _ in transfers for number in re.findall(rf"start (\d+) kind 16 parent {parent} ", lines)]
                self.assertEqual(len(transfers), 3)
                self.assertEqual(len(messages), sum(int(steps) for _, steps in transfers))
                largest = [max(map(int, re.findall(rf"state {number} is \d+ bytes (\d+)", lines))) for number in messages]
                self.assertEqual(sum(largest), 3 * 200_000 * 4)
                self.assertFalse(re.findall("late|twice|parent -1", lines))


if __name__ == "__main__":
    bed.enter()
    unittest.main(verbosity=1)
