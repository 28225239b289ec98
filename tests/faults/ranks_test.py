"""The same faults among 2, 4, 8 and 64 processes: all survivors name the right rank, leave it out and go on."""

import itertools
import os
import signal
import time
import unittest

from harness import INIT_PHASES, REMOTE, FaultCase, by_process, last_call

COUNTS = (2, 4, 8, 64)
MARGIN = 1.5  # seconds that survivors have beyond T, as in BOUND
STOPPED = r"not responding for \S+ s \(alive, stopped\)"


class Ranks(FaultCase):
    def each_count(self):
        """(ranks, the one that gets into trouble, T in ms); more ranks than CPUs take turns, also where none fails."""
        return [(count, count // 2 + (count > 2), 500 if count < 64 else 2000) for count in COUNTS]

    def launch_one_among(self, count, victim, others, own, timeout_ms, **options):
        steps = [others] * count
        steps[victim] = own
        ranks = self.launch(*steps, timeout_ms=timeout_ms, **options)
        return ranks[victim], ranks[:victim] + ranks[victim + 1 :]

    def expect_among(self, survivors, step, victim, text, since):
        bound = self.timeout + MARGIN
        name = f"{self.id().split('test_')[-1]} {len(survivors) + 1} ranks"
        self.expect(survivors, step, REMOTE, rf"rank {victim.rank} \(.*pid {victim.child.pid}\) {text}.*{last_call('AllReduce')}", since, bound, name)

    def expect_survivors(self, survivors):
        for step in ("shrink", "allreduce:1000", "destroy"):
            self.expect_success(survivors, step)

    def test_one_killed_among(self):
        for count, victim, timeout_ms in self.each_count():
            steps = f"loop shrink:{victim}:abort allreduce:1000 destroy"
            dead, others = self.launch_one_among(count, victim, steps, "loop", timeout_ms)
            self.wait_until_underway([dead, *others])
            killed = time.monotonic()
            dead.child.kill()
            self.expect_among(others, "loop", dead, "died while rank", killed)
            self.expect_survivors(others)

    def test_one_that_exits_among(self):
        for count, victim, timeout_ms in self.each_count():
            steps = f"times:2:allreduce:64 loop shrink:{victim}:abort allreduce:1000 destroy"  # whose links are there
            gone, others = self.launch_one_among(count, victim, steps, "times:2:allreduce:64 line exit", timeout_ms)
            self.expect_success([gone, *others], "times")
            exited = time.monotonic()
            gone.say("go")
            self.expect_among(others, "loop", gone, "exited without ncclCommDestroy", exited)
            self.expect_survivors(others)

    def test_one_that_aborts_among(self):
        for count, victim, timeout_ms in self.each_count():
            steps = f"loop shrink:{victim}:abort allreduce:1000 destroy"
            leaver, others = self.launch_one_among(count, victim, steps, "times:20:allreduce:64 abort", timeout_ms)
            began = leaver.result("times")[1]
            self.assertEqual(leaver.result("abort")[0], 0)
            self.assertLess(self.taken(began, leaver.result("abort")[1]), 1)
            self.expect_among(others, "loop", leaver, "aborted its communicator", began)
            self.expect_survivors(others)

    def test_one_frozen_among(self):
        for count, victim, timeout_ms in self.each_count():
            steps = f"loop shrink:{victim}:abort allreduce:1000 destroy"
            frozen, others = self.launch_one_among(count, victim, steps, "loop abort", timeout_ms)
            self.wait_until_underway([frozen, *others])
            stopped = time.monotonic()
            frozen.child.send_signal(signal.SIGSTOP)
            self.expect_among(others, "loop", frozen, STOPPED, stopped)
            self.expect_survivors(others)  # while it still stands still
            frozen.child.send_signal(signal.SIGCONT)
            self.assertEqual(frozen.result("loop")[0], REMOTE)
            self.expect_success([frozen], "abort")

    def test_one_that_never_comes_to(self):
        for count, victim, timeout_ms in self.each_count():
            began = time.monotonic()
            _, others = self.launch_one_among(count, victim, "init solo", "line init", timeout_ms, expect_init=False)
            name = f"one that never comes to {count} ranks"
            self.expect(others, "init", REMOTE, rf"[Rr]ank {victim}\b|missing: {victim}\b", began, self.timeout + MARGIN, name)
            self.expect_success(others, "solo")


class Aborts(FaultCase):
    """Rank 1 aborts from another thread. Rank 0 is in the same call, rank 2 too, or it is late, so that the call waits."""

    LINKED = "init times:3:allreduce:64"
    AMID = "abortafter:200"

    def abort_amid(self, first, leaver, last, told, text=r"rank 1\b", **options):
        """`told` is (rank, step) of those that learn of it, while rank 2 is late; all then make communicators of their own."""
        began = leaver.split()[-1]
        ranks = self.launch(*[f"{steps} solo" for steps in (first, leaver, last)], expect_init=False, **options)
        code, aborted, message = ranks[1].result("aborted")
        self.assertEqual(code, 0, message)
        aborted -= int(message) / 1000
        self.keep_time(int(message) / 1000, 1.0)
        if not began.startswith("sleep"):
            code, moment, message = ranks[1].result(began)
            self.assertNotEqual(code, 0, "of the call that was under way")
            self.keep_time(self.taken(aborted, moment), 1.0)
        for rank, step in told:
            self.expect([ranks[rank]], step, REMOTE, text, aborted, self.timeout + MARGIN)
        if "line" in last:
            ranks[2].say("go")
        self.expect_success(ranks, "solo")

    def test_amid_init(self):
        self.abort_amid("init", f"init:nonblocking {self.AMID} sleep:500", "line init", [(0, "init")])

    def test_between_calls(self):
        self.abort_amid(f"{self.LINKED} loop", f"{self.LINKED} {self.AMID} sleep:500", f"{self.LINKED} loop", [(0, "loop"), (2, "loop")])

    def test_amid_a_call_that_waits(self):
        for before in ("init", self.LINKED):
            for call in ("allreduce:65", "allreduce:4000000", "recv:2:65"):
                told = [] if call.startswith("recv") else [(0, call)]
                self.abort_amid(f"{before} {call}" if told else before, f"{before} {self.AMID} {call}", f"{before} line", told)

    def test_amid_a_call_whose_peer_is_stopped_before_it_hands_its_memory_over(self):
        ranks = self.launch(f"line {self.AMID} send:1:1000", "recv:0:1000", timeout_ms=20000)
        self.pause(0.3)  # rank 1 has offered its link
        ranks[1].child.send_signal(signal.SIGSTOP)
        ranks[0].say("go")
        code, aborted, message = ranks[0].result("aborted")
        self.assertEqual(code, 0, message)
        self.keep_time(int(message) / 1000, 1.0)
        code, moment, _ = ranks[0].result("send")
        self.assertNotEqual(code, 0, "of the call that was under way")
        self.keep_time(self.taken(aborted - int(message) / 1000, moment), 1.0)
        ranks[1].child.kill()

    def test_amid_a_split_that_waits(self):
        # All of its ranks must come within T: the one that is late may be named as well.
        self.abort_amid("init split:0:0", f"init {self.AMID} split:0:0", "init line", [(0, "split:0:0")], text=r"rank [12]\b")

    def test_amid_a_loop_of_calls(self):
        for loop in ("loop", "loop:allreduce:1000000", "loop:sendrecv:1000"):
            self.abort_amid(f"init {loop}", f"init {self.AMID} {loop}", f"init {loop}", [(0, "loop"), (2, "loop")])

    def test_amid_calls_between_hosts(self):
        hosts = [{"NCCL_HOSTID": "one"}, {"NCCL_HOSTID": "other"}, {"NCCL_HOSTID": "other"}]
        self.abort_amid("init loop", f"init {self.AMID} loop", "init loop", [(0, "loop"), (2, "loop")], each=hosts)


class Frozen(FaultCase):
    """Stopped at its first, second, ... step on a socket, until it needs no more of them."""

    def stop_at_every_step(self, victim, before, work, after):
        """(step, the victim, survivors, their results of `work`) while it stands still at that step; then it is woken."""
        stride = 1 if os.environ.get("FAULTS_FULL") else 5
        slowest = 0.0
        for nth in itertools.chain(range(3), range(3, 200, stride)):
            steps = [f"{before} {work} {after}"] * 4
            steps[victim] = f"{before} inject:stop:{nth} {work} inject:stop:-1 {after}"
            ranks = self.launch(*steps, expect_init=before != "", inject=True)
            frozen = ranks[victim]
            others = ranks[:victim] + ranks[victim + 1 :]
            if self.ends_without_a_stop(frozen, work):
                break
            stopped = time.monotonic()
            outcomes = [rank.result(work) for rank in others]
            slowest = max(slowest, *(self.taken(stopped, moment) for _, moment, _ in outcomes))
            yield nth, frozen, others, outcomes
            frozen.child.send_signal(signal.SIGCONT)
            woken = time.monotonic()
            code, moment, message = frozen.result(work)
            self.assertIn(code, (0, REMOTE), f"step {nth}: {message}")
            slowest = max(slowest, self.taken(woken, moment))
        self.assertGreater(nth, 2)
        # A rank that has told the root where it listens gives it a second more than T to answer.
        self.keep_time(slowest, self.timeout + 1 + MARGIN)

    def ends_without_a_stop(self, rank, work):
        while True:
            if os.waitid(os.P_PID, rank.child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG):
                return False
            if any(result[0].startswith(work) for result in list(rank.results)):
                return True
            time.sleep(0.002)

    def test_during_init_is_named_or_not_needed_any_more(self):
        self.init_with_a_frozen(1, unseen=r"ranks? 1\b.* of 4 did not come within")

    def test_at_the_root_during_init_is_named_or_not_needed_any_more(self):
        self.init_with_a_frozen(0)

    def init_with_a_frozen(self, victim, unseen=None):
        """Errors name its rank or that its process made the id, host and process number, and what init is at."""
        for nth, frozen, others, outcomes in self.stop_at_every_step(victim, "", "init", "solo"):
            pattern = by_process(frozen) + (f"|{unseen}" if unseen else "")
            for code, _, message in outcomes:
                if code != 0:
                    self.assertEqual(code, REMOTE, f"step {nth}: {message}")
                    self.assertRegex(message, pattern, f"step {nth}")
                    self.assertRegex(message, INIT_PHASES, f"step {nth}")
            self.expect_success(others, "solo")

    def test_while_links_are_made_is_named_and_the_others_go_on(self):
        for nth, _, others, outcomes in self.stop_at_every_step(2, "init", "alltoall:5000", "shrink:2:abort allreduce:1000 destroy"):
            for code, _, message in outcomes:
                if code != 0:
                    self.assertEqual(code, REMOTE, f"step {nth}: {message}")
                    self.assertRegex(message, r"rank 2\b", f"step {nth}")
            for step in ("shrink", "allreduce:1000", "destroy"):
                self.expect_success(others, step)


if __name__ == "__main__":
    unittest.main(verbosity=1)
