"""Files that the library was asked to write where it cannot: warnings that name file, setting and reason, and the job goes on."""

import os
import re
import subprocess
import tempfile
import unittest

from harness import FaultCase

STEPS = "allreduce:8 allreduce:100000 destroy"


class Written(FaultCase):
    """Topologies by rank 0 while it begins, traces by each rank when it ends."""

    def expect_warnings(self, *patterns, writers=(0, 1), **settings):
        """Of the writers one like each pattern, in their order; of others none."""
        ranks = self.launch(STEPS, STEPS, timeout_ms=5000, **settings)
        for step in STEPS.split():
            self.expect_success(ranks, step)
        for rank in ranks:
            rank.child.wait()
            rank.reader.join()
            warnings = re.findall("WARN (.*)", rank.log)
            self.assertEqual(len(warnings), len(patterns) if rank.rank in writers else 0, rank.log)
            for warning, pattern in zip(warnings, patterns):
                self.assertRegex(warning, pattern)

    def expect_no_topology(self, path, reason):
        with self.subTest(path):
            self.expect_warnings(f"NCCL_TOPO_DUMP_FILE={re.escape(path)}: .*{reason}", writers=[0], NCCL_TOPO_DUMP_FILE=path)

    def full_disk(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tutti", folder], capture_output=True, check=False).returncode != 0:
            self.skipTest("this user cannot mount a small disk")
        self.addCleanup(subprocess.run, ["umount", folder], check=True)
        with open(f"{folder}/full", "wb", buffering=0) as file, self.assertRaisesRegex(OSError, "No space left"):
            while True:
                file.write(bytes(4096))
        return folder

    def test_topologies_where_nobody_can(self):
        with tempfile.TemporaryDirectory() as folder:
            self.expect_no_topology(f"{folder}/none/dump.xml", "No such file or directory")
            self.expect_no_topology(folder, "Is a directory")
            self.expect_no_topology("/proc/self/dump.xml", "")
            self.assertEqual(os.listdir(folder), [])

    def test_topologies_on_a_full_disk(self):
        self.expect_no_topology("/dev/full", "No space left")
        folder = self.full_disk()
        self.expect_no_topology(f"{folder}/dump.xml", "No space left")
        self.assertEqual(os.listdir(folder), ["full"])  # and no piece of a file

    def test_traces_where_nobody_can(self):
        folder = "/nowhere/traces"
        self.expect_warnings(f"TUTTI_TRACE_DIR: no trace can be written to {folder}: No such file",
                             rf"rank \d: cannot write {folder}/trace-.*: No such file .*TUTTI_TRACE_DIR", TUTTI_TRACE_DIR=folder)

    def test_traces_on_a_full_disk(self):
        folder = self.full_disk()
        self.expect_warnings(rf"rank \d: cannot write {folder}/trace-.*: No space left .*TUTTI_TRACE_DIR", TUTTI_TRACE_DIR=folder)
        self.assertEqual(os.listdir(folder), ["full"])  # and no piece of a trace


if __name__ == "__main__":
    unittest.main(verbosity=1)
