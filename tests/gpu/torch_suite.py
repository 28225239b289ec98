#!/usr/bin/env python3
"""PyTorch's own tests of its NCCL backend (torch.testing._internal.distributed.distributed_test), with whichever
libnccl.so.2 is loaded; then those that failed with another, which they should not pass.

    LD_PRELOAD=build/cuda/lib/libnccl.so.2 tests/gpu/torch_suite.py --json ours.json
    tests/gpu/torch_suite.py --failed-in ours.json

Needs PyTorch with CUDA and the package expecttest; exit code 77 where PyTorch has no such tests. Several tests run at the same time, each in processes of its own,
forked from here, where PyTorch is imported once: ranks that import it themselves, as PyTorch starts them, take most of a test's time for that.
"""
import argparse
import json
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
import unittest
import unittest.mock

RANKS = 2


def load():
    """The test class, made as PyTorch's test_distributed_spawn.py makes it, but for ranks that are forked."""
    # By NVML, the count of GPUs leaves CUDA alone: each test may then use it in the process that is forked from here.
    os.environ.update(BACKEND="nccl", WORLD_SIZE=str(RANKS), PYTORCH_NVML_BASED_CUDA_CHECK="1")
    os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())
    from torch.testing._internal.common_utils import TestCase
    from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend

    class TestDistBackendWithFork(TestDistBackend, DistributedTest._DistTestBase):
        def setUp(self):
            # PyTorch's own preparation of a test looks at the GPU, which a process that forks ranks must not.
            with unittest.mock.patch.object(TestCase, "setUp", lambda self: None):
                super().setUp()
            self._start_processes(multiprocessing.get_context("fork").Process)

    return TestDistBackendWithFork


def run_one(test_class, name):
    """passed, skipped or failed, and why: one test, in this process."""
    result = unittest.TestResult()
    unittest.TestSuite([test_class(name)]).run(result)
    if result.skipped:
        return "skipped", result.skipped[0][1]
    problems = result.errors + result.failures
    return ("failed", problems[0][1][-1500:]) if problems else ("passed", "")


class Running:
    """A test in a session of its own, which ends with all its processes."""

    def __init__(self, test_class, name, seconds):
        self.name = name
        self.seconds = seconds
        self.file = tempfile.TemporaryFile("w+")
        self.began = time.monotonic()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
            try:
                json.dump(run_one(test_class, name), self.file)
                self.file.flush()
            finally:
                os._exit(0)

    def poll(self):
        """(outcome, text, seconds), or None while it runs."""
        took = time.monotonic() - self.began
        ended, status = os.waitpid(self.pid, os.WNOHANG)
        if not ended and took < self.seconds:
            return None
        try:
            os.killpg(self.pid, signal.SIGKILL)  # ranks that outlive their test
        except ProcessLookupError:
            pass
        if not ended:
            os.waitpid(self.pid, 0)
            return "failed", f"no end within {self.seconds} s", took
        self.file.seek(0)
        try:
            outcome, text = json.load(self.file)
        except ValueError:
            outcome, text = "failed", f"wait status {status}"
        return outcome, text, took


def run_all(test_class, names, options):
    outcomes = {}
    waiting = list(reversed(names))
    running = []
    deadline = time.monotonic() + options.within if options.within else None
    while waiting or running:
        if deadline and time.monotonic() > deadline:
            for name in waiting:
                outcomes[name] = ("not run", "", 0)
            waiting = []
        while waiting and len(running) < options.jobs:
            running.append(Running(test_class, waiting.pop(), options.timeout))
        for test in list(running):
            told = test.poll()
            if told:
                running.remove(test)
                outcomes[test.name] = told
        time.sleep(0.02)
    return outcomes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", default=".", help="a regular expression of test names")
    parser.add_argument("--jobs", type=int, default=max(2, min(8, (os.cpu_count() or 2) // 3)), help="tests at a time, of two ranks each")
    parser.add_argument("--timeout", type=int, default=90, help="seconds for a test")
    parser.add_argument("--within", type=int, help="seconds after which no further test is begun")
    parser.add_argument("--json", help="write outcomes to this file")
    parser.add_argument("--beyond", help="outcomes of an earlier run: those that were not run there")
    parser.add_argument("--failed-in", help="outcomes of another library's run: those that failed there; to pass them is a failure")
    options = parser.parse_args()
    try:
        test_class = load()
    except ImportError as error:
        print(f"skipped: this PyTorch has no such tests: {error}")
        return 77
    names = [name for name in dir(test_class) if name.startswith("test_") and re.search(options.tests, name)]
    if options.beyond:
        known = json.load(open(options.beyond))
        names = [name for name in names if known.get(name, ["not run"])[0] == "not run"]
    if options.failed_in:
        known = json.load(open(options.failed_in))
        names = [name for name in names if known.get(name, [""])[0] == "failed"]
    outcomes = run_all(test_class, names, options)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(outcomes, file, indent=1)
    return judge(outcomes, options)


def judge(outcomes, options):
    kinds = ("passed", "skipped", "failed", "not run")
    print(" ".join(f"{sum(told[0] == kind for told in outcomes.values())} {kind}" for kind in kinds))
    for name, (kind, text, _) in outcomes.items():
        if kind == "failed" and not options.failed_in:
            print(f"{name}: {text[-300:]}")
        elif kind == "passed" and options.failed_in:
            print(f"FAIL: passes with this library only: {name}")
    if options.failed_in:
        return 1 if any(told[0] in ("passed", "not run") for told in outcomes.values()) else 0
    return 0 if any(told[0] == "passed" for told in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
