"""Ranks as processes (fault_rank) that a test kills, stops, starves or misleads; and the table of times.

The environment names the programs: FAULT_RANK, FAULT_INJECT (to preload) and FAULT_TUTTI, the last two if they were
built. Times go to the file FAULTS_TABLE, where table.py finds them.

A machine that gives nobody a CPU for half a second ends the patience T of ranks that are well, and makes others late. So
time in which it gave this process none does not count (Witness), and a test that fails is tried again with a longer T: of
three tries, each checks everything, bounds included, which grow by as much as T does. The table names what was tried again.

Each test has a row in the table without doing anything for it: that of the fault (keep_time), or else that of the whole test.
"""

import os
import re
import socket
import subprocess
import sys
import threading
import time
import unittest

RANK = os.environ["FAULT_RANK"]
INJECT = os.environ.get("FAULT_INJECT")
IS_SANITIZED = not INJECT  # the only build without it
TUTTI = os.environ.get("FAULT_TUTTI")

T = 0.5  # seconds: TUTTI_TIMEOUT_MS of the ranks unless a test says otherwise
BOUND = T + 1.5  # from the fault to the last survivor's error: T, and a margin for a loaded machine
PATIENCES = (1, 3, 9)  # times T, of the tries of a test
WHOLE_BOUND = 30.0  # of a test that keeps no time of its own
NO_STEPS = ("underway", "aborted", "left")  # of the lines that fault_rank prints
TRIED_AGAIN, SKIPPED = "tried again", "skipped"  # instead of a name, in the table
LIMIT = 120  # seconds, for what comes at once or in T: against hanging
SYSTEM, ARGUMENT, USAGE, REMOTE = 2, 4, 5, 6  # codes of nccl.h


def last_call(name):
    """How an error tells of a rank's last call of that name, whether that has ended or not."""
    return rf"; (it is in|its last call was) {name} (#\d+ )?\("


# What init is at, in the words of its errors.
INIT_PHASES = r"should meet|did not come within|had come|exchange of addresses|agreement on|sharing of the board"


def by_process(rank):
    """How errors name that rank's process: as that of the rank, or as that which made the id."""
    host = socket.gethostname()
    short = re.escape(host.split(".")[0][:19])
    return rf"rank {rank.rank} \({re.escape(host[:64])}(:|, pid ){rank.child.pid}\)|process {rank.child.pid} on {short}"


class Witness(threading.Thread):
    """Sleeps for short whiles, and knows when it was not woken in time: then nobody was."""

    NAP = 0.01

    def __init__(self):
        super().__init__(daemon=True)
        self.stalls = []  # (from, until)
        self.start()

    def run(self):
        while True:
            due = time.monotonic() + self.NAP
            time.sleep(self.NAP)
            now = time.monotonic()
            if now > due + self.NAP:
                self.stalls.append((due, now))

    def stalled(self, since, until):
        """Seconds of that time."""
        return sum(max(0.0, min(end, until) - max(begin, since)) for begin, end in self.stalls)


WITNESS = Witness()


