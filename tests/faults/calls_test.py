"""Ranks that call different things, or wait for each other in a circle, are told so, with a table or the circle."""

import time
import unittest

from harness import BOUND, REMOTE, USAGE, FaultCase, HostEach

CIRCLE = "in a circle"


class Different(FaultCase):
    def mismatch(self, ranks, step, *patterns):
        began = time.monotonic()
        for pattern in patterns:
            self.expect(ranks, step, USAGE, pattern, began)

    def test_counts_end_in_a_table(self):
        ranks = self.launch("allreduce:8", "allreduce:9", "allreduce:8")
        self.mismatch(ranks, "allreduce", "collective #1, rank 1 .* differs", r"\n +1  AllReduce +9 +float +sum", r"\n +2  AllReduce +8 ")

    def test_types_end_in_a_table(self):
        ranks = self.launch("allreduce:8:int", "allreduce:8:float")
        self.mismatch(ranks, "allreduce", r"\n +0  AllReduce +8 +int32", r"\n +1  AllReduce +8 +float")

    def test_operations_end_in_a_table(self):
        ranks = self.launch("allreduce:8:float:max", "allreduce:8:float:sum")
        self.mismatch(ranks, "allreduce", r"\n +0 .* max ", r"\n +1 .* sum ")

    def test_roots_end_in_a_table(self):
        steps = ("broadcast:8:0 allreduce:4", "broadcast:8:1 allreduce:4", "broadcast:8:0 allreduce:4")
        # So that each rank is sent something that it does not expect.
        ranks = self.launch(*steps, NCCL_ALGO="broadcast:direct;allreduce:oneshot")
        self.mismatch(ranks, "allreduce", r"\n +1  Broadcast +8 +float +- +1", r"\n +[02]  Broadcast +8 +float +- +0")

    def test_order_ends_in_a_table(self):
        ranks = self.launch("allreduce:8 allreduce:4 broadcast:4:0", "allreduce:8 broadcast:4:0 allreduce:4")
        began = time.monotonic()
        text = r"collective #2(.|\n)*\n +0  AllReduce(.|\n)*\n +1  Broadcast"
        self.expect([ranks[0]], "allreduce:4", USAGE, text, began)
        self.expect([ranks[1]], "allreduce:4", USAGE, text, began, name="order ends in a table, also on the other rank")

    def test_sizes_of_a_send_and_its_receive_are_named(self):
        ranks = self.launch("send:1:100 recv:1:1", "recv:0:200")
        text = r"rank 0 .* sends 100 elements of float \(400 bytes\), but rank 1 .* receives 200"
        self.expect(ranks, "recv", USAGE, text, time.monotonic())

    def test_an_extra_call_waits_for_a_rank_that_has_left(self):
        ranks = self.launch("allreduce:8 allreduce:9", "allreduce:8 finalize sleep:5000")
        ranks[1].result("finalize")
        self.expect([ranks[0]], "allreduce:9", REMOTE, r"rank 1 .* has finalized .* AllReduce #2", time.monotonic())


class Circles(FaultCase):
    def test_of_receives(self):
        ranks = self.launch("recv:1:8", "recv:2:8", "recv:0:8")
        text = CIRCLE + r"(.|\n)*rank 0 waits for a .* rank 1 in Recv(.|\n)*rank 2 waits for a .* rank 0"
        self.expect(ranks, "recv", USAGE, text, time.monotonic())

    def test_of_large_sends(self):
        ranks = self.launch("send:1:4000000", "send:0:4000000")
        self.expect(ranks, "send", USAGE, CIRCLE, time.monotonic())

    def test_of_large_sends_of_four_ranks(self):
        ranks = self.launch(*[f"send:{(rank + 1) % 4}:4000000" for rank in range(4)])
        text = CIRCLE + "".join(rf"(.|\n)*rank {rank} waits for .* rank {(rank + 1) % 4} in Send" for rank in range(4))
        self.expect(ranks, "send", USAGE, text, time.monotonic())

    def test_of_a_send_that_nobody_receives(self):
        ranks = self.launch("send:1:4000000", "allreduce:8")
        text = CIRCLE + "(.|\n)*rank 1 waits for .* rank 0 in AllReduce #1"
        self.expect([ranks[0]], "send", USAGE, text, time.monotonic())

    def test_of_a_group_that_is_not_paired(self):
        ranks = self.launch("group send:1:4000000 recv:1:8 endgroup", "group recv:0:4000000 endgroup recv:0:8")
        text = CIRCLE + r"(.|\n)*rank 0 waits for a .* rank 1 in Recv(.|\n)*rank 1 waits for a .* rank 0 in Recv"
        self.expect([ranks[0]], "endgroup", USAGE, text, time.monotonic())

    def test_of_one_rank_alone_is_refused_at_once(self):
        ranks = self.launch("group send:0:8 endgroup allreduce:8", "allreduce:8")
        text = "rank 0 has a send with itself but no matching receive in this group"
        self.expect([ranks[0]], "endgroup", USAGE, text, time.monotonic())
        self.expect_success(ranks, "allreduce")

    def test_of_messages_on_their_way_are_none(self):
        exchange = "group send:{0}:4000000 recv:{0}:4000000 endgroup"
        ranks = self.launch(exchange.format(1), exchange.format(0))
        self.expect_success(ranks, "endgroup")


