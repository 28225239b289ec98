#!/usr/bin/env python3
"""What scripts/gpu_check.sh makes of a run: on machines of 1, 2 and 4 GPUs that are not there (a nvidia-smi and a build of this
test's own), with NCCL and without, with commands and parts that fail, interrupted, and with PyTorch's own tests.

Usage: results_check.py SOURCE_FOLDER
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.dom.minidom

SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
KERNELS = [{"op": "AllReduce", "ranks": 2, "bytes": 1024, "graph": 4.0, "nccl_graph": 6.0, "eager": 5.0, "nccl_eager": 0.0, "label": ""}]

# As nvidia-smi prints the little that is asked of it.
NVIDIA_SMI = """#!/bin/sh
for i in $(seq {gpus}); do
  case $1 in
    -L) echo "GPU $i: a GPU" ;;
    *memory.total*) echo "a GPU, 143771 MiB, 9.0, 580.1" ;;
    *) echo "a GPU, 580.1" ;;
  esac
done
"""

# `tutti perf`: times that follow from what is asked; fails for BROKEN's operation, stands still for SLOW's.
TUTTI = """#!/usr/bin/env python3
import json, os, sys, time
if sys.argv[1] == "version":
    print(json.dumps({"tutti": "0.9", "nccl_interface": "2.28.9", "compiler": "a compiler"}))
    sys.exit()
options = dict(zip(sys.argv[3::2], sys.argv[4::2]))
if sys.argv[2] == os.environ.get("SLOW"):
    time.sleep(60)
if sys.argv[2] == os.environ.get("BROKEN"):
    sys.exit("a rank died")
side = {"time_us": 10.0}
if "--lib" in options:
    side["peer_time_us"] = 20.0
told = {"tutti": "0.9", "nccl_library": 22809, "path": "from GPU to GPU", "ranks": int(options.get("-t") or options.get("-n")),
        "results": [{"type": kind, "size": int(options["-b"]) * factor, "out_of_place": side, "in_place": side}
                    for kind in options["-d"].split(",") for factor in (1, 4)]}
if "--lib" in options:
    told["peer_nccl_library"] = 22907
json.dump(told, open(options["--json"], "w"))
"""

KERNELS_BENCH = """#!/usr/bin/env python3
import json, sys
open(sys.argv[sys.argv.index("--json") + 1], "a").write({line!r})
"""

# Enough of PyTorch for torch_suite.py: one test that always passes, one that passes with NCCL only, one that never does.
COMMON_UTILS = """
import unittest
class TestCase(unittest.TestCase):
    def setUp(self): raise RuntimeError("CUDA is begun in a process that forks ranks")
"""
DISTRIBUTED_TEST = """
import os
from torch.testing._internal.common_utils import TestCase
class TestDistBackend:
    def _start_processes(self, process): process(target=int)
class DistributedTest:
    class _DistTestBase(TestCase):
        def test_both(self): pass
        def test_of_nccl(self):
            self.assertFalse(os.environ.get("LD_PRELOAD") and "LACKING" in os.environ)
        def test_of_neither(self): self.fail()
