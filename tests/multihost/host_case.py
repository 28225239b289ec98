"""What tests of ranks on several hosts have in common."""

import os
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "faults"))

import bed  # noqa: E402
from harness import LIMIT, RANK, REMOTE, SYSTEM, USAGE, FaultCase  # noqa: E402, F401

# The time-out of faults, in seconds. Where processes queue for CPUs, a rank that is silent for a second may just have had
# no turn.
T = min(4.0, max(1.0, os.getloadavg()[0] / os.cpu_count()))
BOUND = T + 4  # T, and a margin for a loaded machine: what is cut or frozen is noticed by the clock alone


def between(guilty):
    """Of errors that name a pair of ranks, of which this is one: "rank 2 (...) ... while rank 0 waited for it"."""
    other = rf"rank (?!{guilty}\b)\d+"
    return rf"rank {guilty} \(.*\).*\b{other}\b|{other} \(.*\).*\brank {guilty}\b"


def seconds_of_threads(pid):
    """By thread: its name, and the CPU time it has used."""
    found = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/stat") as file:
            name, fields = re.match(r"\d+ \((.*)\) (.*)", file.read()).groups()
        user, system = fields.split()[11:13]
        found[thread] = (name, (int(user) + int(system)) / os.sysconf("SC_CLK_TCK"))
    return found


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

    def expect_patience(self, hosts, **settings):
        """Rank 1 comes late and leaves more unread than the way holds, so that rank 0's system has no room for longer than T."""
        steps = "broadcast:16000000:0 destroy"
        late = f"sleep:{int(4 * self.own_T * 1000)}"
        ranks = self.launch_on(hosts, [0, 1], f"allreduce:64 {steps}", f"allreduce:64 {late} {steps}", **settings)
        for step in ("allreduce:64", "broadcast", "destroy"):
            self.expect_success(ranks, step)
        return ranks

    def expect_abort_while_it_connects(self, hosts, places, cut, **settings):
        """The last rank has offered its link, and its host is cut off before rank 0's first message to it: rank 0 hears an abort."""
        last = len(places) - 1
        steps = [f"line abortafter:300 send:{last}:1000", *["line"] * (last - 1), "recv:0:1000"]
        ranks = self.launch_on(hosts, places, *steps, timeout_ms=20000, **settings)
        self.pause(0.3)  # the offer is there
        cut()
        ranks[0].say("go")
        code, began, milliseconds = ranks[0].result("aborted")
        self.assertEqual(code, 0)
        self.assertNotEqual(ranks[0].result("send")[0], 0)
        self.keep_time(self.taken(began - int(milliseconds) / 1000, ranks[0].result("send")[1]), 1)
        return ranks

    def expect_survivors(self, ranks):
        """They leave the dead out, and the new communicator works: steps `shrink:... allreduce:...`."""
        self.expect_success(ranks, "shrink")
        self.expect_success(ranks, "allreduce")

    def threads_of_idle(self, ranks):
        """By rank the names of its threads, none of which uses more than 5 % of a core while nothing is called."""
        self.pause(0.2)  # whatever waits for the next call has gone to sleep
        before = [seconds_of_threads(rank.child.pid) for rank in ranks]
        span = 2.0
        time.sleep(span)
        for rank, spent in zip(ranks, before):
            for thread, (name, now) in seconds_of_threads(rank.child.pid).items():
                share = (now - spent.get(thread, (name, 0))[1]) / span
                self.assertLessEqual(share, 0.05, f"{name} of rank {rank.rank} uses {share:.0%} of a core while nothing is called")
        return [[name for name, _ in threads.values()] for threads in before]
