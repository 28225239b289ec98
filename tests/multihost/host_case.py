"""What tests of ranks on several hosts have in common."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "faults"))

import bed  # noqa: E402
from harness import LIMIT, REMOTE, SYSTEM, USAGE, FaultCase  # noqa: E402, F401

# The time-out of faults, in seconds. Where processes queue for CPUs, a rank that is silent for a second may just have had
# no turn.
T = min(4.0, max(1.0, os.getloadavg()[0] / os.cpu_count()))
BOUND = T + 4  # T, and a margin for a loaded machine: what is cut or frozen is noticed by the clock alone


class HostCase(FaultCase):
    usual_T = T
    whole_bound = 120.0  # they make hosts, and move data over slow wires

    def make_hosts(self, count):
        hosts = bed.Hosts(count)
        self.addCleanup(hosts.end)
        return hosts

    def launch_on(self, hosts, places, *steps_by_rank, **settings):
        """Rank r on host places[r]."""
        prefixes = [hosts[place].prefix for place in places]
        settings.setdefault("timeout_ms", int(T * 1000))
        return self.launch(*steps_by_rank, prefixes=prefixes, **settings)

    def expect_survivors(self, ranks):
        """They leave the dead out, and the new communicator works: steps `shrink:... allreduce:...`."""
        self.expect_success(ranks, "shrink")
        self.expect_success(ranks, "allreduce")
