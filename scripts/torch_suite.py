#!/usr/bin/env python3
"""Runs torch's own tests of torch.distributed with Gloo and with tutti in Gloo's place, and compares: prints a table.

    scripts/torch_suite.py [--world 3] [--match TEXT] [--out FILE.json]

The tests are those of torch.testing._internal.distributed.distributed_test, on CPU tensors, with ranks as forked
processes. They ask for the backend by its name and skip what they do not know, so tutti answers to the name "gloo".
Needs torch with its tests, expecttest, and the package tutti. Exits 1 when a test passes with Gloo and not with tutti.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import unittest


class Verdicts(unittest.TextTestResult):
    """Also writes each test's verdict to the file OUTCOMES."""

    def told(self, test, verdict):
        with open(os.environ["OUTCOMES"], "a", encoding="utf-8") as file:
            file.write(f"{test._testMethodName} {verdict}\n")

    def addSuccess(self, test):  # noqa: N802, unittest's names
        super().addSuccess(test)
        self.told(test, "ok")

    def addSkip(self, test, reason):  # noqa: N802
        super().addSkip(test, reason)
        self.told(test, "skipped")

    def addFailure(self, test, err):  # noqa: N802
        super().addFailure(test, err)
        self.told(test, "failed")

    def addError(self, test, err):  # noqa: N802
        super().addError(test, err)
        self.told(test, "error")


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

        # Torch takes what has Gloo's name for Gloo, and reads the number of its threads where it would stand; a test wants 2.
        parallel = distributed_test.nn.parallel.DistributedDataParallel
        logged = parallel._get_ddp_logging_data
        parallel._get_ddp_logging_data = lambda self: {**logged(self), "gloo_num_threads": 2}

    class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self.processes = []
            self._start_processes(multiprocessing.get_context("fork").Process)

    sys.modules["__main__"].Suite = Suite
    unittest.main(argv=sys.argv, testRunner=unittest.TextTestRunner(verbosity=2, resultclass=Verdicts))


def outcomes(under, arguments):
    command = [sys.executable, __file__]
    if arguments.match:
        command += ["-k", arguments.match]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "SUITE_UNDER": under, "BACKEND": "gloo", "WORLD_SIZE": str(arguments.world),
                       "TEMP_DIR": folder, "OUTCOMES": f"{folder}/outcomes", "OMP_NUM_THREADS": "1",
                       "TUTTI_DEVICE": "host", "INIT_METHOD": "env://"}
        with open(f"{arguments.log}.{under}", "w", encoding="utf-8") as log:
            subprocess.run(command, env=environment, stdout=log, stderr=subprocess.STDOUT, timeout=3600, check=False)
        with open(f"{folder}/outcomes", encoding="utf-8") as file:
            return dict(line.split() for line in file)


def table(told):
    """How many of each verdict, as Markdown, and where the two differ."""
    verdicts = ("ok", "skipped", "failed", "error")
    lines = ["| | " + " | ".join(verdicts) + " |", "| --- |" + " ---: |" * len(verdicts)]
    for under, each in told.items():
        lines.append(f"| {under} | " + " | ".join(str(list(each.values()).count(verdict)) for verdict in verdicts) + " |")
    names = sorted(told["gloo"].keys() | told["tutti"].keys())
    differing = [name for name in names if told["gloo"].get(name) != told["tutti"].get(name)]
    if differing:
        lines += ["", "| test | gloo | tutti |", "| --- | --- | --- |"]
        lines += [f"| {name} | {told['gloo'].get(name)} | {told['tutti'].get(name)} |" for name in differing]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--world", type=int, default=3, help="ranks")
    parser.add_argument("--match", help="tests whose names hold this text")
    parser.add_argument("--out", help="writes the outcomes as JSON")
    parser.add_argument("--log", default="build/torch-suite", help="prefix of the logs")
    arguments = parser.parse_args()
    os.makedirs(os.path.dirname(os.path.abspath(arguments.log)), exist_ok=True)
    told = {under: outcomes(under, arguments) for under in ("gloo", "tutti")}
    print(table(told))
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(told, file, indent=1)
    sys.exit(1 if any(told["tutti"].get(name) != "ok" for name, verdict in told["gloo"].items() if verdict == "ok") else 0)


if __name__ == "__main__":
    if "SUITE_UNDER" in os.environ:
        run_child(os.environ["SUITE_UNDER"])
    else:
        main()
