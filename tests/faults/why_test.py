"""tutti why: the right verdict on staged hangs, in at most ten lines, and the same as JSON."""

import json
import os
import re
import signal
import subprocess
import time
import unittest

from harness import LIMIT, TUTTI, FaultCase, HostEach, last_call

BOUND = 3.0  # from the hang to the right verdict
PATIENCE = 60000  # ms: nobody gives up meanwhile

# What ranks do, and what is to be said of it, on one host and between hosts.
CIRCLE = ("send:1:4000000", "send:2:4000000", "send:0:4000000")
CIRCLE_SAID = (
    "in a circle",
    "rank 0 waits for .* rank 1 in Send",
    "rank 1 waits for .* rank 2 in Send",
    "rank 2 waits for .* rank 0 in Send",
    "one group",
)
UNMET_SEND = ("send:1:4000000", "line")
UNMET_SEND_SAID = (
    r"rank 0 waits for .* rank 1 in Send \(4000000 of float, to rank 1\)",
    r"rank 1 \(.*\) has not called Recv from rank 0 to meet that rank's Send",
)
MISSING = ("allreduce:8 allreduce:8", "allreduce:8 line", "allreduce:8 allreduce:8")
MISSING_SAID = (r"rank 1 \(.*\) has not called AllReduce #2", "1 operation behind", "its last call was AllReduce #1 .*, done")


def holds_board(pid):
    folder = f"/proc/{pid}/fd"
    return any(os.readlink(f"{folder}/{each}").startswith("/memfd:tutti-rank-board") for each in os.listdir(folder))


