#!/usr/bin/env python3
"""What GPU ranks do to their host, by the stand-in for the driver: which CPUs their host memory is made on, and how many
hardware queues they ask for where they share a GPU.

    tests/gpu/host_check.py BUILD

The GPUs' place is told by files over /sys/bus/pci/devices, in a mount namespace of this script's own. Exit 77: it may not
make one.
"""
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SKIP = 77
LIMIT = 120  # seconds
BUILD = pathlib.Path()
DEVICES = pathlib.Path("/sys/bus/pci/devices")  # the fake's: 0000:01:00.0 and 0000:02:00.0
QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"


def environment(**more):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "TUTTI_")) and k != QUEUES}
    return {**clean, "LD_LIBRARY_PATH": str(BUILD / "lib/fakes"), "TUTTI_DEVICE": "cuda", **more}


def one_rank():
    """In a process of its own: a communicator of one rank, which prints the thread's CPUs before and after."""
    library = ctypes.CDLL(str(BUILD / "lib/libnccl.so.2"))
    handle, device = ctypes.c_void_p(), ctypes.c_int(0)
    before = sorted(os.sched_getaffinity(0))
    code = library.ncclCommInitAll(ctypes.byref(handle), 1, ctypes.byref(device))
    print(json.dumps({"code": code, "before": before, "after": sorted(os.sched_getaffinity(0))}))
    library.ncclCommDestroy(handle)


class Cpus(unittest.TestCase):
    def setUp(self):
        self.all = sorted(os.sched_getaffinity(0))
        if len(self.all) < 2:
            self.skipTest("this process may run on one CPU only")

    def made_on(self, near, allowed, **more):
        """The CPUs that all host memory was made on."""
        place = DEVICES / "0000:01:00.0"
        place.mkdir(exist_ok=True)
        (place / "local_cpulist").write_text(near + "\n")
        with tempfile.TemporaryDirectory() as scratch:
            file = pathlib.Path(scratch, "cpus")
            env = environment(FAKE_CUDA_AFFINITY_FILE=str(file), **more)
            result = subprocess.run([sys.executable, __file__, str(BUILD), "rank"], env=env, capture_output=True, text=True,
                                    timeout=LIMIT, check=True, preexec_fn=lambda: os.sched_setaffinity(0, allowed))
            told = json.loads(result.stdout)
            self.assertEqual(told["code"], 0, result.stderr)
            self.assertEqual((told["before"], told["after"]), (sorted(allowed), sorted(allowed)))
            lines = {tuple(int(cpu) for cpu in line.split()) for line in file.read_text().splitlines()}
        self.assertEqual(len(lines), 1, lines)
        return list(lines.pop())

    def test_near_the_gpu_hold_its_host_memory_and_the_thread_is_put_back(self):
        first, last = self.all[0], self.all[-1]
        self.assertEqual(self.made_on(str(last), self.all), [last])
        self.assertEqual(self.made_on(str(first), self.all), [first])

    def test_that_the_thread_may_not_use_are_left_out_unless_its_affinity_is_to_be_ignored(self):
        first, last = self.all[0], self.all[-1]
        self.assertEqual(self.made_on(str(last), [first]), [first])
        self.assertEqual(self.made_on(str(last), [first], NCCL_IGNORE_CPU_AFFINITY="1"), [last])

    def test_that_nobody_tells_leave_the_thread_where_it_is(self):
        self.assertEqual(self.made_on("", self.all), self.all)


class Queues(unittest.TestCase):
    """The fake has two GPUs."""

    def run_tutti(self, *arguments, **more):
        return subprocess.run([BUILD / "bin/tutti", *arguments], env=environment(**more), capture_output=True, text=True,
                              timeout=LIMIT, check=False)

    def given(self, ranks, **more):
        result = self.run_tutti("run", "--no-prefix", "-n", str(ranks), "--", "sh", "-c", f"echo ${QUEUES}.", **more)
        self.assertEqual(result.returncode, 0, result.stderr)
        values = set(result.stdout.split())
        self.assertEqual(len(values), 1)
        return values.pop()[:-1]

    def test_are_asked_for_by_tutti_run_where_ranks_share_a_gpu(self):
        self.assertEqual(self.given(2), "")
        self.assertEqual(self.given(3), "32")
        self.assertEqual(self.given(3, **{QUEUES: "1"}), "1")
        self.assertEqual(self.given(3, TUTTI_DEVICE="host"), "")
        self.assertEqual(self.given(3, LD_LIBRARY_PATH="", TUTTI_DEVICE="auto"), "")

    def warnings(self, *options, **more):
        result = self.run_tutti("perf", "all_reduce", "-b", "64", "-e", "64", *options, NCCL_DEBUG="WARN", NCCL_P2P_DISABLE="1",
                                **more)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return [line for line in (result.stdout + result.stderr).splitlines() if f"and {QUEUES} is " in line]

    def test_that_are_missing_are_warned_of_once_a_process(self):
        few = self.warnings("-t", "4", **{QUEUES: "4"})
        self.assertEqual(len(few), 1, few)
        self.assertIn("2 ranks share the GPU of rank ", few[0])
        self.assertIn(f"{QUEUES} is 4:", few[0])
        self.assertEqual(len(self.warnings("-n", "2", "-g", "1", **{QUEUES: "7"})), 2)  # processes
        self.assertEqual(self.warnings("-n", "2", **{QUEUES: "1"}), [])  # a GPU each
        self.assertEqual(self.warnings("-n", "2", "-g", "1", **{QUEUES: "8"}), [])

    def test_are_asked_for_by_tutti_perf(self):
        self.assertEqual(self.warnings("-t", "4"), [])
        self.assertEqual(self.warnings("-n", "2", "-g", "1"), [])
        self.assertEqual(self.warnings("-n", "3"), [])

    def test_that_a_program_started_by_hand_lacks_are_warned_of(self):
        code = ("import ctypes; l = ctypes.CDLL('%s'); comms = (ctypes.c_void_p * 2)(); d = (ctypes.c_int * 2)(0, 0); "
                "assert l.ncclCommInitAll(comms, 2, d) == 0") % (BUILD / "lib/libnccl.so.2")
        result = subprocess.run([sys.executable, "-c", code], env=environment(NCCL_DEBUG="WARN"), capture_output=True, text=True,
                                timeout=LIMIT, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual((result.stdout + result.stderr).count(f"{QUEUES} is not set"), 1, result.stdout + result.stderr)


def main():
    global BUILD  # pylint: disable=global-statement
    BUILD = pathlib.Path(sys.argv[1]).resolve()
    if sys.argv[2:] == ["rank"]:
        return one_rank()
    if sys.argv[2:] != ["inside"]:
        tried = subprocess.run(["unshare", "--mount", "--map-root-user", "mount", "-t", "tmpfs", "none", DEVICES],
                               capture_output=True, text=True, check=False)
        if tried.returncode != 0:
            print(f"skipped: no mount namespace of its own: {tried.stderr.strip()}")
            return SKIP
        script = 'mount -t tmpfs none "$1" && shift && exec "$@"'
        inside = ["sh", "-c", script, "sh", DEVICES, sys.executable, __file__, BUILD, "inside"]
        return subprocess.run(["unshare", "--mount", "--map-root-user", *inside], check=False).returncode
    return unittest.main(argv=sys.argv[:1])


if __name__ == "__main__":
    sys.exit(main())
