"""A rank that is late, stopped or starved: waited for while it lives, given up after T when it is stopped."""

import os
import re
import signal
import threading
import time
import unittest

from harness import REMOTE, FaultCase, HostEach, last_call


def cpu_seconds(rank):
    """Of all its threads, to the nanosecond."""
    total = 0
    for task in os.listdir(f"/proc/{rank.child.pid}/task"):
        with open(f"/proc/{rank.child.pid}/task/{task}/schedstat") as stat:
            total += int(stat.read().split()[0])
    return total / 1e9


class Delay(FaultCase):
    def test_of_a_living_rank_is_waited_for_and_told_once_within_t(self):
        ranks = self.launch("allreduce:8", f"sleep:{int(self.own_T * 2500)} allreduce:8", "allreduce:8")
        self.expect_success(ranks, "allreduce")
        for rank in (ranks[0], ranks[2]):
            rank.child.wait()
            rank.reader.join()
            self.assertEqual(len(re.findall("rank 1 .* has not called AllReduce #1", rank.log)), 1, rank.log)

    def test_at_the_beginning_is_waited_for_and_told(self):
        late = f"sleep:{int(self.own_T * 2500)}"
        ranks = self.launch("init split:0:0 allreduce:8", f"{late} init {late} split:0:0 allreduce:8",
                            expect_init=False, TUTTI_INIT_TIMEOUT_MS="60000")
        for step in ("init", "split", "allreduce"):
            self.expect_success(ranks, step)
        self.assertRegex(ranks[0].log, "rank 1 of 2 did not come for")
        self.assertRegex(ranks[0].log, "rank 1 .* lives, but has sent nothing to rank 0 .* ncclCommSplit")

    def test_that_leaves_a_rank_behind_is_counted(self):
        steps = "times:40:allreduce:8 allreduce:9"
        ranks = self.launch(steps, f"times:40:allreduce:8 sleep:{int(self.own_T * 2000)} allreduce:9")
        self.expect_success(ranks, "allreduce:9")
        self.assertRegex(ranks[0].log, "rank 1 .* has not called AllReduce #41 .*, 1 operation behind: its last call was")

    def test_by_a_longer_stop_ends_all_and_the_stopped_rank_is_told(self):
        ranks = self.launch("allreduce:8 loop", "allreduce:8 loop", "allreduce:8 loop")
        self.expect_success(ranks, "allreduce")
        stopped = time.monotonic()
        ranks[1].child.send_signal(signal.SIGSTOP)
        text = rf"rank 1 \(.*pid {ranks[1].child.pid}\) not responding for \S+ s \(alive, stopped\){last_call('AllReduce')}"
        self.expect([ranks[0], ranks[2]], "loop", REMOTE, text, stopped)
        ranks[1].child.send_signal(signal.SIGCONT)
        told = "given up by the others: " + text
        self.expect([ranks[1]], "loop", REMOTE, told, time.monotonic(), name="the_stopped_rank_is_told_when_it_wakes")

    def test_of_a_rank_that_stopped_while_it_waited_is_no_circle(self):
        ranks = self.launch("line allreduce:100000", "allreduce:100000")
        self.pause(0.4)  # rank 1 waits, and has said so
        stopped = time.monotonic()
        ranks[1].child.send_signal(signal.SIGSTOP)
        ranks[0].say("go")
        self.expect([ranks[0]], "allreduce", REMOTE, r"rank 1 \(.*\) not responding for \S+ s \(alive, stopped\); it is in AllReduce #1", stopped)

    def test_by_user_code_that_computes_is_no_death(self):
        ranks = self.launch("allreduce:8", f"spin:{int(self.own_T * 2000)} allreduce:8")
        self.expect_success(ranks, "allreduce")


class ShortStops(FaultCase):
    LATE = r"rank 0 waits for a message from rank 1 .*; rank 1 \(.*\) (has not called AllReduce|is late)"

    def test_by_a_stop_that_is_shorter_than_t_is_forgiven_and_told_once(self):
        """Again and again, for longer than T in all: each stop is one of its own, in a call of its own."""
        ranks = self.launch("loop", "loop", timeout_ms=1500)
        self.wait_until_underway(ranks)
        stops = 4
        for _ in range(stops):
            ranks[1].child.send_signal(signal.SIGSTOP)
            self.pause(0.65 * self.timeout)  # told after T / 2
            ranks[1].child.send_signal(signal.SIGCONT)
            self.pause(0.2)
        self.assertEqual([[result[0] for result in rank.results] for rank in ranks], [["init", "underway"]] * 2)
        self.assertEqual(len(re.findall("WARN", ranks[0].log)), stops, ranks[0].log)
        for late in re.findall("WARN (.*)", ranks[0].log):
            self.assertRegex(late, self.LATE)


