"""What the tutti command and the library read besides topologies and graphs, where it is none: refused in short time with
the file's name and what is wrong, whatever it is. (topo_test.py and the unit tests of the graph's XML have those two.)

Usage: files_test.py TUTTI SOURCE_FOLDER SANITIZERS
"""

import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import unittest

TUTTI = ""
SOURCE = pathlib.Path()
SANITIZED = False
LIMIT = 60  # seconds: many times what any of it needs
MEMORY_BYTES = 3 << 30
CLUSTER = "examples/clusters/h200x4.yaml"

TRACE = json.dumps({"traceEvents": [], "otherData": {
    "schema": "tutti.trace/1", "clock": "c", "communicator": "1", "name": "n", "host": "h", "rank": 0, "process_id": 1,
    "wall_clock_offset_us": 0, "dropped_events": 0}})
PRICES = ("tutti tuning 6\ndevice cpu\nprices AllReduce threads ring call 1 hop 1 line 1 message 1 slot_mb 1 cold_mb 1 "
          "referenced_mb 1\n")
TIMES = "AllGather threads 2 2 64 choice 1.5\nAllGather threads 2 2 64 ring 1\nAllGather threads 2 2 64 direct 3\n"
STEPS = '{"call":"all_reduce","count":1048576,"type":"float"}\n'
MEASURED = "collective,ranks,bytes,us\nall_reduce,4,1048576,50\n"
HOSTS = "localhost:1\n"


class Kind:
    """A kind of file: a good one, the command that reads it, and what it says of one that is of another version or machine."""

    def __init__(self, good, command, setting=None, others=()):
        self.good, self.command, self.setting, self.others = good, command, setting, others


def cluster():
    return str(SOURCE / CLUSTER)


def kinds():
    explain = ("explain", "all_reduce", "-n", "2", "-b", "64")
    good_cluster = pathlib.Path(cluster()).read_text("utf-8")
    return {
        "trace": Kind(TRACE, lambda path: ("trace", path),
                      others=[(TRACE.replace("trace/1", "trace/2"), 'its "schema" is "tutti.trace/2", wanted "tutti.trace/1"')]),
        "steps": Kind(STEPS, lambda path: ("sim", "--cluster", cluster(), "--trace", path),
                      others=[(STEPS.replace("all_reduce", "all_sing"), "all_sing")]),
        "measured": Kind(MEASURED, lambda path: ("sim", "compare", path, "--cluster", cluster()),
                         others=[("kind" + MEASURED, "no column collective")]),
        "times": Kind(TIMES, lambda path: ("tune", "--from", path), others=[(TIMES.replace("threads", "strings"), ":1: wanted")]),
        "hosts": Kind(HOSTS, lambda path: ("run", "--hostfile", path, "--", "true"), others=[("a slots=x\n", ":1: ")]),
        "cluster": Kind(good_cluster, lambda path: ("sim", "--cluster", path, "--bytes", "1M"),
                        others=[("version: 9\n" + good_cluster, ":1:")]),
        "prices": Kind(PRICES, lambda path: explain, "TUTTI_TUNING_FILE",
                       others=[(PRICES.replace("tuning 6", "tuning 5"), ':1: wanted "tutti tuning 6"'),
                               (PRICES.replace("device cpu", "device gpu"), "gpu")]),
        "virtual cluster": Kind(good_cluster, lambda path: ("perf", "all_reduce", "-n", "4", "-b", "8", "-e", "8", "-c", "0"),
                                "TUTTI_VIRTUAL_CLUSTER", others=[("version: 9\n" + good_cluster, ":1:")]),
    }


def start(kind, path):
    clean = {k: v for k, v in os.environ.items() if not k.upper().startswith(("NCCL_", "TUTTI_"))}
    if kind.setting:
        clean[kind.setting] = path

    def limit():
        if not SANITIZED:  # whose shadow is all of the address space
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))

    return subprocess.Popen([TUTTI, *kind.command(path)], env=clean, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            errors="replace", preexec_fn=limit)


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, content):
        path = self.folder / "a_file"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def finish(self, process):
        try:
            out, error = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
        return process.returncode, out, error

    def refuse(self, kind, path, wanted):
        code, out, error = self.finish(start(kind, path))
        self.assertIn(code, (2, 3), f"{error}{out}")
        self.assertEqual(out, "")
        self.assertIn(os.path.basename(path), error)
        self.assertRegex(error, wanted)
        self.assertLess(len(error), 4000)

    def test_good_ones_are_read(self):
        """Or else none of the others shows anything."""
        for name, kind in kinds().items():
            if name == "hosts":
                continue  # it would call ssh
            with self.subTest(name):
                code, _, error = self.finish(start(kind, self.file(kind.good)))
                self.assertEqual(code, 0, error)

    def test_of_another_version_or_for_something_else(self):
        for name, kind in kinds().items():
            for content, wanted in kind.others:
                with self.subTest(name, wanted=wanted):
                    self.refuse(kind, self.file(content), wanted)

    def test_that_hold_something_else(self):
        contents = {"nothing": "", "noise": bytes(range(1, 256)) * 40, "zero bytes": b"\0" * 1000, "prose": "once upon a time\n" * 9,
                    "deep JSON": "[" * 100_000, "a long line": "x" * 3_000_000}
        for what, content in contents.items():
            for name, kind in kinds().items():
                if name == "hosts" and what == "prose":
                    continue  # "once", a host
                with self.subTest(name, content=what):
                    self.refuse(kind, self.file(content), "a_file")

    def test_that_are_cut_off(self):
        """Anywhere: read as far as it goes, where what is there is whole, or refused."""
        for name in ("trace", "prices", "steps", "measured", "times", "cluster"):
            kind = kinds()[name]
            refused = 0
            for part in range(1, 6):
                with self.subTest(name, part=part):
                    code, _, error = self.finish(start(kind, self.file(kind.good[: len(kind.good.rstrip()) * part // 6])))
                    self.assertIn(code, (0, 2, 3), error)
                    refused += code != 0
                    if code != 0:
                        self.assertIn("a_file", error)
            self.assertGreater(refused, 0, name)

    def test_that_are_no_files(self):
        pipe = str(self.folder / "a_pipe")
        os.mkfifo(pipe)
        for name, kind in kinds().items():
            for path in (str(self.folder), "/dev/zero"):
                with self.subTest(name, path=path):
                    self.refuse(kind, path, "no regular file|neither a file nor a pipe|Is a directory|no trace there")
        # All at once: some seconds each.
        waiting = {name: start(kind, pipe) for name, kind in kinds().items()}
        for name, process in waiting.items():
            with self.subTest(name, path=pipe):
                code, out, error = self.finish(process)
                self.assertIn(code, (2, 3), error)
                self.assertEqual(out, "")
                self.assertRegex(error, "a_pipe: (is no regular file|nobody writes to that pipe)")

    def test_that_come_by_a_pipe_are_read(self):
        pipe = str(self.folder / "a_pipe")
        os.mkfifo(pipe)
        for name in ("trace", "steps", "measured", "times", "cluster"):
            with self.subTest(name):
                kind = kinds()[name]
                process = start(kind, pipe)
                with open(pipe, "w", encoding="utf-8") as writer:
                    writer.write(kind.good)
                code, _, error = self.finish(process)
                self.assertEqual(code, 0, error)


if __name__ == "__main__":
    TUTTI, SOURCE, SANITIZED = sys.argv[1], pathlib.Path(sys.argv[2]), bool(sys.argv[3])
    unittest.main(argv=sys.argv[:1])
