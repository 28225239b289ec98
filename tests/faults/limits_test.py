"""Ranks that the system denies something: descriptors, memory, threads. An error that says what, on all ranks; no crash,
no leak, and the process can go on."""

import os
import re
import subprocess
import time
import unittest

from harness import BOUND, IS_SANITIZED, RANK, REMOTE, SYSTEM, USAGE, FaultCase, HostEach

WORK = "init allreduce:100 allreduce:200000"
SKIPPED = 98  # fault_rank's: no communicator, or no memory of its own
NO_MEMORY = r"out of memory|Cannot allocate memory|start thread|std::bad_alloc"
FULL = bool(os.environ.get("FAULTS_FULL"))


class Limits(FaultCase):
    UNNEEDED = ()  # what ranks do without

    def setUp(self):
        self.told = []

    def starve(self, before, after, pattern, work=WORK, first="", **options):
        """Rank 1 works between the steps `before` and `after`, and does `first` before; True when it had all it needed.

        Otherwise it gets ncclSystemError with the pattern, which goes to `told`, and rank 0 an error that names rank 1. Where rank 0
        hears of it first, and so fails before, it may name rank 0: then its log has the pattern.
        """
        began = time.monotonic()
        ranks = self.launch(f"{first} {work} solo", f"solo fds {first} {before} {work} {after} solo destroy fds", expect_init=False, inject=True, **options)
        self.expect_success(ranks, "solo", nth=0)
        self.expect_success([ranks[1]], "solo", nth=1)
        for rank in ranks:
            rank.reader.join()
            self.assertEqual(rank.child.wait(), 0, rank.log)
        calls = ("init", "allreduce")
        outcomes = [[each for each in rank.results if each[0].startswith(calls) and each[1] != SKIPPED] for rank in ranks]
        bad = [each for each in outcomes[1] if each[1] != 0]
        if bad:
            code, message = bad[0][1], bad[0][3]
            if code == USAGE and any(each[1] == SKIPPED for each in ranks[1].results):
                pattern = "call different things"  # the test's program had no memory for its first call
            elif code == USAGE and "ended: std::bad_alloc" in ranks[1].log:
                pattern = "wait for each other"  # the log tells the cause, the verdict only sees the waits
            elif code == REMOTE:
                self.assertTrue(any(each[1] != 0 for each in outcomes[0]), f"{message}\n{outcomes[0]}")
                self.assertRegex(ranks[1].log, pattern)
                pattern = r"rank 0\b"
            else:
                self.assertEqual(code, SYSTEM, message)
                self.told.append(message)
            self.assertRegex(message, pattern)
        for step, code, moment, message in outcomes[0]:
            if code != 0:
                # A call that had no memory is one that its rank did not make: its next one is compared with ours.
                self.assertIn(code, (REMOTE, USAGE), message)
                self.assertRegex(message, r"rank 1\b" if code == REMOTE else "call different things|wait for each other")
            self.keep_time(self.taken(began, moment), BOUND + 1, f"{self.id().split('test_')[-1]}")
        fds = [int(result[3]) for result in ranks[1].results if result[0] == "fds"]
        # What the process keeps from the first communicator of several processes on: the handoff socket and its poller.
        self.assertLessEqual(fds[1], fds[0] + 6, ranks[1].results)
        return not bad

    def test_of_descriptors_at_every_step(self):
        succeeded = False
        for limit in range(3, 64, 1 if FULL else 2):
            succeeded = self.starve(f"limit:nofile:{limit}", "limit:nofile:max", rf"needs one more file descriptor, but the limit of (this process|process \d+) is {limit} \(ulimit -n\)")
            if succeeded:
                break
        self.assertTrue(succeeded, "64 descriptors are not enough")
        self.assertGreater(len(self.told), 2)

    def test_of_memory_in_files_at_every_step(self):
        self.sweep("memfd", r"memfd_create .*: Operation not permitted")

    def test_of_room_in_files_at_every_step(self):
        self.sweep("truncate", r"ftruncate .*: No space left")

    def test_of_mappings_at_every_step(self):
        self.sweep("mmap", r"mmap .*: Cannot allocate memory|out of memory|start thread")

    def test_of_threads_at_every_step(self):
        self.sweep("thread", r"start thread .*: Resource temporarily unavailable")

    def test_of_allocations_at_many_steps(self):
        """Once each: the test's own program needs memory too. memory_test.cc has them all."""
        self.sweep("malloc", NO_MEMORY, step=1 if FULL else 41, persistent=[""])

    def test_of_allocations_in_a_long_call_with_helpers(self):
        """Of some that fail nobody hears: there are fewer helpers then. So until many in a row did no harm."""
        unharmed = nth = 0
        while unharmed < 20:
            is_good = self.starve(
                f"inject:malloc:{nth}",
                "inject:malloc:-1",
                NO_MEMORY,
                first="init allreduce:100",
                work="allreduce:1200000 allreduce:1200000",
                TUTTI_HELPER_THREADS="1",
            )
            unharmed = unharmed + 1 if is_good else 0
            nth += 1
        self.assertGreater(nth, 40)
        self.assertTrue(self.told)

    def sweep(self, kind, pattern, step=1, persistent=("", ":all")):
        """The first, second, ... call fails, and all later ones: until the work needs no more of them."""
        for manner in persistent:
            nth = 0
            self.told = []
            while not self.starve(f"inject:{kind}:{nth}{manner}", f"inject:{kind}:-1", pattern) or nth < 2:
                nth += step
                self.assertLess(nth, 5000)
            self.assertEqual(bool(self.told), kind not in self.UNNEEDED, f"errors told of {kind}{manner}")


