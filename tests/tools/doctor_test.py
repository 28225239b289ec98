"""What tutti doctor says of this machine, of a Python's torch and of a process.

Usage: doctor_test.py TUTTI SOURCE_FOLDER VERSION
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from command import LIMIT, TUTTI, run


class Doctor(unittest.TestCase):
    def test_text_and_exit_code_agree(self):
        result = run("doctor")
        self.assertEqual(result.stderr, "")
        self.assertEqual(result.returncode, 0 if "nothing wrong found" in result.stdout else 1)
        for line in ("cpus usable", "open files", "memfd", "abstract unix sockets", "futex waitv",
                     "ranks run on", "found by name", "installed"):
            self.assertIn(f"\n  {line} ", result.stdout)

    def test_json_has_all_sections(self):
        result = run("doctor", "--json")
        output = json.loads(result.stdout)
        self.assertEqual(result.returncode, 1 if output["findings"] else 0)
        for section in ("machine", "limits", "shared memory", "network", "devices", "library", "torch", "settings"):
            self.assertTrue(output[section], section)
        machine = {fact["name"]: fact["value"] for fact in output["machine"]}
        self.assertGreaterEqual(machine["cpus_usable"], 1)
        self.assertGreater(machine["memory_bytes"], 1 << 20)

    def findings(self, **env):
        result = run("doctor", "--json", env=env)
        self.assertEqual(result.returncode, 1)
        return " ".join(each["what"] + " " + each["mend"] for each in json.loads(result.stdout)["findings"])

    def test_what_is_wrong_comes_with_how_to_mend_it(self):
        self.assertIn("did you mean NCCL_DEBUG?", self.findings(NCCL_DEBUGG="1"))
        self.assertIn("unset NCCL_SHM_DISABLE", self.findings(NCCL_SHM_DISABLE="1"))
        self.assertIn("change NCCL_SOCKET_IFNAME", self.findings(NCCL_SOCKET_IFNAME="=none0"))
        self.assertIn("set TUTTI_SECRET_FILE", self.findings(NCCL_COMM_ID="127.0.0.1:5000"))
        self.assertIn("TUTTI_DEVICE=cuda, but there is no GPU", self.findings(TUTTI_DEVICE="cuda", CUDA_VISIBLE_DEVICES=""))

    def test_a_library_that_hangs_as_it_is_loaded_does_not_hold_up_the_end(self):
        hanging = pathlib.Path(TUTTI).resolve().parent.parent / "tests/fakes/hanging"
        if not (hanging / "libfabric.so.1").exists():
            self.skipTest("the library that hangs was not built")
        env = {"NCCL_NET": "ofi", "LD_LIBRARY_PATH": str(hanging), "TUTTI_TIMEOUT_MS": "500"}
        for command, told in ((("doctor",), "wrong: "), (("explain", "all_reduce", "-n", "4", "--hosts", "2"), "none: ")):
            with self.subTest(command=command):
                result = run(*command, env=env, limit=60)
                self.assertIn(told + "NCCL_NET=ofi: this network cannot be used: libfabric has not returned from opening a "
                              "provider within 500 ms", result.stdout)
                self.assertEqual(result.returncode, 1 if command[0] == "doctor" else 0)

    def test_what_ranks_run_on_is_what_the_library_would_choose(self):
        fakes = pathlib.Path(TUTTI).resolve().parent.parent / "lib" / "fakes"
        if not (fakes / "libcuda.so.1").exists():
            self.skipTest("there is no stand-in for the driver")
        hasKernels = False
        for wanted, device, why in (("host", "CPU", "TUTTI_DEVICE=host"),
                                    ("cuda", "GPU", "through host memory: this build has no GPU kernels"),
                                    ("auto", "CPU", "this build has no GPU kernels (")):
            env = {"LD_LIBRARY_PATH": str(fakes), "TUTTI_DEVICE": wanted, "FAKE_CUDA_MAJOR": "9"}
            result = run("doctor", "--json", env=env)
            output = json.loads(result.stdout)
            facts = {fact["name"]: fact for fact in output["devices"]}
            self.assertEqual(facts["gpus"]["value"], 2)
            self.assertEqual(facts["gpu_0"]["value"], "Fake GPU")
            self.assertEqual(facts["gpu_1"]["note"], "sm_91, 0000:02:00.0")
            self.assertNotIn("TUTTI_DEVICE", " ".join(each["what"] for each in output["findings"]))
            hasKernels = facts["gpu_kernels"]["value"] != "none"
            if hasKernels and wanted != "host":
                device, why = "GPU", "kernels for sm_"
            self.assertEqual(facts["ranks_run_on"]["value"], device)
            self.assertTrue(facts["ranks_run_on"]["note"].startswith(why), facts["ranks_run_on"])
        if not hasKernels:
            return
        env["FAKE_CUDA_MAJOR"] = "7"
        self.assertIn("GPU 0 (Fake GPU) is sm_71", self.findings(**env))

    def test_the_interface_that_would_be_used_is_named_with_the_reason(self):
        result = run("doctor", env={"NCCL_SOCKET_IFNAME": "lo"})
        self.assertRegex(result.stdout, r"\n  chosen +lo  \(")

    def test_the_network_between_hosts_is_named_with_why_not_another(self):
        result = run("doctor", env={"NCCL_IB_DISABLE": "1", "NCCL_NET_PLUGIN": "none"})
        self.assertRegex(result.stdout, r"\n  between hosts +socket  \(NCCL_IB_DISABLE=1\)")
        result = run("doctor", env={"NCCL_NET": "nosuch", "NCCL_NET_PLUGIN": "none"})
        self.assertIn("NCCL_NET=nosuch: there is no such network", result.stdout)


class DoctorOfTorch(unittest.TestCase):
    """A torch as its wheels lie there: libtorch_cuda.so needs libnccl.so.2 and carries an RPATH to NVIDIA's."""

    def setUp(self):
        self.compiler = shutil.which("cc")
        self.own = pathlib.Path(TUTTI).resolve().parent.parent / "lib" / "libnccl.so.2"
        if self.compiler is None or not self.own.exists():
            self.skipTest("needs a C compiler and the library beside the command")
        if re.search(rb"lib[at]san\.so", self.own.read_bytes()):
            self.skipTest("a program without a sanitizer cannot load the library")
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.site = pathlib.Path(scratch.name).resolve()

    def build(self, path, *options):
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([self.compiler, "-shared", "-fPIC", "-Wl,--no-as-needed", "-x", "c", os.devnull, "-x", "none", "-o", path,
                        *options], check=True)

    def lay_out(self, *options):
        self.nvidias = self.site / "nvidia/nccl/lib/libnccl.so.2"
        self.build(self.nvidias, "-Wl,-soname,libnccl.so.2")
        self.torch = self.site / "torch/lib/libtorch_cuda.so"
        (self.site / "torch").mkdir(exist_ok=True)
        (self.site / "torch/__init__.py").write_text("raise RuntimeError('doctor imports nothing')")
        (self.site / "torch/version.py").write_text("__version__ = '2.11.0+cu130'\n")
        self.build(self.torch, self.nvidias, *options)

    def look(self, *arguments, **env):
        result = run("doctor", "--json", "--python", sys.executable, *arguments, env={"PYTHONPATH": str(self.site), **env})
        output = json.loads(result.stdout)
        return {fact["name"]: fact for fact in output["torch"]}, output["findings"]

    def test_that_does_not_use_us_is_told_with_the_way_to_do_it(self):
        self.lay_out("-Wl,--disable-new-dtags,-rpath,$ORIGIN/../../nvidia/nccl/lib")
        for env in ({}, {"LD_LIBRARY_PATH": str(self.own.parent)}, {"LD_PRELOAD": str(self.own)}):
            facts, findings = self.look(**env)
            self.assertEqual(facts["installed"]["value"], "2.11.0+cu130")
            self.assertEqual(pathlib.Path(facts["loads"]["value"]).resolve(), self.nvidias)
            self.assertEqual(facts["loads"]["note"], "it is not tutti's; torch has a library path of its own (RPATH): "
                                                     "LD_LIBRARY_PATH changes nothing")
            self.assertEqual(facts["loads_with_preload"], {"name": "loads_with_preload", "value": str(self.own),
                                                           "note": "it is tutti's"})
            self.assertEqual(facts["to_use_tuttis"]["value"], "python -m tutti run")
            self.assertNotIn("torch", " ".join(each["what"] for each in findings))

    def test_that_goes_by_the_library_path_is_told_as_such(self):
        self.lay_out()
        facts, _ = self.look(LD_LIBRARY_PATH=str(self.own.parent))
        self.assertEqual((facts["loads"]["value"], facts["loads"]["note"]), (str(self.own), "it is tutti's"))
        self.assertNotIn("to_use_tuttis", facts)
        facts, _ = self.look(LD_LIBRARY_PATH=str(self.nvidias.parent))
        self.assertEqual((facts["loads"]["value"], facts["loads"]["note"]), (str(self.nvidias), "it is not tutti's"))

    def test_that_takes_no_preloaded_library_is_a_finding(self):
        self.lay_out()
        loader = self.site / "bin/ldd"  # as where the loader may not read ours
        loader.parent.mkdir()
        loader.write_text(f"#!/bin/sh\necho '\tlibnccl.so.2 => {self.nvidias} (0x00007f0000000000)'\n")
        loader.chmod(0o755)
        facts, findings = self.look(PATH=f"{loader.parent}:{os.environ['PATH']}")
        self.assertEqual(facts["loads_with_preload"]["note"], "it is not tutti's")
        self.assertIn("does not load tutti's library even where it is preloaded", " ".join(each["what"] for each in findings))

    def test_without_cuda_or_without_torch_is_said(self):
        facts, _ = self.look()
        self.assertEqual(facts["installed"]["value"], "none")
        self.lay_out()
        self.torch.unlink()
        facts, _ = self.look()
        self.assertIn("built without CUDA", facts["loads"]["note"])

    def test_debians_is_known(self):
        python = "/usr/bin/python3"
        found = subprocess.run([python, "-c", "import importlib.util as u; print(u.find_spec('torch'))"], capture_output=True,
                               text=True, check=False)
        if "/usr/lib/python3/dist-packages/torch/" not in found.stdout:
            self.skipTest("Debian's python3-torch is not installed")
        facts = {fact["name"]: fact for fact in json.loads(run("doctor", "--json", "--python", python).stdout)["torch"]}
        self.assertRegex(facts["installed"]["value"], r"^[0-9]+\.[0-9]+")
        self.assertIn("built without CUDA", facts["loads"]["note"])

    def running(self, **env):
        """A process that has loaded the torch."""
        code = f"import ctypes, sys; ctypes.CDLL({str(self.torch)!r}); print('ready', flush=True); sys.stdin.read()"
        process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   env={**os.environ, **env})

        def end():
            process.stdin.close()
            process.stdout.close()
            process.wait(LIMIT)
        self.addCleanup(end)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process.pid

    def test_of_a_running_process_tells_which_library_it_has(self):
        self.lay_out("-Wl,--disable-new-dtags,-rpath,$ORIGIN/../../nvidia/nccl/lib")
        result = run("doctor", "--json", str(self.running()))
        output = json.loads(result.stdout)
        facts = {fact["name"]: fact["value"] for fact in output["process"]}
        self.assertEqual(result.returncode, 1)
        self.assertFalse(facts["uses_tutti"])
        self.assertEqual(facts["has_loaded"], str(self.nvidias))
        self.assertIn(f"uses another libnccl.so.2: {self.nvidias}", output["findings"][0]["what"])
        self.assertIn("python -m tutti run", output["findings"][0]["mend"])

        result = run("doctor", "--json", str(self.running(LD_PRELOAD=str(self.own))))
        output = json.loads(result.stdout)
        facts = {fact["name"]: fact["value"] for fact in output["process"]}
        self.assertEqual((result.returncode, output["findings"]), (0, []))
        self.assertTrue(facts["uses_tutti"])
        self.assertEqual(pathlib.Path(facts["has_loaded"]).resolve(), self.own.resolve())

    def test_of_a_process_with_both_goes_by_what_was_preloaded(self):
        self.lay_out("-Wl,--disable-new-dtags,-rpath,$ORIGIN/../../nvidia/nccl/lib")
        other = self.site / "other/libnccl.so.2.99"
        self.build(other, "-Wl,-soname,libnccl.so.2.99")
        self.torch, torch = other, self.torch
        preloaded = run("doctor", str(self.running(LD_PRELOAD=str(self.own))))
        self.assertEqual(preloaded.returncode, 0, preloaded.stdout)
        self.assertRegex(preloaded.stdout, r"uses tutti +yes  \(it was preloaded\)")
        self.torch = torch
        late = run("doctor", str(self.running(LD_PRELOAD=f"{self.nvidias}")))
        self.assertEqual(late.returncode, 1, late.stdout)

    def test_of_a_process_that_is_not_there_says_so(self):
        result = run("doctor", "999999999")
        self.assertEqual((result.returncode, result.stdout), (3, ""))
        self.assertIn("process 999999999 cannot be looked into", result.stderr)
        self.assertEqual(run("doctor", "torch").returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