"""


def write(path, text, mode=0o755):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


class Results(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.build = self.root / "build"
        self.logs = self.root / "logs"
        write(self.build / "lib/libnccl.so.2", "no library")
        write(self.build / "bin/tutti", TUTTI)
        write(self.build / "bin/gpu_kernels_bench", KERNELS_BENCH.format(line=json.dumps(KERNELS[0]) + "\n"))
        write(self.build / "CMakeCache.txt", "TUTTI_GPU_ARCHITECTURES:STRING=80;90\n")

    def start(self, gpus, *parts, peer="none", **environment):
        write(self.root / "bin/nvidia-smi", NVIDIA_SMI.format(gpus=gpus))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("NCCL_", "TUTTI_"))}
        environment = {**kept, "PATH": f"{self.root / 'bin'}:{kept['PATH']}", "TUTTI_PEER_LIBRARY": peer, **environment}
        return subprocess.Popen([SOURCE / "scripts/gpu_check.sh", self.build, self.logs, *parts], env=environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)

    def check(self, gpus, *parts, code=0, **environment):
        process = self.start(gpus, *parts, **environment)
        output = process.communicate(timeout=240)[0]
        self.assertEqual(process.returncode, code, output)
        return self.summary()

    def summary(self):
        results = self.logs / "results"
        text = (results / "summary.json").read_text(encoding="utf-8")
        page = (results / "index.html").read_text(encoding="utf-8")
        for private in (str(self.root), str(SOURCE), os.uname().nodename + " "):
            self.assertNotIn(private, text + page)
        for path in results.glob("*.svg"):
            xml.dom.minidom.parse(str(path))
        return json.loads(text)

    def test_two_gpus_beside_nccl(self):
        summary = self.check(2, "kernels", "bench", peer="a/libnccl.so.2", NCCL_ALGO="ring", NCCL_SOCKET_IFNAME="secret0")
        self.assertEqual(summary["gpus"], [{"count": 2, "name": "a GPU", "memory": "143771 MiB", "compute_capability": "9.0",
                                            "driver": "580.1"}])
        self.assertEqual(summary["versions"]["nccl"], "2.29.7")
        self.assertEqual(summary["versions"]["tutti"], "0.9")
        self.assertEqual(summary["versions"]["architectures"], "80;90")
        self.assertEqual(summary["settings"]["NCCL_ALGO"], "ring")
        self.assertNotIn("NCCL_SOCKET_IFNAME", summary["settings"])
        self.assertEqual(summary["command"], "scripts/gpu_check.sh BUILD LOGS kernels bench")
        self.assertTrue(summary["cells"] and all(cell["ratio"] == 2 for cell in summary["cells"]))
        self.assertEqual({cell["ranks"] for cell in summary["cells"]}, {2})
        self.assertTrue(any("windows" in cell["mode"] for cell in summary["cells"]))
        self.assertTrue(summary["ratios"] and all(row["mean"] == 2 and row["lowest"] == 2 for row in summary["ratios"]))
        self.assertEqual(summary["parts"]["bench"]["verdict"], "passed")
        self.assertEqual([(cell["mode"], cell.get("ratio")) for cell in summary["kernels"]], [("graph", 1.5), ("eager", None)])
        names = sorted(path.name for path in (self.logs / "results").iterdir())
        self.assertEqual(names, ["index.html", "kernels.csv", "kernels.svg", "summary.json", "times.csv", "times.svg"])
        self.assertIn("10 (2.00)", (self.logs / "results/index.html").read_text(encoding="utf-8"))

    def test_four_gpus_without_nccl(self):
        summary = self.check(4, "bench")
        self.assertEqual({cell["ranks"] for cell in summary["cells"]}, {2, 4})
        self.assertFalse(any("ratio" in cell or "nccl_us" in cell for cell in summary["cells"]))
        self.assertEqual(summary["ratios"], [])
        self.assertNotIn("nccl", summary["versions"])
        self.assertEqual([step["why"] for step in summary["steps"] if step["verdict"] == "skipped"], ["there is no other libnccl.so.2"])
        self.assertIn("microseconds</text>", (self.logs / "results/times.svg").read_text(encoding="utf-8"))

    def test_one_gpu_whose_ranks_share_it(self):
        summary = self.check(1, "bench", peer="a/libnccl.so.2")
        self.assertEqual({(cell["ranks"], cell["mode"]) for cell in summary["cells"]},
                         {(2, "eager, threads"), (2, "eager, threads, in place")})
        self.assertFalse(any("ratio" in cell for cell in summary["cells"]))

    def test_what_fails_leaves_the_rest(self):
        """One operation, and a part without its program."""
        summary = self.check(2, "lifecycle", "bench", code=1, BROKEN="broadcast", peer="a/libnccl.so.2")
        self.assertEqual(summary["parts"]["lifecycle"]["verdict"], "failed")
        self.assertEqual(summary["parts"]["bench"]["verdict"], "failed")
        measured = {cell["collective"] for cell in summary["cells"]}
        self.assertIn("SendRecv", measured)
        self.assertNotIn("Broadcast", measured)
        self.assertIn("broadcast, graph, threads", summary["bench_failures"])
        self.assertEqual([step["why"] for step in summary["steps"] if step["step"] == "times of 2 ranks"], ["exit code 1"])

    def test_an_interrupted_run_keeps_what_it_has(self):
        process = self.start(2, "bench", "death", peer="a/libnccl.so.2", SLOW="sendrecv")
        deadline = time.monotonic() + 120
        while "Reduce\"" not in self.read("times-2.json") and time.monotonic() < deadline:
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=60)
        summary = self.summary()
        self.assertIn("AllReduce", {cell["collective"] for cell in summary["cells"]})
        self.assertEqual(summary["parts"]["death"]["verdict"], "not run")

    def read(self, name):
        path = self.logs / name
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def test_an_unknown_part_is_refused_before_anything_runs(self):
        process = self.start(2, "bench", "nonsense")
        output = process.communicate(timeout=60)[0]
        self.assertEqual((process.returncode, output), (2, "unknown part: nonsense\n"))

    def torch(self, text):
        packages = self.root / "packages"
        write(packages / "expecttest.py", "")
        for folder in ("torch", "torch/testing", "torch/testing/_internal", "torch/testing/_internal/distributed"):
            write(packages / folder / "__init__.py", "")
        write(packages / "torch/testing/_internal/common_utils.py", COMMON_UTILS)
        if text:
            write(packages / "torch/testing/_internal/distributed/distributed_test.py", text)
        return str(packages)

    def test_pytorchs_own_tests_are_compared(self):
        packages = self.torch(DISTRIBUTED_TEST)
        summary = self.check(2, "torchsuite", PYTHONPATH=packages)
        self.assertEqual(summary["torch_suite"], {"nccl": {"failed": 1}, "tutti": {"failed": 1, "passed": 2}})
        summary = self.check(2, "torchsuite", code=1, PYTHONPATH=packages, LACKING="1")
        self.assertEqual(summary["torch_suite"], {"nccl": {"failed": 1, "passed": 1}, "tutti": {"failed": 2, "passed": 1}})
        self.assertEqual([step["verdict"] for step in summary["steps"]], ["passed", "failed"])

    def test_pytorchs_own_tests_are_skipped_with_the_reason(self):
        empty = self.root / "empty"
        write(empty / "torch.py", "raise ImportError")
        summary = self.check(2, "torchsuite", PYTHONPATH=str(empty))
        self.assertEqual([step["why"] for step in summary["steps"]], ["torch is not installed"])
        summary = self.check(2, "torchsuite", PYTHONPATH=self.torch(None))
        self.assertIn("this PyTorch has no such tests", summary["steps"][0]["why"])
        summary = self.check(1, "torchsuite", PYTHONPATH=self.torch(None))
        self.assertEqual([step["why"] for step in summary["steps"]], ["they want two GPUs"])


if __name__ == "__main__":
    unittest.main()
