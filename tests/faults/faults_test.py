"""Every call returns, with success or with an error that names the rank, within T of the fault.

Ranks are processes (fault_rank) on this host; T is 500 ms. Each test kills, stops or misleads some
of them and looks at what the others say, and when. A table of times against bounds ends the run.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import unittest

RANK = sys.argv.pop(1)
TUTTI = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else None
T = 0.5
BOUND = T + 1.0  # from the fault to the last survivor's error
REMOTE, USAGE = 6, 5
TABLE = []


class Process:
    """One rank. `results` maps a step, in order, to (code, seconds, message)."""

    def __init__(self, rank, count, steps, environment):
        self.rank = rank
        self.results = []
        self.log = ""
        self.arrived = threading.Condition()
        self.child = subprocess.Popen(
            [RANK, str(rank), str(count), *steps],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.id = self.child.stdout.readline().split()[1] if rank == 0 else None
        self.reader = None

    def start(self, job):
        if self.rank > 0:
            self.say(job)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def say(self, line):
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()

    def read(self):
        for line in self.child.stdout:
            match = re.match(r"(\S+) (\d+) (\d+) (.*)", line)
            if match is None:
                self.log += line
                continue
            with self.arrived:
                self.results.append((match[1], int(match[2]), time.monotonic(), match[4].replace("\\n", "\n")))
                self.arrived.notify_all()

    def result(self, step, timeout=20):
        """(code, moment, message) of the first result of a step whose text begins so."""
        deadline = time.monotonic() + timeout
        with self.arrived:
            while True:
                for name, code, moment, message in self.results:
                    if name.startswith(step):
                        return code, moment, message
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"rank {self.rank}: no result of {step}; has {self.results}")
                self.arrived.wait(left)

    def end(self):
        self.child.kill()
        self.child.wait()
        if self.reader:
            self.reader.join()
        for stream in (self.child.stdin, self.child.stdout, self.child.stderr):
            stream.close()


class Faults(unittest.TestCase):
    def launch(self, *steps_by_rank, timeout_ms=int(T * 1000), **settings):
        environment = dict(os.environ, TUTTI_TIMEOUT_MS=str(timeout_ms), NCCL_DEBUG="WARN")
        environment.update(settings)
        count = len(steps_by_rank)
        ranks = []
        for rank, steps in enumerate(steps_by_rank):
            ranks.append(Process(rank, count, steps.split(), environment))
            self.addCleanup(ranks[-1].end)
        for rank in ranks:
            rank.start(ranks[0].id)
        for rank in ranks:
            self.assertEqual(rank.result("init")[0], 0, rank.result("init")[2])
        return ranks

    def expect(self, ranks, step, code, pattern, since, bound=BOUND):
        """All of them fail so, within the bound of the fault."""
        slowest = 0.0
        for rank in ranks:
            got, moment, message = rank.result(step)
            self.assertEqual(got, code, f"rank {rank.rank}: {message}")
            self.assertRegex(message, pattern, f"rank {rank.rank}")
            slowest = max(slowest, moment - since)
        TABLE.append((self.id().split(".")[-1], slowest, bound))
        self.assertLess(slowest, bound)

    def why(self, rank, *options):
        if TUTTI is None or not os.path.exists(TUTTI):
            self.skipTest("no tutti command")
        result = subprocess.run(
            [TUTTI, "why", str(rank.child.pid), *options], capture_output=True, text=True, timeout=20
        )
        self.assertEqual(result.stderr, "")
        self.assertLessEqual(len(result.stdout.splitlines()) if not options else 0, 10)
        return result.returncode, result.stdout

    def wait_for_why(self, rank, pattern, seconds=10):
        """A finding needs the ranks to have waited for a moment."""
        deadline = time.monotonic() + seconds
        while True:
            code, text = self.why(rank)
            if re.search(pattern, text) or time.monotonic() > deadline:
                self.assertRegex(text, pattern)
                return code, text
            time.sleep(0.05)

    # ---- death

    def test_a_killed_rank_is_named_by_all_survivors(self):
        ranks = self.launch("loop", "loop", "loop", "loop")
        time.sleep(0.3)
        killed = time.monotonic()
        ranks[2].child.kill()
        pid = ranks[2].child.pid
        self.expect([ranks[0], ranks[1], ranks[3]], "loop", REMOTE, rf"rank 2 \(.*, pid {pid}\) died while rank", killed)

    def test_a_killed_rank_of_each_algorithm(self):
        for algorithm in ("ring", "tree", "oneshot"):
            with self.subTest(algorithm):
                ranks = self.launch("loop", "loop", "loop", NCCL_ALGO=algorithm)
                time.sleep(0.2)
                killed = time.monotonic()
                ranks[1].child.kill()
                self.expect([ranks[0], ranks[2]], "loop", REMOTE, "rank 1 .* died while rank", killed)

    def test_an_exit_without_destroy_is_told_from_a_death(self):
        ranks = self.launch("allreduce:8 loop", "allreduce:8 sleep:200 exit", "allreduce:8 loop")
        ranks[1].result("sleep")
        self.expect([ranks[0], ranks[2]], "loop", REMOTE, r"rank 1 \(.*\) exited without ncclCommDestroy", time.monotonic())

    def test_a_rank_that_has_destroyed_its_communicator_is_not_waited_for(self):
        ranks = self.launch("allreduce:8 allreduce:9", "allreduce:8 destroy sleep:5000", "allreduce:8 allreduce:9")
        ranks[1].result("destroy")
        self.expect([ranks[0], ranks[2]], "allreduce:9", REMOTE, "rank 1 .* destroyed its communicator", time.monotonic())

    # ---- delay

    def test_a_missing_rank_is_waited_for_while_it_lives(self):
        ranks = self.launch("allreduce:8", f"sleep:{int(T * 2500)} allreduce:8", "allreduce:8")
        for rank in ranks:
            self.assertEqual(rank.result("allreduce")[0], 0, rank.result("allreduce")[2])
        for rank in (ranks[0], ranks[2]):
            rank.child.wait()
            rank.reader.join()
            self.assertEqual(len(re.findall("rank 1 .* has not called AllReduce #1", rank.log)), 1, rank.log)

    def test_a_rank_that_has_finalized_its_communicator_is_not_waited_for(self):
        ranks = self.launch("allreduce:8 allreduce:9", "allreduce:8 finalize sleep:5000", "allreduce:8 allreduce:9")
        ranks[1].result("finalize")
        text = "rank 1 .* has finalized its communicator while rank . waits for it in AllReduce #2"
        self.expect([ranks[0], ranks[2]], "allreduce:9", REMOTE, text, time.monotonic())

    def test_a_rank_that_stops_for_less_than_the_time_is_forgiven(self):
        ranks = self.launch("loop", "loop", timeout_ms=3000)
        for _ in range(3):
            ranks[1].child.send_signal(signal.SIGSTOP)
            time.sleep(0.4)
            ranks[1].child.send_signal(signal.SIGCONT)
            time.sleep(0.1)
        self.assertEqual([len(rank.results) for rank in ranks], [1, 1])

    def test_a_rank_that_stops_for_longer_is_given_up_and_told_so(self):
        ranks = self.launch("allreduce:8 loop", "allreduce:8 loop", "allreduce:8 loop")
        for rank in ranks:
            rank.result("allreduce")
        stopped = time.monotonic()
        ranks[1].child.send_signal(signal.SIGSTOP)
        text = r"rank 1 \(.*\) not responding for \S+ s \(alive, stopped\)"
        self.expect([ranks[0], ranks[2]], "loop", REMOTE, text, stopped)
        ranks[1].child.send_signal(signal.SIGCONT)
        self.expect([ranks[1]], "loop", REMOTE, "given up by the others: " + text, time.monotonic())

    # ---- different calls

    def mismatch(self, ranks, step, *patterns):
        began = time.monotonic()
        for pattern in patterns:
            self.expect(ranks, step, USAGE, pattern, began)

    def test_different_counts_end_in_a_table(self):
        ranks = self.launch("allreduce:8", "allreduce:9", "allreduce:8")
        self.mismatch(ranks, "allreduce", "collective #1, rank 1 .* differs", r"\n +1  AllReduce +9 +float +sum", r"\n +2  AllReduce +8 ")

    def test_different_types_end_in_a_table(self):
        ranks = self.launch("allreduce:8:int", "allreduce:8:float")
        self.mismatch(ranks, "allreduce", r"\n +0  AllReduce +8 +int32", r"\n +1  AllReduce +8 +float")

    def test_different_operations_end_in_a_table(self):
        ranks = self.launch("allreduce:8:float:max", "allreduce:8:float:sum")
        self.mismatch(ranks, "allreduce", r"\n +0 .* max ", r"\n +1 .* sum ")

    def test_different_roots_end_in_a_table(self):
        ranks = self.launch("broadcast:8:0 allreduce:4", "broadcast:8:1 allreduce:4", "broadcast:8:0 allreduce:4")
        self.mismatch(ranks[1:], "allreduce", r"\n +1  Broadcast +8 +float +- +1", r"\n +2  Broadcast +8 +float +- +0")

    def test_different_order_ends_in_a_table(self):
        ranks = self.launch("allreduce:8 allreduce:4 broadcast:4:0", "allreduce:8 broadcast:4:0 allreduce:4")
        began = time.monotonic()
        self.expect([ranks[0]], "allreduce:4", USAGE, r"collective #2(.|\n)*\n +0  AllReduce(.|\n)*\n +1  Broadcast", began)

    def test_sizes_of_a_send_and_its_receive_are_named(self):
        ranks = self.launch("send:1:100 recv:1:1", "recv:0:200")
        self.expect([ranks[1]], "recv", USAGE, r"rank 0 .* sends 100 elements of float \(400 bytes\), but rank 1 .* receives 200", time.monotonic())

    # ---- circles

    def test_receives_that_wait_for_each_other_end_as_a_circle(self):
        ranks = self.launch("recv:1:8", "recv:2:8", "recv:0:8")
        began = time.monotonic()
        self.expect(ranks, "recv", USAGE, r"in a circle(.|\n)*rank 0 waits for a .* rank 1 in Recv(.|\n)*rank 2 waits for a .* rank 0", began)

    def test_large_sends_that_wait_for_each_other_end_as_a_circle(self):
        ranks = self.launch("send:1:4000000", "send:0:4000000")
        self.expect(ranks, "send", USAGE, "in a circle", time.monotonic())

    def test_a_send_that_nobody_receives_ends_as_a_circle(self):
        ranks = self.launch("send:1:4000000", "allreduce:8")
        self.expect([ranks[0]], "send", USAGE, "in a circle(.|\n)*rank 1 waits for .* rank 0 in AllReduce #1", time.monotonic())

    # ---- tutti why

    def test_why_names_a_rank_that_has_not_called(self):
        ranks = self.launch("allreduce:8 allreduce:8", "allreduce:8 sleep:60000", "allreduce:8 allreduce:8", timeout_ms=60000)
        code, text = self.wait_for_why(ranks[0], r"rank 1 \(.*\) has not called AllReduce #2")
        self.assertEqual(code, 1)
        self.assertRegex(text, "1 operation behind")
        self.assertRegex(text, "its last call was AllReduce #1 .*, done")
        data = json.loads(self.why(ranks[0], "--json")[1])
        self.assertEqual(data["communicators"][0]["guilty_rank"], 1)

    def test_why_finds_nothing_wrong_where_nothing_is(self):
        ranks = self.launch("line", "line", timeout_ms=60000)
        code, text = self.why(ranks[0])
        self.assertEqual(code, 0, text)
        self.assertIn("nothing wrong", text)

    def test_why_knows_a_process_that_is_not_there(self):
        ranks = self.launch("line")
        ranks[0].child.kill()
        ranks[0].child.wait()
        result = subprocess.run([TUTTI, "why", str(ranks[0].child.pid)], capture_output=True, text=True, timeout=20)
        self.assertEqual(result.returncode, 3, result.stdout)

    def test_why_refuses_nonsense(self):
        self.assertEqual(subprocess.run([TUTTI, "why", "--nonsense"], capture_output=True, timeout=20).returncode, 2)

    def test_why_reports_the_verdict_on_different_orders(self):
        ranks = self.launch("allreduce:4 line", "broadcast:4:0 allreduce:4 line")
        ranks[0].result("allreduce")
        code, text = self.why(ranks[0])
        self.assertEqual(code, 1)
        self.assertRegex(text, "call different things as collective #1")

    def test_why_shows_a_send_that_nobody_receives(self):
        ranks = self.launch("send:1:4000000", "sleep:60000", timeout_ms=60000)
        code, text = self.wait_for_why(ranks[1], "rank 0 waits for .* rank 1 in Send")
        self.assertEqual(code, 1)
        self.assertRegex(text, r"rank 1 \(.*\) is late: it has called nothing yet")

    def test_why_names_a_dead_rank_by_a_survivor(self):
        ranks = self.launch("allreduce:8 line", "allreduce:8 sleep:60000", timeout_ms=60000)
        ranks[0].result("allreduce")
        ranks[1].child.kill()
        ranks[1].child.wait()
        code, text = self.wait_for_why(ranks[0], r"rank 1 \(.*\) died")
        self.assertEqual(code, 1)
        self.assertRegex(text, "AllReduce #1")

    def test_why_names_a_stopped_rank_and_leaves_it_so(self):
        ranks = self.launch("loop", "loop", timeout_ms=60000)
        ranks[1].child.send_signal(signal.SIGSTOP)
        code, text = self.wait_for_why(ranks[1], r"rank 1 \(.*\) is stopped")
        self.assertEqual(code, 1)
        with open(f"/proc/{ranks[1].child.pid}/stat") as stat:
            self.assertEqual(stat.read().rsplit(")", 1)[1].split()[0], "T")


def print_table():
    if not TABLE:
        return
    width = max(len(name) for name, _, _ in TABLE)
    print(f"\n{'fault':<{width}}  seconds  bound", file=sys.stderr)
    for name, seconds, bound in TABLE:
        print(f"{name:<{width}}  {seconds:7.3f}  {bound:5.3f}", file=sys.stderr)


if __name__ == "__main__":
    program = unittest.main(verbosity=1, exit=False)
    print_table()
    sys.exit(not program.result.wasSuccessful())