class DifferentBetweenHosts(HostEach, Different):
    # What a rank has finalized, its link's end tells, without its last call.
    def test_an_extra_call_waits_for_a_rank_that_has_left(self):
        ranks = self.launch("allreduce:8 allreduce:9", "allreduce:8 finalize destroy sleep:5000")
        ranks[1].result("destroy")
        self.expect([ranks[0]], "allreduce:9", REMOTE, r"rank 1 .* while rank 0 waited for it in AllReduce", time.monotonic())

    def test_roots_that_nobody_serves(self):
        ranks = self.launch("broadcast:8:1", "broadcast:8:0")
        self.mismatch(ranks, "broadcast", r"\n +0  Broadcast +8 +float +- +1", r"\n +1  Broadcast +8 +float +- +0")


class CirclesBetweenHosts(HostEach, Circles):
    def test_of_a_collective_and_a_receive(self):
        ranks = self.launch("allreduce:8", "recv:0:8")
        text = CIRCLE + r"(.|\n)*rank 0 waits for a .* rank 1 in AllReduce(.|\n)*rank 1 waits for a .* rank 0 in Recv"
        self.expect([ranks[0]], "allreduce", USAGE, text, time.monotonic())
        self.expect([ranks[1]], "recv", USAGE, text, time.monotonic(), name="of a collective and a receive, the receive")


class Settings(FaultCase):
    """Different settings of the ranks: agreed upon at init, or a clear error with the variable's name."""

    def different(self, *environments, **options):
        steps = ["init times:3:allreduce:100000"] * len(environments)
        return self.launch(*steps, expect_init=False, each=environments, **options)

    def test_buffer_sizes_become_the_smallest(self):
        ranks = self.different({"NCCL_BUFFSIZE": "65536"}, {"NCCL_BUFFSIZE": "1048576"}, {})
        self.expect_success(ranks, "times")

    def test_algorithms_that_differ_are_refused_by_name(self):
        ranks = self.different({"NCCL_ALGO": "ring"}, {"NCCL_ALGO": "tree"})
        self.expect(ranks, "init", USAGE, r"NCCL_ALGO differs.*rank", time.monotonic())

    def test_checksums_on_one_side_only_are_refused_by_name(self):
        ranks = self.different({"TUTTI_NET_CHECKSUM": "1"}, {})
        self.expect(ranks, "init", USAGE, r"TUTTI_NET_CHECKSUM differs.*rank", time.monotonic())

    def test_the_shorter_patience_counts_for_the_rank_that_has_it(self):
        began = time.monotonic()
        ranks = self.launch("init", "sleep:5000 init", expect_init=False, each=({"TUTTI_TIMEOUT_MS": str(300 * self.patience)}, {"TUTTI_TIMEOUT_MS": "20000"}))
        self.expect([ranks[0]], "init", REMOTE, r"rank.* 1\b", began)

    def test_shared_memory_switched_off_leaves_the_network(self):
        ranks = self.launch("allreduce:8 allreduce:100000 destroy", "allreduce:8 allreduce:100000 destroy", NCCL_SHM_DISABLE="1", timeout_ms=5000)
        self.expect_success(ranks, "allreduce:100000")
        self.expect_success(ranks, "destroy")


if __name__ == "__main__":
    unittest.main(verbosity=1)