class ShortStopsBetweenHosts(HostEach, ShortStops):
    LATE = r"rank 0 waits for a message from rank 1 .*; rank 1 \(.*\) is on another host"


class DelayBetweenHosts(HostEach):
    def test_by_a_stop_is_an_error_with_what_the_rank_has_told(self):
        ranks = self.launch("allreduce:8 allreduce:9", "allreduce:8 line", timeout_ms=1500)
        self.expect_success(ranks, "allreduce:8")
        self.pause(0.5)  # rank 0 waits, and asks
        stopped = time.monotonic()
        ranks[1].child.send_signal(signal.SIGSTOP)
        text = rf"rank 1 \(.*pid {ranks[1].child.pid}\) gave rank 0 no sign of life .*; its last call was AllReduce #1 \(8 of .*, done"
        self.expect([ranks[0]], "allreduce:9", REMOTE, text, stopped, bound=self.timeout + 1.5)


class Writers(FaultCase):
    def test_of_a_call_that_has_ended_write_no_more(self):
        """A rank that helps to receive is late with a block; the receiver's call is aborted meanwhile, and waits for it."""
        self.write_late("loop:broadcast:1000000:1")

    def test_of_a_place_that_was_offered_before_write_no_more(self):
        """The same of one message, which its sender divides."""
        self.write_late("loop:broadcast:32000:1")

    def write_late(self, call):
        ranks = self.launch(f"allreduce:8 abortafter:200 {call} untouched:600", f"allreduce:8 inject:latewrite:0 {call} injected:latewrite",
                            inject=True, timeout_ms=2000, TUTTI_PROCESS_READ="1")
        code, _, message = ranks[0].result("untouched")
        if ranks[1].result("injected")[2] == "0":
            self.skipTest("the kernel lets ranks write no memory of each other")
        self.assertNotEqual(ranks[0].result("loop")[0], 0)
        self.assertEqual(code, 0, message)
        self.expect_success(ranks[:1], "aborted")


class Oversubscription(FaultCase):
    def test_of_sixteen_processes_at_idle_priority_is_no_death(self):
        ranks = self.launch(*["idle times:20:allreduce:1000 destroy"] * 16, timeout_ms=10000)
        self.expect_success(ranks, "times")
        self.expect_success(ranks, "destroy")


class OversubscriptionBetweenHosts(HostEach, Oversubscription):
    pass


class CpuShare:
    """A control group of one CPU's given share, version 2 or 1, which goes with it; None where it may not be made."""

    PERIOD_US = 100_000

    def __init__(self, percent):
        self.folder = None
        self.why = "no control groups for CPUs here"
        quota = percent * self.PERIOD_US // 100
        for root, limits in (("/sys/fs/cgroup", {"cpu.max": f"{quota} {self.PERIOD_US}"}),
                             ("/sys/fs/cgroup/cpu", {"cpu.cfs_period_us": str(self.PERIOD_US), "cpu.cfs_quota_us": str(quota)})):
            if not os.path.exists(os.path.join(root, "cgroup.procs")):
                continue
            folder = os.path.join(root, f"tutti-faults-{os.getpid()}")
            try:
                os.mkdir(folder)
                self.folder = folder
                for name, value in limits.items():
                    self.write(name, value)
                return
            except OSError as error:
                self.why = f"no control group with a share of a CPU: {error}"
                self.remove()

    def write(self, name, value):
        with open(os.path.join(self.folder, name), "w") as file:
            file.write(value)

    def throttled_periods(self):
        with open(os.path.join(self.folder, "cpu.stat")) as stat:
            return int(re.search(r"nr_throttled (\d+)", stat.read())[1])

    def remove(self):
        """Once its processes have ended, which may take a moment."""
        for _ in range(200):
            if self.folder is None or not os.path.exists(self.folder):
                return
            try:
                os.rmdir(self.folder)
            except OSError:
                time.sleep(0.02)


