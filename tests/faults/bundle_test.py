"""Bundles: SIGUSR1 and verdicts leave a tar with what is known of a hang, or a line that says why not."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

from harness import IS_SANITIZED, LIMIT, REMOTE, TUTTI, FaultCase

LIBRARY = os.environ["FAULT_LIBRARY"]
BOUND = 4.0  # from the signal to the bundle: several looks, and a margin
PATIENCE = 60000  # ms: nobody gives up meanwhile
SIGUSR1_BIT = 1 << (signal.SIGUSR1 - 1)

# A program that has a rank's library in use: it says "ready", and ends with the line it is given. `before` and `after`
# are what it does before and after its first call.
PROGRAM = """
import ctypes, os, signal, sys, time
{before}
library = ctypes.CDLL({library!r})
library.ncclGetUniqueId(ctypes.create_string_buffer(128))
{after}
print("ready", flush=True)
sys.stdin.readline()
"""


class BundleCase(FaultCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="bundles-")
        self.addCleanup(shutil.rmtree, self.folder)

    def bundles(self, wanted=1, folder=None):
        """The archives in the folder once there are `wanted` and nothing else: no piece of a further one."""
        folder = folder or self.folder
        began = time.monotonic()
        while True:
            found = sorted(os.listdir(folder))
            is_whole = all(name.endswith(".tar") for name in found)
            if (is_whole and len(found) >= wanted) or time.monotonic() > began + LIMIT:
                break
            time.sleep(0.02)
        self.assertTrue(is_whole, found)
        self.assertGreaterEqual(len(found), wanted)
        return [os.path.join(folder, name) for name in found]

    def contents(self, path):
        with tarfile.open(path) as archive:
            return {each.name: archive.extractfile(each).read().decode() for each in archive}

    def run_program(self, before="", after="", **settings):
        if IS_SANITIZED:
            self.skipTest("a sanitizer's library is for sanitized programs, which Python is not")
        child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(before=before, after=after, library=LIBRARY)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ, NCCL_DEBUG="WARN", TUTTI_TIMEOUT_MS="500", **settings),
        )
        log = []
        for line in child.stdout:
            if line == "ready\n":
                break
            log.append(line)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.stdin.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child, log

    def end(self, child):
        """The exit code, and what it logged since it was ready."""
        output, _ = child.communicate("\n", timeout=LIMIT)
        return child.returncode, output


class Signals(BundleCase):
    def test_from_a_hung_rank_shows_who_holds_it_up(self):
        steps = "allreduce:8 allreduce:8", "allreduce:8 line"
        ranks = self.launch(*steps, timeout_ms=PATIENCE, TUTTI_BUNDLE_DIR=self.folder, NCCL_HOSTID="here")
        ranks[1].result("allreduce")
        self.pause(0.3)
        began = time.monotonic()
        ranks[0].child.send_signal(signal.SIGUSR1)
        (path,) = self.bundles()
        self.keep_time(self.taken(began), BOUND)
        self.assertRegex(os.path.basename(path), rf"^tutti-[\w.-]+-{ranks[0].child.pid}\.tar$")
        files = self.contents(path)
        self.assertRegex(files["why.txt"], r"rank 1 \(.*\) has not called AllReduce #2")
        self.assertRegex(files["ranks.txt"], r"rank 0 waits for a message from rank 1 in AllReduce #2 .*, for \d")
        found = json.loads(files["ranks.json"])["communicators"][0]
        self.assertEqual((found["guilty_rank"], len(found["ranks"])), (1, 2))
        self.assertEqual([each["state"] for each in found["ranks"][0]["history"]], ["running", "done"])
        self.assertIn("NCCL_HOSTID=here (environment)", files["settings.txt"])
        self.assertIn("tutti-bundle", files["threads.txt"])
        for rank in ranks:  # the one that asked and the guilty one
            self.assertIn(f"process {rank.child.pid} (", files["threads.txt"])
            self.assertIn("Max open files", files[f"process-{rank.child.pid}/limits"])
            self.assertIn("ESTABLISHED", files[f"process-{rank.child.pid}/sockets.txt"])
        self.assertIn("tutti", files["version.txt"])
        ranks[1].say("go")  # nobody was disturbed
        self.assertEqual(ranks[1].result("line")[0], 0)

    def test_two_at_once_leave_whole_bundles(self):
        child, _ = self.run_program(TUTTI_BUNDLE_DIR=self.folder)
        for _ in range(2):
            child.send_signal(signal.SIGUSR1)
        self.bundles()
        child.send_signal(signal.SIGUSR1)
        code, log = self.end(child)  # which waits for the last
        self.assertEqual(code, 0, log)
        found = self.bundles(2)
        self.assertLessEqual(len(found), 3)
        for each in found:
            self.assertIn("no communicator", self.contents(each)["why.txt"])
        self.assertIn(found[0], log)

    def test_to_working_ranks_disturb_none(self):
        ranks = self.launch("loop", "loop", timeout_ms=PATIENCE, TUTTI_BUNDLE_DIR=self.folder)
        for _ in range(20):
            ranks[0].child.send_signal(signal.SIGUSR1)
            time.sleep(0.01)
        self.assertIn("nothing wrong", self.contents(self.bundles()[0])["why.txt"])
        for rank in ranks:
            self.assertIsNone(rank.child.poll())

    def test_may_be_another_that_a_setting_names(self):
        number = int(signal.SIGUSR2)
        child, _ = self.run_program(TUTTI_BUNDLE_DIR=self.folder, NCCL_PROXY_DUMP_SIGNAL=str(number))
        child.send_signal(number)
        self.bundles()
        code, log = self.end(child)
        self.assertEqual(code, 0, log)
        self.assertIn(f"signal {number} came to process {child.pid}", log)

    def test_that_a_setting_names_has_the_log_told_without_a_folder(self):
        number = int(signal.SIGUSR2)
        ranks = self.launch("allreduce:8 allreduce:8", "allreduce:8 line", timeout_ms=PATIENCE, NCCL_PROXY_DUMP_SIGNAL=str(number))
        ranks[1].result("allreduce")
        self.pause(0.3)
        ranks[0].child.send_signal(number)
        patterns = [rf"WARN signal {number} came to process {ranks[0].child.pid}: what its ranks do",
                    r"WARN +rank 0 waits for a message from rank 1 in AllReduce #2 .*, for \d",
                    r"WARN +rank 0 (to|from) 1, collectives: shm; \d+ messages in"]  # fmt: skip
        began = time.monotonic()
        while not all(re.search(each, ranks[0].log) for each in patterns) and time.monotonic() < began + LIMIT:
            time.sleep(0.02)
        for each in patterns:
            self.assertRegex(ranks[0].log, each)
        self.assertNotRegex(ranks[1].log, "what its ranks do")
        ranks[1].say("go")  # nobody was disturbed
        self.assertEqual(ranks[1].result("line")[0], 0)
        self.assertEqual(os.listdir(self.folder), [])

    def test_that_a_setting_names_may_come_before_any_communicator(self):
        number = int(signal.SIGUSR2)
        child, _ = self.run_program(NCCL_PROXY_DUMP_SIGNAL=str(number))
        child.send_signal(number)
        code, log = self.end(child)
        self.assertEqual(code, 0, log)
        self.assertIn(f"signal {number} came to process {child.pid}", log)
        self.assertIn("no communicator is there", log)

    def test_that_the_program_handles_stay_its_own(self):
        before = "signal.signal(signal.SIGUSR1, lambda *_: print('mine', flush=True))"
        child, log = self.run_program(before, TUTTI_BUNDLE_DIR=self.folder)
        self.assertRegex("".join(log), "SIGUSR1 makes no bundle, since .* has it")
        child.send_signal(signal.SIGUSR1)
        self.assertEqual(child.stdout.readline(), "mine\n")
        self.assertEqual(self.end(child)[0], 0)
        self.assertEqual(os.listdir(self.folder), [])

    def test_that_the_program_ignores_stay_ignored(self):
        child, log = self.run_program("signal.signal(signal.SIGUSR1, signal.SIG_IGN)", TUTTI_BUNDLE_DIR=self.folder)
        self.assertIn("the program ignores it", "".join(log))
        child.send_signal(signal.SIGUSR1)
        self.assertEqual(self.end(child)[0], 0)
        self.assertEqual(os.listdir(self.folder), [])

    def test_that_all_threads_of_the_program_block_reach_the_library(self):
        before = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])"
        child, _ = self.run_program(before, TUTTI_BUNDLE_DIR=self.folder)
        child.send_signal(signal.SIGUSR1)
        self.bundles()
        self.assertEqual(self.end(child)[0], 0)

    def test_end_a_forked_child_as_they_would_without(self):
        after = """
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(1)
time.sleep(0.2)
os.kill(child, signal.SIGUSR1)
print("child", os.WTERMSIG(os.waitpid(child, 0)[1]), flush=True)
"""
        child, log = self.run_program(after=after, TUTTI_BUNDLE_DIR=self.folder)
        self.assertIn(f"child {signal.SIGUSR1.value}\n", log)
        self.assertEqual(self.end(child)[0], 0)
        self.assertEqual(os.listdir(self.folder), [])

    def test_are_left_alone_without_a_folder(self):
        child, _ = self.run_program()
        with open(f"/proc/{child.pid}/status") as status:
            caught = next(line for line in status if line.startswith("SigCgt"))
        self.assertEqual(int(caught.split()[1], 16) & SIGUSR1_BIT, 0)
        for task in os.listdir(f"/proc/{child.pid}/task"):
            with open(f"/proc/{child.pid}/task/{task}/comm") as name:
                self.assertNotEqual(name.read(), "tutti-bundle\n")
        child.send_signal(signal.SIGUSR1)
        self.assertEqual(child.wait(timeout=LIMIT), -signal.SIGUSR1)


class Verdicts(BundleCase):
    # The ranks end with a step that keeps them: they end by _Exit, which waits for no bundle.

    def test_on_a_dead_rank_leave_one_bundle_a_communicator(self):
        steps = "loop shrink:2:abort loop line"
        ranks = self.launch(steps, steps, "loop", TUTTI_BUNDLE_DIR=self.folder)
        self.wait_until_underway(ranks)
        killed = time.monotonic()
        ranks[2].child.kill()
        self.expect(ranks[:2], "loop", REMOTE, r"rank 2 \(.*\) died", killed)  # no later than without
        self.expect_success(ranks[:2], "shrink")
        (first,) = self.bundles()
        ranks[1].child.kill()
        self.assertEqual(ranks[0].result("loop", nth=1)[0], REMOTE)
        self.bundles(2)
        time.sleep(0.3)  # for one too many
        bundles = {path: self.contents(path) for path in self.bundles(2)}
        self.assertEqual(len(bundles), 2)
        files = bundles.pop(first)
        why = files["why.txt"]
        self.assertRegex(files["links.txt"], r"rank ([01]) (to|from) 2, collectives: shm; [1-9]\d* messages in")  # as at the verdict
        self.assertRegex(why, r"communicator \S+ has failed\n\ncommunicator \S+: rank 2 \(.*\) died")
        (second,) = bundles.values()
        self.assertRegex(second["why.txt"], r"rank 1 \(.*\) died")

    def test_on_a_frozen_rank_show_it_and_the_operations_before(self):
        ranks = self.launch("times:3:allreduce:8 loop line", "times:3:allreduce:8 loop", TUTTI_BUNDLE_DIR=self.folder)
        self.expect_success(ranks, "times")
        ranks[1].child.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        self.expect(ranks[:1], "loop", REMOTE, "not responding", stopped)
        (path,) = self.bundles()
        files = self.contents(path)
        self.assertRegex(files["why.txt"], r"rank 1 \(.*\) not responding")
        self.assertRegex(files["ranks.txt"], r"rank 1 \(.*\): stopped")
        self.assertIn("is stopped", files["threads.txt"])
        events = json.loads(files["trace.json"])["traceEvents"]
        kinds = {each["cat"] for each in events if each["ph"] == "X"}
        self.assertLessEqual({"done", "running", "wait"}, kinds)
        self.assertTrue(all(each["dur"] >= 0 for each in events if each["ph"] == "X"))
        self.assertIn("not responding", files["index.html"])
        self.assertIn('<rect class="running"', files["index.html"])

    def test_without_a_folder_leave_nothing(self):
        ranks = self.launch("loop", "loop", prefixes=[("env", "-C", self.folder)] * 2)
        ranks[1].child.kill()
        self.assertEqual(ranks[0].result("loop")[0], REMOTE)
        ranks[0].child.wait(timeout=LIMIT)
        self.assertEqual(os.listdir(self.folder), [])


class Links(BundleCase):
    """What is under way on each link of the process that makes the bundle, and the wait that is on it."""

    def links_of(self, rank):
        self.pause(0.3)
        rank.child.send_signal(signal.SIGUSR1)
        (path,) = self.bundles()
        return self.contents(path)["links.txt"]

    def test_over_memory_and_over_a_network_show_what_moved_and_who_waits(self):
        waiting = "times:5:allreduce:5000 recv:3:1000"
        ranks = self.launch(waiting, *["times:5:allreduce:5000 line"] * 3, timeout_ms=PATIENCE, TUTTI_BUNDLE_DIR=self.folder,
                            each=[{"NCCL_HOSTID": host} for host in ("here", "here", "there", "there")])  # fmt: skip
        self.expect_success(ranks, "times")
        text = self.links_of(ranks[0])
        self.assertRegex(text, r"^communicator \S+\n  rank 0 ")
        self.assertRegex(text, r"rank 0 (to|from) 1, collectives: shm; [1-9]\d* messages in, \d+ given back, \d+ of \d+ slots taken")
        for way in ("to [23], collectives: net.*given to", "from [23], collectives: net.*brought by"):
            self.assertRegex(text, rf"rank 0 {way} the network")
        self.assertNotRegex(text, r"collectives: net; .*; 0 messages")
        self.assertRegex(text, r"rank 0 from 3, sends and receives: net; 0 messages in, 0 given back, 0 of \d+ slots taken; 0 messages, 0 bytes brought by "
                               r"the network.*\n    rank 0 waits for a message from rank 3 in Recv .*, for \d+\.\d s\n")  # fmt: skip
        self.assertEqual(text.count(" waits "), 1)

    def test_that_are_full_say_so(self):
        # Rank 1 takes the first message only.
        ranks = self.launch("send:1:8 send:1:4000000", "recv:0:8 line", timeout_ms=PATIENCE, TUTTI_BUNDLE_DIR=self.folder)
        self.expect_success(ranks[1:], "recv")
        text = self.links_of(ranks[0])
        full = re.search(r"rank 0 to 1, sends and receives: shm; (\d+) messages in, (\d+) given back, (\d+) of (\d+) slots taken.*\n    rank 0 waits for a receive by rank 1",
                         text)  # fmt: skip
        self.assertTrue(full, text)
        self.assertGreater(int(full[3]), 0)
        self.assertEqual(int(full[1]), int(full[2]) + int(full[3]))

    def test_to_a_rank_that_has_offered_none_are_not_connected(self):
        ranks = self.launch("send:1:8", "line", timeout_ms=PATIENCE, TUTTI_BUNDLE_DIR=self.folder)
        self.assertRegex(self.links_of(ranks[0]), r"rank 0 to 1, sends and receives: not connected yet\n    rank 0 waits for ")

    def test_of_all_communicators_and_ranks_that_end_meanwhile(self):
        """Communicators come and go while the bundle's thread looks: none of what has gone is touched."""
        steps = " ".join(["split:0:0 allreduce:5000"] * 60 + ["line"])
        ranks = self.launch(steps, steps, timeout_ms=PATIENCE, TUTTI_BUNDLE_DIR=self.folder)
        for nth in range(0, 60, 5):
            ranks[0].result("split", nth=nth)
            ranks[0].child.send_signal(signal.SIGUSR1)
        self.expect_success(ranks, "allreduce", nth=59)
        self.bundles()