class Process:
    """One rank. `results` holds (step, code, moment, message) in order, `log` what else it printed."""

    def __init__(self, rank, count, steps, environment, prefix=()):
        self.rank = rank
        self.steps = len(steps) + (not any(step.startswith("init") for step in steps))
        self.results = []
        self.log = ""
        self.log_afterwards = ""  # of the communicator that it makes after its steps
        self.arrived = threading.Condition()
        self.child = subprocess.Popen(
            [*prefix, RANK, str(rank), str(count), *steps],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
        )
        self.reader = None

    def wait_until_ready(self):
        """The job's id, of rank 0."""
        for line in self.child.stdout:
            if line.startswith("id "):
                return line.split()[1]
            if line.startswith("ready"):
                return None
            self.log += line
        raise AssertionError(f"rank {self.rank} ended before it began: {self.log}")

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
            match = re.match(r"([a-z][\w:,.-]*) (\d+) (\d+) (.*)", line)
            if match is None and self.has_done_all():
                self.log_afterwards += line
                continue
            if match is None:
                self.log += line
                continue
            with self.arrived:
                self.results.append((match[1], int(match[2]), time.monotonic(), match[4].replace("\\n", "\n")))
                self.arrived.notify_all()

    def result(self, step, timeout=LIMIT, nth=0):
        """(code, moment, message) of a step whose text begins so: the first, or the nth after it."""
        deadline = time.monotonic() + timeout
        with self.arrived:
            while True:
                found = [each[1:] for each in self.results if each[0].startswith(step)]
                if len(found) > nth:
                    return found[nth]
                left = deadline - time.monotonic()
                if left <= 0 or (self.reader and not self.reader.is_alive()):
                    raise AssertionError(f"rank {self.rank}: no result of {step}; has {self.results}; {self.log}")
                self.arrived.wait(min(left, 0.2))

    def has_done_all(self):
        return sum(result[0] not in NO_STEPS for result in list(self.results)) == self.steps

    def is_done(self):
        """All its steps are, and nobody ended it before it had looked at what it left behind."""
        return self.has_done_all() and not self.child.poll()

    def end(self):
        self.child.kill()
        self.child.wait()
        if self.reader:
            self.reader.join()
        for stream in (self.child.stdin, self.child.stdout):
            stream.close()


def record(*fields):
    path = os.environ.get("FAULTS_TABLE")
    if path:
        with open(path, "a") as table:  # one write: several tests may append at once
            table.write("\t".join(fields) + "\n")