class Lives(FaultCase):
    """Of communicators of two processes, which come and go: in the end each process holds what it held after the first ten."""

    TIMES = 10_000 if FULL else 300
    whole_bound = 30 + TIMES / 25

    def lead(self, **settings):
        steps = f"lives:{self.TIMES} destroy"
        ranks = self.launch(steps, steps, timeout_ms=5000, **settings)
        for rank in ranks:
            code, _, message = rank.result("lives", timeout=self.whole_bound * self.patience)
            self.assertEqual(code, 0, message)
        self.expect_success(ranks, "destroy")

    def test_over_shared_memory_leave_nothing_behind(self):
        self.lead()

    def test_between_hosts_leave_nothing_behind(self):
        self.lead(each=[{"NCCL_HOSTID": "one"}, {"NCCL_HOSTID": "other"}])


class LimitsBetweenHosts(HostEach, Limits):
    UNNEEDED = ("memfd", "truncate")  # rings of links between hosts may lie in memory of the process's own


def shared_kib(ranks):
    """Of the library's segments, a rank: what is mapped by two is counted half for each."""
    total = 0
    for rank in ranks:
        is_ours = False
        with open(f"/proc/{rank.child.pid}/smaps") as lines:
            for line in lines:
                if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                    is_ours = "/memfd:tutti" in line
                elif is_ours and line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total / len(ranks)


class SharedMemory(FaultCase):
    """What ranks touch of it, until they use large messages: 4 MiB each, also where each has links to 63 others."""

    MOST_KIB = 4 << 10
    SHORT = [f"{call}:100" for call in ("allreduce", "allgather", "reducescatter", "alltoall", "sendrecv")]
    SHORT += [f"{call}:100:0" for call in ("broadcast", "reduce", "gather", "scatter")]

    def test_of_short_calls_is_little(self):
        for count in (2, 8, 16, 64):
            most = 64 + 132 * count  # a ring of short messages from each other rank
            self.measure(count, ["line"], 16)
            for algorithm in ("ring", "oneshot", "twoshot", "tree", "doubling", "pat"):
                self.measure(count, ["times:200:allreduce:2", "line"], most, NCCL_ALGO=f"allreduce:{algorithm}")
            self.measure(count, [*(f"times:200:{call}" for call in self.SHORT), "line"], most + 264)

    def measure(self, count, steps, most, **settings):
        ranks = self.launch(*[" ".join(steps)] * count, timeout_ms=20000, **settings)
        for nth in range(len(steps) - 1):
            self.expect_success(ranks, "times", nth)
        self.assertLess(shared_kib(ranks), min(most, self.MOST_KIB), f"KiB a rank, {count} ranks, {steps[0]} {settings}")
        for rank in ranks:
            rank.say("go")