class Asking(FaultCase):
    def why(self, rank, *options):
        if not TUTTI or not os.path.exists(TUTTI):
            self.skipTest("no tutti command")
        result = subprocess.run([TUTTI, "why", str(rank.child.pid), *options], capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(result.stderr, "")
        return result.returncode, result.stdout

    def ask_until(self, is_wanted, rank, *options):
        """The first such answer, or the last."""
        deadline = time.monotonic() + 10 * self.patience
        while True:
            code, text = self.why(rank, *options)
            if is_wanted(text) or time.monotonic() > deadline:
                return code, text
            time.sleep(0.05)

    def expect_verdict(self, rank, *patterns, guilty=None):
        """All patterns in one answer, and the same in JSON; a finding needs the ranks to have waited for a moment."""
        began = time.monotonic()
        code, text = self.ask_until(lambda text: all(re.search(pattern, text) for pattern in patterns), rank)
        for pattern in patterns:
            self.assertRegex(text, pattern)
        self.keep_time(self.taken(began), BOUND)
        self.assertEqual(code, 1)
        self.assertLessEqual(len(text.splitlines()), 10, text)
        if os.environ.get("FAULTS_SHOW"):
            print("\n" + text)
        # Each answer has looks of its own, and a rank that is slow may wait in most of them where it gets no CPU.
        code, output = self.ask_until(lambda output: json.loads(output)["communicators"][0]["wrong"], rank, "--json")
        found = json.loads(output)["communicators"][0]
        self.assertEqual(code, 1)
        self.assertEqual(found["guilty_rank"], -1 if guilty is None else guilty)
        self.assertTrue(found["wrong"])
        counts = r"\d+ of \d+|\(\d+ in [\d.]+ s"  # differ from one run to the next
        self.assertIn(re.sub(counts, "", found["verdict"].splitlines()[0]), re.sub(counts, "", text))
        self.assertTrue(found["next"])
        return text


class Why(Asking):
    # ---- the eight hangs

    def test_names_a_missing_rank_that_never_came_to_the_call(self):
        ranks = self.launch(*MISSING, timeout_ms=PATIENCE)
        self.expect_verdict(
            ranks[0],
            *MISSING_SAID,
            r"it is outside the library, .*thread \d+ .*read",
            guilty=1,
        )

    def test_shows_ranks_that_call_in_different_order(self):
        ranks = self.launch("allreduce:4 line", "broadcast:4:0 allreduce:4 line", timeout_ms=PATIENCE)
        self.expect_verdict(ranks[0], "call different things as collective #1", "0  AllReduce", "1  Broadcast", "same order")

    def test_shows_a_send_that_nobody_receives(self):
        ranks = self.launch(*UNMET_SEND, timeout_ms=PATIENCE)
        self.expect_verdict(ranks[1], *UNMET_SEND_SAID, guilty=1)

    def test_shows_a_circle_of_sends(self):
        ranks = self.launch(*CIRCLE, timeout_ms=PATIENCE)
        self.expect_verdict(ranks[0], *CIRCLE_SAID)

    def test_names_a_frozen_rank_and_leaves_it_so(self):
        ranks = self.launch("allreduce:8 loop", "allreduce:8 loop", timeout_ms=PATIENCE)
        self.expect_success(ranks, "allreduce")
        ranks[1].child.send_signal(signal.SIGSTOP)
        self.expect_verdict(ranks[1], r"rank 1 \(.*\) is stopped .*" + last_call("AllReduce"), f"kill -CONT {ranks[1].child.pid}", guilty=1)
        with open(f"/proc/{ranks[1].child.pid}/stat") as stat:
            self.assertEqual(stat.read().rsplit(")", 1)[1].split()[0], "T")

    def test_names_a_dead_rank_by_its_survivor(self):
        ranks = self.launch("allreduce:8 line", "allreduce:8 line", timeout_ms=PATIENCE)
        ranks[0].result("allreduce")
        ranks[1].child.kill()
        ranks[1].child.wait()
        self.expect_verdict(ranks[0], r"rank 1 \(.*\) died; its last call was AllReduce #1 .*, done", guilty=1)

    def test_is_told_by_the_launcher_of_ranks_that_all_died_at_once(self):
        # Their boards would be gone with them: tutti run has them, and goes when it has told.
        command = [TUTTI, "run", "-n", "2", "--", TUTTI, "perf", "all_reduce", "-b", "8", "-e", "8", "-N", "0"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as launch:
            try:
                deadline = time.monotonic() + LIMIT
                while not holds_board(launch.pid) and time.monotonic() < deadline:
                    time.sleep(0.01)
                with open(f"/proc/{launch.pid}/task/{launch.pid}/children") as children:
                    ranks = [int(each) for each in children.read().split()]
                self.assertEqual(len(ranks), 2)
                for number in (signal.SIGSTOP, signal.SIGKILL):
                    for rank in ranks:
                        os.kill(rank, number)
                told = launch.communicate(timeout=LIMIT)[1]
            finally:
                launch.kill()
        self.assertEqual(launch.returncode, 128 + signal.SIGKILL, told)
        self.assertRegex(told, r"tutti run: communicator (.*): rank \d \(.*\) died" + last_call("AllReduce"), told)
        name = re.search(r"communicator (.*): rank", told)[1]
        self.assertEqual(subprocess.run([TUTTI, "why", name], capture_output=True, check=False).returncode, 3)

    def test_names_a_slow_rank_while_work_goes_on(self):
        # It is late for most of the time, also where a call takes its turn on a CPU, and seen to call twice in 1.3 s.
        ranks = self.launch("slow:0:1000", "slow:600:1000", "slow:0:1000", timeout_ms=PATIENCE)
        self.expect_verdict(
            ranks[0], r"rank 1 \(.*\) is slow: the others waited for it in \d+ of \d+ looks", "operations go on", guilty=1
        )

    def test_names_a_rank_that_is_stuck_in_user_code_and_where(self):
        ranks = self.launch("allreduce:8", "sleep:60000 allreduce:8", timeout_ms=PATIENCE)
        self.expect_verdict(
            ranks[0],
            r"rank 1 \(.*\) has not called AllReduce #1",
            r"it is outside the library, .*thread \d+ sleeps in .*nanosleep",
            guilty=1,
        )

    def test_names_a_rank_that_computes_in_user_code(self):
        ranks = self.launch("allreduce:8", "spin:20000 allreduce:8", timeout_ms=PATIENCE)
        self.expect_verdict(
            ranks[0], r"rank 1 \(.*\) has not called AllReduce #1", r"it is outside the library, .*thread \d+ runs", guilty=1
        )

    # ---- and what is no hang

    def test_finds_nothing_wrong_where_nothing_is(self):
        ranks = self.launch("line", "line", timeout_ms=PATIENCE)
        code, text = self.why(ranks[0])
        self.assertEqual(code, 0, text)
        self.assertIn("nothing wrong", text)

    def test_finds_nothing_wrong_in_ranks_that_work(self):
        ranks = self.launch("loop", "loop", "loop", timeout_ms=PATIENCE)
        for _ in range(3):
            code, text = self.why(ranks[0])
            self.assertEqual(code, 0, text)

    # ---- by name

    def ask_for(self, name):
        result = subprocess.run([TUTTI, "why", name], capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(result.stderr, "")
        return result.returncode, result.stdout

    def test_knows_a_communicator_by_its_name_and_no_other(self):
        """Two hang side by side, each with a rank of its own that is missed; a third has nothing wrong."""
        if not TUTTI:
            self.skipTest("no tutti command")
        name = f"hung-{os.getpid()}"
        hung = self.launch("allreduce:8 allreduce:8", "allreduce:8 line", timeout_ms=PATIENCE, FAULT_COMM_NAME=name)
        other = self.launch("allreduce:8 line", "allreduce:8 line", "allreduce:8 allreduce:8", timeout_ms=PATIENCE, FAULT_COMM_NAME=name + "-other")
        self.launch("line", "line", timeout_ms=PATIENCE, FAULT_COMM_NAME=name + "-well")
        self.expect_success(hung + other, "allreduce")
        for wanted, ranks in ((name, hung), (name + "-other", other)):
            self.ask_until(lambda text: "has not called AllReduce #2" in text, ranks[-1])  # it has waited for long enough
            code, text = self.ask_for(wanted)
            self.assertEqual(code, 1, text)
            self.assertIn(f"communicator {wanted}:", text)
            self.assertEqual(len(re.findall("communicator ", text)), 1, text)
            pids = [str(rank.child.pid) for rank in ranks]
            self.assertTrue(all(pid in pids for pid in re.findall(r"pid (\d+)", text)), text)
        code, text = self.ask_for(name + "-well")
        self.assertEqual(code, 0, text)
        self.assertIn("nothing wrong in 1 communicator", text)

    def test_knows_a_job_without_a_name_by_its_own(self):
        ranks = self.launch("allreduce:8 allreduce:8", "allreduce:8 line", timeout_ms=PATIENCE)
        _, text = self.ask_until(lambda text: "has not called AllReduce #2" in text, ranks[0])
        job = re.search(r"communicator (\S+):", text)[1]
        code, text = self.ask_for(job)
        self.assertEqual(code, 1, text)
        self.assertIn(f"pid {ranks[1].child.pid}", text)

    def test_knows_a_name_that_nobody_has(self):
        name = f"nobody-{os.getpid()}"
        result = subprocess.run([TUTTI, "why", name], capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(result.returncode, 3, result.stdout)
        self.assertIn(f"no process or communicator {name}", result.stderr)

    # ---- and who is not there

    def test_knows_a_process_that_is_not_there(self):
        ranks = self.launch("line")
        ranks[0].child.kill()
        ranks[0].child.wait()
        result = subprocess.run([TUTTI, "why", str(ranks[0].child.pid)], capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(result.returncode, 3, result.stdout)

    def test_refuses_nonsense(self):
        self.assertEqual(subprocess.run([TUTTI, "why", "--nonsense"], capture_output=True, timeout=LIMIT).returncode, 2)


class WhyBetweenHosts(HostEach, Asking):
    """What ranks of other hosts do, those told that wait for them; asked on each host."""

    def expect_on_each(self, ranks, *patterns, guilty=None):
        for rank in ranks:
            self.expect_verdict(rank, *patterns, guilty=guilty)

    def test_names_a_missing_rank_of_another_host(self):
        ranks = self.launch(*MISSING, timeout_ms=PATIENCE)
        self.expect_on_each(
            [ranks[0], ranks[2]],
            *MISSING_SAID,
            f"instead, on .*: py-spy dump --pid {ranks[1].child.pid}",
            guilty=1,
        )

    def test_shows_a_send_that_nobody_receives(self):
        ranks = self.launch(*UNMET_SEND, timeout_ms=PATIENCE)
        self.expect_verdict(ranks[0], *UNMET_SEND_SAID, guilty=1)

    def test_shows_a_circle_of_sends(self):
        ranks = self.launch(*CIRCLE, timeout_ms=PATIENCE)
        self.expect_on_each(ranks, *CIRCLE_SAID)

    def test_finds_nothing_wrong_in_ranks_that_work(self):
        ranks = self.launch("loop", "loop", "loop", timeout_ms=PATIENCE)
        for rank in ranks:
            code, text = self.why(rank)
            self.assertEqual(code, 0, text)


if __name__ == "__main__":
    unittest.main(verbosity=1)
