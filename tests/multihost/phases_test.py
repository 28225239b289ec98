"""A rank of another host dies, stands still or loses its wire while nobody calls, or while the others split, finalize or destroy: whoever
needs it is told of it in time, whoever leaves is not held up, and those who are left go on by themselves."""

import signal
import time
import unittest

import bed
from host_case import BOUND, REMOTE, HostCase, between

GUILTY = 2  # alone on the third host, as each of the others is on its own
GOES_ON = "shrink:2:abort allreduce:1000 destroy"


class Phases(HostCase):
    """Each fault in each phase. `line` is where all of them wait for the fault."""

    def setUp(self):
        super().setUp()
        self.hosts = None

    def kill(self):
        self.ranks[GUILTY].child.kill()
        self.ranks[GUILTY].child.wait()

    def freeze(self):
        self.ranks[GUILTY].child.send_signal(signal.SIGSTOP)

    def cut(self):
        self.hosts[GUILTY].cut()

    def start(self, steps, guilty=None, **settings):
        """Up to `line`. T is longer than usual, since the survivors notice one after the other and the first one's shrink waits for the second."""
        if self.hosts is None:
            self.hosts = self.make_hosts(3)
        self.ranks = self.launch_on(self.hosts, [0, 1, 2], steps, steps, guilty or steps, timeout_ms=1500, **settings)
        self.survivors = self.ranks[:GUILTY]
        self.expect_success(self.ranks, "allreduce:64")
        self.pause(0.1)  # they are at `line`

    def go(self, ranks):
        for rank in ranks:
            rank.say("go")
        return time.monotonic()

    def expect_rest(self):
        for step in ("shrink", "allreduce:1000", "destroy"):
            self.expect_success(self.survivors, step)

    # ---- while nobody calls

    def rest(self, fault, pattern):
        self.start(f"allreduce:64 line allreduce:20000 {GOES_ON}")
        fault()
        self.pause(0.2)  # nobody does anything meanwhile
        called = self.go(self.survivors)
        self.expect(self.survivors, "allreduce:20000", REMOTE, pattern, called, BOUND)
        self.expect_rest()

    def test_killed_while_all_rest(self):
        self.rest(self.kill, rf"rank {GUILTY} \(.*\) (died|ended)")

    def test_frozen_while_all_rest(self):
        self.rest(self.freeze, rf"rank {GUILTY} .* gave rank \d no sign of life")

    def test_cut_off_while_all_rest(self):
        self.rest(self.cut, rf"rank {GUILTY} \(")
        called = self.go([self.ranks[GUILTY]])
        self.expect([self.ranks[GUILTY]], "allreduce:20000", REMOTE, between(GUILTY), called, BOUND, "cut off while all rest, as the lonely host sees it")

    # ---- while the others split

    def split(self, fault):
        self.start(f"allreduce:64 line split:0:0 {GOES_ON}")
        self.go(self.survivors)
        self.pause(0.1)  # they wait in it
        began = time.monotonic()
        fault()
        self.expect(self.survivors, "split", REMOTE, rf"rank {GUILTY}\b", began, BOUND)
        self.expect_rest()

    def test_killed_while_the_others_split(self):
        self.split(self.kill)

    def test_frozen_while_the_others_split(self):
        self.split(self.freeze)

    def test_cut_off_while_the_others_split(self):
        self.split(self.cut)
        called = self.go([self.ranks[GUILTY]])
        self.expect([self.ranks[GUILTY]], "split", REMOTE, r"rank [01]\b", called, BOUND, "cut off while the others split, as the lonely host sees it")

    def stop_amid_its_split(self, how, steps_on_sockets):
        """A survivor may have its child already; then that call fails which needs the guilty."""
        slowest = 0.0
        for nth in steps_on_sockets:
            with self.subTest(step=nth):
                steps = f"allreduce:64 line split:0:0 allreduce:20000 parent {GOES_ON}"
                self.start(steps, f"allreduce:64 line inject:{how}:{nth} split:0:0 line", inject=True)
                began = self.go(self.ranks)
                for rank in self.survivors:
                    code, moment, message = rank.result("allreduce:20000")
                    self.assertEqual(code, REMOTE, message)
                    self.assertRegex(message, rf"rank {GUILTY}\b")
                    slowest = max(slowest, self.taken(began, moment))
                self.expect_rest()
        self.keep_time(slowest, BOUND + self.own_T)  # of two calls

    def test_killed_amid_a_split(self):
        self.stop_amid_its_split("death", (0, 2, 5, 9))

    def test_frozen_amid_a_split(self):
        self.stop_amid_its_split("stop", (1, 5))

    # ---- while the others finalize, or destroy without that

    def leave(self, fault, how, lonely=False):
        """They leave a child after a send that the guilty never takes, which they may wait for as long as T, and go on without it."""
        opened = f"allreduce:64 split:0:0 send:{GUILTY}:10 recv:{GUILTY}:11"
        self.start(f"{opened} line send:{GUILTY}:100000 {how} parent {GOES_ON}",
                   f"allreduce:64 split:0:0 recv:0:10 recv:1:10 send:0:11 send:1:11 line send:0:100000 send:1:100000 {how}")
        self.expect_success(self.survivors, "recv")
        self.pause(0.1)
        fault()
        left = self.go(self.survivors)
        slowest = 0.0
        for rank in self.survivors:
            code, moment, message = rank.result("destroy")
            self.assertEqual(code, 0, message)
            slowest = max(slowest, self.taken(left, moment))
        self.keep_time(slowest, BOUND)
        self.expect_success(self.survivors, "shrink")
        self.expect_success(self.survivors, "allreduce:1000")
        self.expect_success(self.survivors, "destroy", nth=1)
        if lonely:
            began = self.go([self.ranks[GUILTY]])
            code, moment, message = self.ranks[GUILTY].result("destroy")
            self.keep_time(self.taken(began, moment), BOUND, f"{self.id().split('.test_')[-1]}, as the lonely host sees it")

    def test_killed_while_the_others_finalize(self):
        self.leave(self.kill, "finalize destroy")

    def test_frozen_while_the_others_finalize(self):
        self.leave(self.freeze, "finalize destroy")

    def test_cut_off_while_the_others_finalize(self):
        self.leave(self.cut, "finalize destroy", lonely=True)

    def test_killed_while_the_others_destroy(self):
        self.leave(self.kill, "destroy")

    def test_frozen_while_the_others_destroy(self):
        self.leave(self.freeze, "destroy")

    def test_cut_off_while_the_others_destroy(self):
        self.leave(self.cut, "destroy", lonely=True)


if __name__ == "__main__":
    bed.enter()
    unittest.main(verbosity=1)
