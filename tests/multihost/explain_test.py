"""Ranks on several hosts take the algorithms, rings and trees that `tutti explain` says they would."""

import json
import os
import re
import subprocess
import unittest

import bed
from host_case import HostCase

# The step of a rank, with {} elements a rank; the collective's name, and how many blocks of so many elements the vector has.
CALLS = {
    "allreduce:{}": ("AllReduce", lambda ranks: 1),
    "allgather:{}": ("AllGather", lambda ranks: ranks),
    "reducescatter:{}": ("ReduceScatter", lambda ranks: ranks),
    "alltoall:{}": ("AlltoAll", lambda ranks: ranks),
    "broadcast:{}:1": ("Broadcast", lambda ranks: 1),
    "reduce:{}:1": ("Reduce", lambda ranks: 1),
}


def explained(collective, places, count, root, algorithm):
    """What explain says of each rank: (algorithm, reason, whom it receives from, whom it sends to)."""
    found = []
    for rank in range(len(places)):
        words = [os.environ["TUTTI"], "explain", collective, "-n", str(len(places)), "--hosts", str(max(places) + 1), "-b", str(4 * count), "--rank", str(rank),
                 "--root", str(root), "--json"]  # fmt: skip
        said = json.loads(subprocess.run(words, capture_output=True, text=True, check=True, env=os.environ | algorithm).stdout)
        steps = " ".join(said["program"]["steps"])
        found.append((said["algorithm"], said["reason"], set(re.findall(r"link<-(\d+)", steps)), set(re.findall(r"link->(\d+)", steps))))
    return found


@unittest.skipUnless(os.environ.get("TUTTI"), "the tutti command is not built")
class AsExplained(HostCase):
    def run_over(self, places, call, counts, **algorithm):
        """Each rank's links, as made for these calls, are those of the explained programs and no others."""
        hosts = self.make_hosts(max(places) + 1)
        steps = " ".join(call.format(count) for count in counts) + " destroy"
        ranks = self.launch_on(hosts, places, *[steps] * len(places), timeout_ms=20_000, NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="ALL", **algorithm)
        self.expect_success(ranks, "destroy")
        collective, blocks = CALLS[call]
        said = [explained(collective, places, count * blocks(len(places)), int(call.endswith(":1")), algorithm) for count in counts]
        made = {pair for rank in ranks for pair in re.findall(r"link (\d+) <- (\d+) lane", rank.log)}
        planned = {(str(rank.rank), peer) for each in said for rank in ranks for peer in each[rank.rank][2]}
        self.assertEqual(made, planned)
        self.assertEqual(planned, {(peer, str(rank.rank)) for each in said for rank in ranks for peer in each[rank.rank][3]})
        for rank in ranks:
            taken = re.findall(collective + r": \d+ elements of float.* -> (\w+) \((.*)\)$", rank.log, re.MULTILINE)
            self.assertEqual(taken, [each[rank.rank][:2] for each in said], rank.log)
        return {pair[0] for each in said for pair in each}

    def test_the_ring_of_three_hosts(self):
        self.assertEqual(self.run_over([0, 0, 1, 1, 2, 2], "allreduce:{}", [50_000], NCCL_ALGO="ring"), {"ring"})

    def test_the_trees_of_four_hosts(self):
        self.assertEqual(self.run_over([0, 1, 2, 3], "allreduce:{}", [50_000], NCCL_ALGO="tree"), {"tree"})

    def test_rooted_trees_of_two_hosts(self):
        self.assertEqual(self.run_over([0, 0, 1, 1], "broadcast:{}:1", [50_000], NCCL_ALGO="tree"), {"tree"})

    def test_what_is_chosen_on_two_hosts(self):
        self.run_over([0, 0, 1, 1], "allreduce:{}", [10, 200, 10_000, 1_000_000])

    def test_what_is_chosen_on_three_hosts(self):
        for call, counts in (("allgather:{}", [10, 200_000]), ("reduce:{}:1", [20_000, 200_000])):
            with self.subTest(call=call):
                self.run_over([0, 1, 2], call, counts)
                self.doCleanups()

    def test_what_is_chosen_on_four_hosts(self):
        for call in ("reducescatter:{}", "alltoall:{}"):
            with self.subTest(call=call):
                self.run_over([0, 1, 2, 3], call, [10, 100_000])
                self.doCleanups()


if __name__ == "__main__":
    bed.enter()
    unittest.main(verbosity=1)
