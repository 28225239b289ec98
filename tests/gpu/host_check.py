#!/usr/bin/env python3
"""What GPU ranks do to their host, by the stand-in for the driver: which CPUs their host memory is made on.

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


def environment(**more):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "TUTTI_"))}
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
