"""The end of a process, or of the library in it, with communicators that live; and jobs side by side."""

import os
import signal
import subprocess
import sys
import time
import unittest

from harness import BOUND, LIMIT, RANK, REMOTE, FaultCase

LIBRARY = os.environ["FAULT_LIBRARY"]

UNLOAD = """
import _ctypes, ctypes, time
library = ctypes.CDLL({library!r})
comms = (ctypes.c_void_p * 2)()
assert library.ncclCommInitAll(comms, 2, None) == 0
one = (ctypes.c_char * 128)()
assert library.ncclGetUniqueId(one) == 0  # a root, with a thread
_ctypes.dlclose(library._handle)
time.sleep(0.2)
again = ctypes.CDLL({library!r})
count = ctypes.c_int()
assert again.ncclCommCount(ctypes.c_void_p(comms[0]), ctypes.byref(count)) == 0 and count.value == 2
print("well")
"""


class Exit(FaultCase):
    def test_with_a_live_communicator_is_no_crash(self):
        ranks = self.launch("allreduce:100000 exit", "allreduce:100000 exit")
        for rank in ranks:
            self.assertEqual(rank.child.wait(), 0, rank.log)

    def test_may_destroy_in_a_destructor_of_a_static_object(self):
        ranks = self.launch("allreduce:100000 exitlate", "allreduce:100000 exitlate")
        for rank in ranks:
            self.assertEqual(rank.child.wait(), 0, rank.log)

    def test_of_a_program_that_unloads_the_library_is_no_crash(self):
        # A sanitizer's library must be there first.
        if "asan" in LIBRARY or "tsan" in LIBRARY:
            self.skipTest("python is not built with a sanitizer")
        result = subprocess.run([sys.executable, "-c", UNLOAD.format(library=LIBRARY)], capture_output=True, text=True, timeout=LIMIT, check=False)
        self.assertEqual((result.returncode, result.stdout), (0, "well\n"), result.stderr)


class AtASignal(FaultCase):
    """A program that ends in the handler of a signal: it does not hang, and the others are told, in the end's own words."""

    def end_by(self, how, text):
        for steps in ("allreduce:8 line", "allreduce:8 allreduce:4000000"):  # between calls, and in one that waits
            with self.subTest(steps):
                others = "allreduce:8 line allreduce:4000000 solo"
                ranks = self.launch(others, f"atsignal:{how} {steps}", others)
                self.expect_success(ranks, "allreduce:8")
                self.pause(0.2)  # rank 1 is where it waits
                ranks[1].child.send_signal(signal.SIGUSR2)
                self.assertEqual(ranks[1].child.wait(timeout=BOUND), 0, ranks[1].log)
                called = time.monotonic()
                for rank in (ranks[0], ranks[2]):
                    rank.say("go")
                last = "its last call was AllReduce #1 .*, done" if "line" in steps else "it is in AllReduce #2"
                pattern = rf"rank 1 \(.*pid {ranks[1].child.pid}\) {text} while rank \d waited .*; {last}"
                self.expect([ranks[0], ranks[2]], "allreduce:4000000", REMOTE, pattern, called)
                self.expect_success([ranks[0], ranks[2]], "solo")

    def test_by_exit(self):
        self.end_by("exit", "exited without ncclCommDestroy")

    def test_by_underscore_exit(self):
        self.end_by("_exit", "died")


class Neighbours(FaultCase):
    def test_do_not_hear_each_others_faults(self):
        steps = "allreduce:1000 loop"
        first = self.launch(steps, steps)
        second = self.launch("allreduce:1000 slow:20:40 allreduce:1000 destroy", "allreduce:1000 slow:20:40 allreduce:1000 destroy")
        self.expect_success(first, "allreduce")
        killed = time.monotonic()
        first[1].child.kill()
        self.expect([first[0]], "loop", REMOTE, rf"rank 1 .*pid {first[1].child.pid}\) died", killed, bound=BOUND)
        self.expect_success(second, "destroy")

    def test_of_another_user_are_as_far_apart(self):
        nobody = 65534
        if os.geteuid() != 0:
            self.skipTest("needs root to start a process of another user")
        if subprocess.run(["true"], user=nobody, check=False).returncode != 0 or not self.may_run(nobody):
            self.skipTest("another user cannot run what was built here")
        ours = self.launch("allreduce:1000 line allreduce:2000 destroy", "allreduce:1000 line allreduce:2000 destroy")
        result = subprocess.run(
            [RANK, "0", "1", "init", "allreduce:1000", "destroy"], user=nobody, capture_output=True, text=True, timeout=LIMIT, check=False
        )
        self.assertRegex(result.stdout, r"destroy 0 ", result.stderr)
        for rank in ours:
            rank.say("go")
        self.expect_success(ours, "destroy")

    @staticmethod
    def may_run(user):
        try:
            return subprocess.run([RANK], user=user, capture_output=True, check=False).returncode == 2
        except PermissionError:
            return False


if __name__ == "__main__":
    unittest.main(verbosity=1)
