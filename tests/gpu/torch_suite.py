#!/usr/bin/env python3
"""PyTorch's own tests of its NCCL backend (torch.testing._internal.distributed.distributed_test), with whichever
libnccl.so.2 is loaded; what passes is compared with another run.

    tests/gpu/torch_suite.py --json nccl.json
    LD_PRELOAD=build/cuda/lib/libnccl.so.2 tests/gpu/torch_suite.py --json ours.json --against nccl.json

Needs PyTorch with CUDA and the package expecttest. Several tests run at the same time, each in processes of its own.
"""
import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile

RANKS = 2


def load():
    """The test class, made as PyTorch's test_distributed_spawn.py makes it."""
    os.environ.update(BACKEND="nccl", WORLD_SIZE=str(RANKS))
    os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())
    from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend

    class TestDistBackendWithSpawn(TestDistBackend, DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._spawn_processes()

    TestDistBackendWithSpawn.__module__ = "__main__"
    TestDistBackendWithSpawn.__qualname__ = "TestDistBackendWithSpawn"
    return TestDistBackendWithSpawn


# The ranks of a test are processes that import this file and want its class here.
if "--one" in sys.argv:
    TestDistBackendWithSpawn = load()


def run_one(name):
    """passed, skipped or failed: one test, in this process."""
    import unittest
    result = unittest.TestResult()
    unittest.TestSuite([TestDistBackendWithSpawn(name)]).run(result)
    if result.skipped:
        return "skipped", result.skipped[0][1]
    problems = result.errors + result.failures
    return ("failed", problems[0][1][-1500:]) if problems else ("passed", "")


def start(name, seconds):
    try:
        run = subprocess.run([sys.executable, __file__, "--one", name], capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return name, "failed", f"no end within {seconds} s"
    last = run.stdout.strip().splitlines()[-1:] or [""]
    try:
        outcome, text = json.loads(last[0])
    except ValueError:
        outcome, text = "failed", f"exit {run.returncode}: {run.stderr[-1500:]}"
    return name, outcome, text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--tests", default=".", help="a regular expression of test names")
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--timeout", type=int, default=90, help="seconds for a test")
    parser.add_argument("--json", help="write outcomes to this file")
    parser.add_argument("--against", help="outcomes of another run: what passed there has to pass here")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(run_one(options.one)))
        return 0
    other = json.load(open(options.against)) if options.against else {}
    names = [name for name in dir(load()) if name.startswith("test_") and re.search(options.tests, name)]
    if other:
        names = [name for name in names if other.get(name, ["passed"])[0] == "passed"]
    outcomes = {}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for name, outcome, text in pool.map(lambda name: start(name, options.timeout), names):
            outcomes[name] = (outcome, text)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(outcomes, file, indent=1)
    counts = {kind: sum(1 for outcome, _ in outcomes.values() if outcome == kind)
              for kind in ("passed", "skipped", "failed")}
    print(" ".join(f"{count} {kind}" for kind, count in counts.items()))
    lost = [name for name, (outcome, _) in outcomes.items() if outcome != "passed" and other.get(name, [""])[0] == "passed"]
    for name in lost:
        print(f"passes with the other library only: {name}: {outcomes[name][1][-300:]}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