class FromOutside(BundleCase):
    def why(self, *arguments):
        if not TUTTI or not os.path.exists(TUTTI):
            self.skipTest("no tutti command")
        return subprocess.run([TUTTI, "why", *arguments], capture_output=True, text=True, timeout=LIMIT)

    def test_shows_all_ranks_of_the_host(self):
        steps = "allreduce:8", "allreduce:8", "line allreduce:8"
        ranks = self.launch(*steps, timeout_ms=PATIENCE)
        self.pause(0.3)
        path = self.folder + "/job.tar"
        result = self.why("--bundle", path, str(ranks[0].child.pid))
        self.assertEqual((result.returncode, result.stderr), (1, ""))
        self.assertRegex(result.stdout, r"rank 2 \(.*\) has not called AllReduce #1")
        files = self.contents(path)
        self.assertRegex(files["why.txt"], r"rank 2 \(.*\) has not called AllReduce #1")
        for rank in ranks:
            self.assertIn(f"process {rank.child.pid} (", files["threads.txt"])
            self.assertIn("NCCL_DEBUG=WARN", files[f"process-{rank.child.pid}/settings.txt"])
        self.assertEqual(self.why("--bundle", path, str(ranks[0].child.pid)).returncode, 1)  # replaced
        self.bundles()

    def test_says_where_it_cannot_write(self):
        ranks = self.launch("line", timeout_ms=PATIENCE)
        result = self.why("--bundle", self.folder + "/none/job.tar", str(ranks[0].child.pid))
        self.assertEqual(result.returncode, 3, result.stdout)
        self.assertIn("/none/job.tar: No such file", result.stderr)
        self.assertEqual(os.listdir(self.folder), [])