class FaultCase(unittest.TestCase):
    patience = PATIENCES[0]
    usual_T = T
    looks_afterwards = True  # whether each rank says in the end what it holds that it did not hold at first
    timeout = T  # of the ranks launched last, in the first try
    whole_bound = WHOLE_BOUND

    def run(self, result=None):
        for self.patience in PATIENCES:
            self.rows = []
            is_last = self.patience == PATIENCES[-1]
            trial = result if is_last else unittest.TestResult()
            already_skipped = len(trial.skipped)
            self.addCleanup(self.keep_whole_time, time.monotonic())  # the last one
            super().run(trial)
            if is_last or trial.wasSuccessful():
                break
            for _, text in trial.failures + trial.errors:
                print(f"{self.id()} is tried again, after a T of {self.own_T:g} s:\n{text}", file=sys.stderr)
                record(TRIED_AGAIN, self.title(), text.strip().splitlines()[-1])
        if len(trial.skipped) > already_skipped:
            self.rows = [(SKIPPED, self.title(), trial.skipped[-1][1])]
        for row in self.rows:
            record(*row)
        return result if is_last else self.pass_on(trial, result)

    def keep_whole_time(self, since):
        """`whole_bound` is that of the first try, of a program without a sanitizer."""
        if self.rows:
            return
        seconds = self.taken(since)
        bound = self.whole_bound * self.patience * (4 if IS_SANITIZED else 1)
        self.rows.append((self.title() + " (whole test)", f"{seconds:.3f}", f"{bound:.3f}"))
        self.assertLess(seconds, bound)

    def pass_on(self, trial, result):
        result.startTest(self)
        if trial.skipped:
            result.addSkip(self, trial.skipped[-1][1])
        else:
            result.addSuccess(self)
        result.stopTest(self)
        return result

    @property
    def own_T(self):
        """That of the ranks, in this try, unless the test gives them another one."""
        return self.usual_T * self.patience

    def pause(self, seconds):
        """For ranks to get somewhere that shows by nothing; more of it where time was too short."""
        time.sleep(seconds * self.patience)

    def taken(self, since, until=None):
        """Seconds between the two moments, or to now, in which this machine ran."""
        until = until or time.monotonic()
        return until - since - WITNESS.stalled(since, until)

    def launch(self, *steps_by_rank, timeout_ms=int(T * 1000), expect_init=True, inject=False, each=(), prefixes=(), **settings):
        """Starts the ranks together, once all of them are ready, and waits for their init unless told not to.

        `settings` are for all ranks, each[rank] for one; `timeout_ms` is multiplied by this try's patience. `inject` preloads FAULT_INJECT. prefixes[rank]: words before
        the command, which end in its place.
        """
        environment = dict(os.environ, TUTTI_TIMEOUT_MS=str(timeout_ms * self.patience), NCCL_DEBUG="WARN")
        if self.looks_afterwards:
            environment["FAULT_LOOKS"] = "1"
        self.timeout = timeout_ms / 1000
        if inject:
            if not INJECT:
                self.skipTest("no fault injection under a sanitizer")
            environment["LD_PRELOAD"] = INJECT
        environment.update(settings)
        count = len(steps_by_rank)
        ranks = []
        for rank, steps in enumerate(steps_by_rank):
            own = environment | (each[rank] if each else {})
            ranks.append(Process(rank, count, steps.split(), own, prefixes[rank] if prefixes else ()))
            self.addCleanup(ranks[-1].end)
        if self.looks_afterwards:
            self.addCleanup(self.expect_nothing_left, ranks)  # before they are ended
        ids = [rank.wait_until_ready() for rank in ranks]
        for rank in ranks:
            rank.start(ids[0])
        if expect_init:
            self.expect_success(ranks, "init")
        return ranks

    def expect_nothing_left(self, ranks):
        """Of those that came to their end, whatever befell them: that is the same for all tests."""
        for rank in ranks:
            if rank.is_done():
                code, _, message = rank.result("left")
                self.assertEqual((code, message), (0, ""), f"rank {rank.rank} afterwards\n{rank.log}{rank.log_afterwards}")
        # Others use this folder, too. Names of ours would have the number of a process.
        mine = {str(rank.child.pid) for rank in ranks}
        left = [name for name in os.listdir("/dev/shm") if mine & set(re.findall(r"\d+", name))]
        self.assertEqual(left, [], "in /dev/shm")

    def wait_until_underway(self, ranks, nth=0):
        """In their loops, whose links are there: who dies before is missed by the bootstrap, in other words."""
        self.expect_success(ranks, "underway", nth=nth)
        time.sleep(0.02)

    def expect_success(self, ranks, step, nth=0):
        for rank in ranks:
            code, _, message = rank.result(step, nth=nth)
            self.assertEqual(code, 0, f"rank {rank.rank}, {step}: {message}\n{rank.log}")

    def expect(self, ranks, step, code, pattern, since, bound=BOUND, name=None):
        """All of them fail so, within the bound of the fault."""
        slowest = 0.0
        for rank in ranks:
            got, moment, message = rank.result(step)
            self.assertEqual(got, code, f"rank {rank.rank}: {message}\n{rank.log}")
            self.assertRegex(message, pattern, f"rank {rank.rank}")
            slowest = max(slowest, self.taken(since, moment))
        self.keep_time(slowest, bound, name)

    def keep_time(self, seconds, bound, name=None):
        """`bound` is that of the first try. One that is not shorter than T has T in it."""
        if self.timeout <= bound:
            bound += (self.patience - 1) * self.timeout
        self.rows.append((self.title(name), f"{seconds:.3f}", f"{bound:.3f}"))
        self.assertLess(seconds, bound)

    def title(self, name=None):
        method = name or self.id().split(".")[-1].removeprefix("test_")
        return f"{type(self).__name__}: {method.replace('_', ' ')}"


class HostEach(FaultCase):
    """Each rank on a host of its own: no rank sees another's page, so each asks the others' processes."""

    def launch(self, *steps, **options):
        hosts = [{"NCCL_HOSTID": f"host{rank}"} for rank in range(len(steps))]
        # One thread of sockets, however many CPUs there are: what is left in the end is counted.
        return super().launch(*steps, each=hosts, NCCL_SOCKET_IFNAME="lo", NCCL_SOCKET_NTHREADS="1", NCCL_NSOCKS_PERTHREAD="1", **options)