class LittleCpu(FaultCase):
    """Ranks that get a twentieth of a CPU together complete, and none of them is taken for dead."""

    RANKS = 4
    CALLS = "times:10:allreduce:2 times:3:allreduce:100000 times:3:alltoall:5000"
    BOUND = 40.0  # seconds for the calls; a hundredth of it for ranks with CPUs of their own

    def expect_completion(self, ranks, began):
        for step in self.CALLS.split() + ["destroy"]:
            for rank in ranks:
                code, moment, message = rank.result(step, timeout=self.BOUND * self.patience)
                self.assertEqual(code, 0, f"rank {rank.rank}, {step}: {message}\n{rank.log}")
        self.keep_time(self.taken(began, moment), self.BOUND)

    def test_of_a_control_group_is_no_death(self):
        group = CpuShare(5)
        if group.folder is None:
            self.skipTest(group.why)
        self.addCleanup(group.remove)
        join = ("sh", "-c", f'echo $$ > {group.folder}/cgroup.procs && exec "$@"', "sh")
        began = time.monotonic()
        ranks = self.launch(*[f"{self.CALLS} destroy"] * self.RANKS, timeout_ms=5000, prefixes=[join] * self.RANKS)
        self.expect_completion(ranks, began)
        self.assertGreater(group.throttled_periods(), 0)

    def test_of_ranks_that_are_stopped_most_of_the_time_is_no_death(self):
        """What a control group does to them, by signals: 5 ms of each 100, each in its own time. Runs everywhere."""
        ranks = self.launch(*[f"init line {self.CALLS} destroy"] * self.RANKS, timeout_ms=2000)
        done = threading.Event()
        metronome = threading.Thread(target=self.let_run_in_turns, args=(ranks, done))
        metronome.start()
        began = time.monotonic()
        try:
            for rank in ranks:
                rank.say("go")
            self.expect_completion(ranks, began)
        finally:
            done.set()
            metronome.join()
        log = "".join(rank.log for rank in ranks)
        self.assertNotIn("not responding", log)

    @staticmethod
    def let_run_in_turns(ranks, done):
        """Of each tenth of a second a rank has a twentieth: one after the other, and between them nobody."""
        on, period = 0.005, 0.1
        children = [rank.child for rank in ranks]

        def tell(child, what):
            if child.poll() is None:
                child.send_signal(what)

        for child in children:
            tell(child, signal.SIGSTOP)
        while not done.is_set():
            for child in children:
                tell(child, signal.SIGCONT)
                time.sleep(on)
                tell(child, signal.SIGSTOP)
                time.sleep(period / len(children) - on)
        for child in children:
            tell(child, signal.SIGCONT)


class LittleCpuBetweenHosts(HostEach, LittleCpu):
    pass


class Idle(FaultCase):
    """A process whose ranks are called for nothing uses less than 1 % of a CPU, whatever it did before."""

    SECONDS = 2.0

    def test_processes_use_no_cpu(self):
        late = "sleep:300 times:200:allreduce:2"  # the others spin until they sleep
        for steps, own in (("init", "init"), ("times:200:allreduce:2", "times:200:allreduce:2"), ("times:200:allreduce:2", late),
                           ("alltoall:100000", "alltoall:100000")):
            for count in (2, 8):
                with self.subTest(steps=own, ranks=count):
                    ranks = self.launch(*[steps + " line"] * (count - 1), own + " line", timeout_ms=5000)
                    self.expect_success(ranks, steps.split(":")[0])
                    time.sleep(0.1)
                    before = [cpu_seconds(rank) for rank in ranks]
                    time.sleep(self.SECONDS)
                    for rank, used in zip(ranks, before):
                        self.assertLessEqual(cpu_seconds(rank) - used, 0.01 * self.SECONDS)
                        rank.say("go")


class Signals(FaultCase):
    def test_a_thousand_a_second_disturb_nothing(self):
        steps = (
            "timer:1000 init allreduce:100 times:300:allreduce:3000 times:20:alltoall:5000 split:0:0 "
            "times:100:allreduce:10 shrink:2 times:10:allreduce:200000 finalize destroy"
        )
        left_out = "timer:1000 init allreduce:100 times:300:allreduce:3000 times:20:alltoall:5000 split:0:0 times:100:allreduce:10 destroy"
        ranks = self.launch(steps, steps, left_out, timeout_ms=5000)
        for rank in ranks:
            self.expect_success([rank], "destroy")
            self.assertEqual([result for result in rank.results if result[1] != 0], [])
        self.assertEqual(len([result for result in ranks[0].results if result[0] != "underway"]), 11)


class SignalsBetweenHosts(HostEach, Signals):
    pass


class Clocks(FaultCase):
    def test_that_jump_an_hour_either_way_are_no_timeout(self):
        for jump in (3600, -3600):
            with self.subTest(jump):
                ranks = self.launch("allreduce:8 allreduce:9 destroy", f"allreduce:8 clock:{jump} sleep:50 allreduce:9 destroy", inject=True)
                self.expect_success(ranks, "allreduce:9")
                self.expect_success(ranks, "destroy")

    def test_that_jump_during_init_are_no_timeout(self):
        ranks = self.launch("clock:3600 init allreduce:8", "clock:-3600 sleep:50 init allreduce:8", inject=True)
        self.expect_success(ranks, "allreduce")


class ClocksBetweenHosts(HostEach, Clocks):
    pass


if __name__ == "__main__":
    unittest.main(verbosity=1)