class Folders(BundleCase):
    def expect_one_line(self, folder, pattern):
        child, log = self.run_program(TUTTI_BUNDLE_DIR=folder)
        child.send_signal(signal.SIGUSR1)
        code, output = self.end(child)
        self.assertEqual(code, 0)
        lines = [line for line in output.splitlines() if "TUTTI_BUNDLE_DIR" in line]
        self.assertEqual(len(lines), 1, output)
        self.assertRegex(lines[0], pattern)
        return "".join(log)

    def test_that_are_missing_cost_a_line(self):
        folder = self.folder + "/none"
        log = self.expect_one_line(folder, "SIGUSR1 came .*is lost: cannot write .*No such file")
        self.assertIn(f"no bundle can be written to {folder}: No such file", log)
        self.assertEqual(os.listdir(self.folder), [])

    def test_that_are_files_cost_a_line(self):
        with open(self.folder + "/file", "w") as file:
            file.write("mine")
        self.expect_one_line(self.folder + "/file", "is lost: cannot write .*Not a directory")
        self.assertEqual(os.listdir(self.folder), ["file"])

    def test_of_others_cost_a_line(self):
        self.expect_one_line("/proc/self", "is lost: cannot write")

    def test_on_a_full_disk_keep_no_piece(self):
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tutti", self.folder], capture_output=True)
        if mounted.returncode != 0:
            self.skipTest("this user cannot mount a small disk")
        self.addCleanup(subprocess.run, ["umount", self.folder], check=True)
        self.expect_one_line(self.folder, "is lost: cannot write .*No space left")
        self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    unittest.main(verbosity=1)
