#!/usr/bin/env python3
"""Runs torch's own tests of torch.distributed with Gloo and with tutti in Gloo's place, and compares.

    scripts/torch_suite.py [--world 3] [--match TEXT] [--out FILE.json]

The tests are those of torch.testing._internal.distributed.distributed_test, on CPU tensors, with ranks as forked
processes. They ask for the backend by its name and skip what they do not know, so tutti answers to the name "gloo".
Needs torch with its tests, expecttest, and the package tutti. Exits 1 when a test passes with Gloo and not with tutti.
"""

import argparse
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import unittest


def run_child(under):
    """In a process of its own: unittest's main over torch's class."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    if under == "tutti":
        import tutti.torch
        gloo = distributed_c10d.ProcessGroupGloo

        class Instead(type):
            def __instancecheck__(cls, instance):
                return isinstance(instance, (tutti.torch.ProcessGroupTutti, gloo))

        class ProcessGroupGloo(metaclass=Instead):
            def __new__(cls, store, rank, size, timeout):
                # The helper that checks ranks' calls against each other in debug mode is Gloo's by its type.
                if sys._getframe(1).f_code.co_name == "_create_process_group_wrapper":
                    return gloo(store, rank, size, timeout=timeout)
                return tutti.torch.create(store, rank, size, timeout)

        distributed_c10d.ProcessGroupGloo = ProcessGroupGloo
        dist.ProcessGroupGloo = ProcessGroupGloo
    from torch.testing._internal.distributed import distributed_test

    if under == "tutti":  # under its own name in profiles
        of_gloo = distributed_test.get_profiling_event

        def of_tutti(name, profiler):
            events = of_gloo(name.replace("gloo:", "tutti:"), profiler)
            for event in events:
                event.name = event.name.replace("tutti:", "gloo:")
            return events

        distributed_test.get_profiling_event = of_tutti

    class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self.processes = []
            self._start_processes(multiprocessing.get_context("fork").Process)

    sys.modules["__main__"].Suite = Suite
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[1:]], verbosity=2)


def outcomes(under, arguments):
    command = [sys.executable, __file__]
    if arguments.match:
        command += ["-k", arguments.match]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "SUITE_UNDER": under, "BACKEND": "gloo", "WORLD_SIZE": str(arguments.world),
                       "TEMP_DIR": folder, "OMP_NUM_THREADS": "1", "TUTTI_DEVICE": "host", "INIT_METHOD": "env://"}
        with open(f"{arguments.log}.{under}", "w", encoding="utf-8") as log:
            subprocess.run(command, env=environment, stdout=log, stderr=subprocess.STDOUT, timeout=3600, check=False)
    with open(f"{arguments.log}.{under}", encoding="utf-8", errors="replace") as log:
        text = log.read()
    told = {}
    # A test's line begins with its name; what its ranks print may stand between that and the verdict.
    parts = re.split(r"^(test_\w+) \([\w.<>]+\)", text.split("\n=====")[0], flags=re.MULTILINE)
    for name, rest in zip(parts[1::2], parts[2::2]):
        verdict = re.search(r"(?:\.\.\. |^)(ok|skipped|FAIL|ERROR)\b", rest, re.MULTILINE)
        told.setdefault(name, verdict.group(1) if verdict else "no verdict")
    return told


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--world", type=int, default=3, help="ranks")
    parser.add_argument("--match", help="tests whose names hold this text")
    parser.add_argument("--out", help="writes the outcomes as JSON")
    parser.add_argument("--log", default="build/torch-suite", help="prefix of the logs")
    arguments = parser.parse_args()
    told = {under: outcomes(under, arguments) for under in ("gloo", "tutti")}
    names = sorted(told["gloo"].keys() | told["tutti"].keys())
    for under, each in told.items():
        counts = {verdict: list(each.values()).count(verdict) for verdict in sorted(set(each.values()))}
        print(f"{under}: {counts}")
    worse = [name for name in names if told["gloo"].get(name) == "ok" and told["tutti"].get(name) != "ok"]
    better = [name for name in names if told["gloo"].get(name) in ("FAIL", "ERROR") and told["tutti"].get(name) == "ok"]
    for title, which in (("pass with Gloo alone", worse), ("pass with tutti alone", better)):
        print(f"{title}: {len(which)}")
        for name in which:
            print(f"  {name}: gloo {told['gloo'].get(name)}, tutti {told['tutti'].get(name)}")
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(told, file, indent=1)
    sys.exit(1 if worse else 0)


if __name__ == "__main__":
    if "SUITE_UNDER" in os.environ:
        run_child(os.environ["SUITE_UNDER"])
    else:
        main()