class Resources(FaultCase):
    def test_of_memory_for_the_board_cost_only_the_diagnosis(self):
        ranks = self.launch("inject:memfd:0 init allreduce:1000 destroy", "init allreduce:1000 destroy", inject=True)
        self.expect_success(ranks, "destroy")
        self.assertRegex(ranks[0].log, "WARN rank 0 shares no board, .* memfd_create")

    def test_of_locked_memory_and_stack_are_not_needed(self):
        for stack in ("262144", "max"):
            steps = f"limit:memlock:0 limit:stack:{stack} init times:5:allreduce:100000 destroy"
            ranks = self.launch(steps, steps, timeout_ms=5000)
            self.expect_success(ranks, "destroy")

    def test_of_threads_by_the_system_end_in_an_error(self):
        """As in a container with few: of a user that is not root, whom the limit does not bind."""
        become = ["setpriv", "--reuid=65533", "--clear-groups", "--no-new-privs"]
        if os.geteuid() != 0 or subprocess.run([*become, RANK], capture_output=True, check=False).returncode != 2:
            self.skipTest("cannot run what was built here as another user")
        ranks = self.launch("limit:nproc:1 init allreduce:1000 limit:nproc:max solo", "init allreduce:1000 solo", expect_init=False, prefixes=[become] * 2)
        self.expect(ranks, "init", SYSTEM, r"rank 0 \(.*: start thread .*Resource temporarily unavailable; .* 1 threads and processes \(ulimit -u\)", time.monotonic())
        self.expect_success(ranks, "solo")

    def test_of_address_space_end_in_an_error(self):
        if IS_SANITIZED:
            self.skipTest("a sanitizer ends the program where it gets no address space")
        failed = []
        for megabytes in (24, 40, 80, 160, 400):
            with self.subTest(megabytes):
                steps = f"limit:as:{megabytes << 20} init allreduce:1000 limit:as:max solo"
                ranks = self.launch(steps, "init allreduce:1000 solo", expect_init=False)
                self.expect_success(ranks, "solo")
                errors = [[each for each in rank.results if each[1] not in (0, SKIPPED)] for rank in ranks]
                for _, code, _, message in errors[0]:
                    failed.append(megabytes)
                    self.assertEqual(code, SYSTEM, message)
                    self.assertRegex(message, rf"out of memory|address space is limited to {megabytes << 10} KiB \(ulimit -v\)")
                for _, code, _, message in errors[1]:
                    self.assertIn(code, (SYSTEM, REMOTE), message)  # as rank 0 failed, or that it has
                    self.assertRegex(message, r"rank 0 \(")
                self.assertEqual(bool(errors[0]), bool(errors[1]), "rank 1 is told of what rank 0 lacks")
        self.assertIn(24, failed)
        self.assertNotIn(400, failed)

    def test_of_dev_shm_do_not_matter(self):
        ranks = self.launch("allreduce:100000 line", "allreduce:100000 line")
        self.expect_success(ranks, "allreduce")
        for rank in ranks:
            with open(f"/proc/{rank.child.pid}/maps") as maps:
                names = set(re.findall(r"(?:/dev/shm/|/memfd:)\S*", maps.read()))
            self.assertTrue(names)
            self.assertTrue(all(name.startswith("/memfd:tutti-") for name in names), names)

    def test_of_shared_memory_cannot_be_changed_from_outside(self):
        ranks = self.launch("allreduce:100000 line allreduce:100", "allreduce:100000 line allreduce:100")
        self.expect_success(ranks, "allreduce:100000")
        folder = f"/proc/{ranks[0].child.pid}/fd"
        tried = 0
        for name in os.listdir(folder):
            path = f"{folder}/{name}"
            if not os.readlink(path).startswith("/memfd:tutti-"):
                continue
            tried += 1
            for size in (0, 1 << 30):
                with self.assertRaises(PermissionError):
                    os.truncate(path, size)
        self.assertGreater(tried, 0)
        for rank in ranks:
            rank.say("go")
        self.expect_success(ranks, "allreduce:100")

    def test_of_the_log_file_do_not_stop_a_run(self):
        for path in ("/dev/full", "/nowhere/log", "/proc/self/mem", "/"):
            with self.subTest(path):
                ranks = self.launch("allreduce:8 destroy", "allreduce:8 destroy", NCCL_DEBUG="INFO", NCCL_DEBUG_FILE=path)
                self.expect_success(ranks, "destroy")
                for rank in ranks:
                    rank.reader.join()
                    warnings = [line for line in rank.log.splitlines() if "WARN" in line and path in line]
                    self.assertLessEqual(len(warnings), 1, rank.log)
                    self.assertTrue(warnings, rank.log)


if __name__ == "__main__":
    unittest.main(verbosity=1)
