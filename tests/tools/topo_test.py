"""`tutti topo` as a script sees it: what it shows, the pictures of the documentation, and files that are no machines.

Usage: topo_test.py TUTTI SOURCE_FOLDER SANITIZERS
"""

import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

TUTTI = ""
SOURCE = pathlib.Path()
SANITIZERS = ""
PICTURES = {"dgx_h100": "topo_dgx_h100", "workstation_4xa6000": "topo_workstation", "cpu_2_numa": "topo_cpu_host"}
SVG = "{http://www.w3.org/2000/svg}"
MEMORY_BYTES = 64 << 20
LIMIT = 300  # seconds: many times what the longest needs, and still an end


def machines():
    return sorted((SOURCE / "tests/golden/topologies").glob("*.xml"))


def golden(name):
    return str(SOURCE / f"tests/golden/topologies/{name}.xml")


def run(*arguments, env=None, memory=None):
    def limit():
        if memory and not SANITIZERS:
            resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))

    clean = {k: v for k, v in os.environ.items() if not k.upper().startswith(("NCCL_", "TUTTI_"))}
    clean.update(env or {})
    return subprocess.run([TUTTI, "topo", *arguments], env=clean, capture_output=True, text=True, timeout=LIMIT,
                          check=False, preexec_fn=limit)


class Shows(unittest.TestCase):
    def test_a_described_machine_as_text(self):
        result = run("--topo", golden("dgx_h100"))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("host: 2 CPUs, 8 GPUs, 8 network ports, NVSwitch", result.stdout)
        self.assertEqual(result.stdout, pathlib.Path(golden("dgx_h100")).with_suffix(".paths.txt").read_text("utf-8"))
        self.assertEqual(run(env={"NCCL_TOPO_FILE": golden("dgx_h100")}).stdout, result.stdout)

    def test_this_machine_whatever_it_is(self):
        result = run()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("CPU", result.stdout)

    def test_nodes_links_and_paths_as_json(self):
        machine = json.loads(run("--topo", golden("dgx1v"), "--json").stdout)
        gpus = [i for i, node in enumerate(machine["nodes"]) if node["kind"] == "GPU"]
        self.assertEqual(len(gpus), 8)
        path = next(p for p in machine["paths"] if p["from"] == gpus[0] and p["to"] == gpus[4])
        self.assertEqual((path["kind"], path["gb_per_second"]), ("NVL", 40))
        self.assertEqual(machine["assumed"], [])

    def test_the_settings_that_paths_heed(self):
        levels = {None: "NVB", "1": "SYS"}
        for value, kind in levels.items():
            env = {"NCCL_NVB_DISABLE": value} if value else {}
            machine = json.loads(run("--topo", golden("dgx1v"), "--json", env=env).stdout)
            gpus = [i for i, node in enumerate(machine["nodes"]) if node["kind"] == "GPU"]
            path = next(p for p in machine["paths"] if p["from"] == gpus[0] and p["to"] == gpus[5])
            self.assertEqual(path["kind"], kind)
        wrong = run("--topo", golden("dgx1v"), env={"NCCL_P2P_LEVEL": "near"})
        self.assertEqual(wrong.returncode, 3)
        self.assertIn("NCCL_P2P_LEVEL=near (environment): wanted one of LOC", wrong.stderr)

    def test_xml_that_reads_equal(self):
        for machine in machines():
            with self.subTest(machine=machine.name), tempfile.TemporaryDirectory() as folder:
                again = pathlib.Path(folder, machine.name)
                again.write_text(run("--topo", str(machine), "--xml").stdout, "utf-8")
                self.assertEqual(run("--topo", str(again)).stdout, run("--topo", str(machine)).stdout)

    def test_a_page_of_its_own(self):
        page = run("--topo", golden("gh200"), "--html").stdout
        self.assertIn("<svg", page)
        self.assertNotIn("http", page.replace("http://www.w3.org/2000/svg", ""))


class Pictures(unittest.TestCase):
    def test_in_the_documentation_are_what_the_command_draws(self):
        for machine, picture in PICTURES.items():
            with self.subTest(machine=machine):
                drawn = run("--topo", golden(machine), "--svg").stdout
                self.assertEqual(drawn, (SOURCE / f"docs/pictures/{picture}.svg").read_text("utf-8"),
                                 f"tutti topo --topo {golden(machine)} --svg > docs/pictures/{picture}.svg")

    def test_of_every_machine_have_boxes_apart_and_all_within(self):
        for machine in machines():
            with self.subTest(machine=machine.name):
                root = xml.etree.ElementTree.fromstring(run("--topo", str(machine), "--svg").stdout)
                _, _, right, bottom = map(float, root.get("viewBox").split())
                boxes = [tuple(float(box.get(key)) for key in ("x", "y", "width", "height"))
                         for box in root.iter(SVG + "rect") if box.get("x")]
                for i, (x, y, width, height) in enumerate(boxes):
                    self.assertTrue(0 <= x and x + width <= right and 0 <= y and y + height <= bottom)
                    for other_x, other_y, other_width, other_height in boxes[:i]:
                        apart = (x >= other_x + other_width or other_x >= x + width or y >= other_y + other_height
                                 or other_y >= y + height)
                        self.assertTrue(apart, f"boxes at {x},{y} and {other_x},{other_y}")
                for text in root.iter(SVG + "text"):
                    self.assertTrue(0 <= float(text.get("x")) <= right and 0 <= float(text.get("y")) <= bottom)
                    self.assertGreaterEqual(float(text.get("font-size")), 11)


def nested(depth):
    begin = "".join(f'<pci busid="0000:00:{i % 32:02x}.0">' for i in range(depth))
    return f'<system version="1"><cpu numaid="0">{begin}{"</pci>" * depth}</cpu></system>'


def many(count, line):
    return '<system version="1">\n' + "".join(line.format(i) + "\n" for i in range(count)) + "</system>\n"


class LargestFile(unittest.TestCase):
    def test_takes_memory_by_hosts_and_not_by_their_square(self):
        lines = "".join(f'<cpu numaid="{i % 256}" host_hash="{i // 256}"/>\n' for i in range(2048))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "m.xml")
            path.write_text(f'<system version="1">\n{lines}</system>\n')
            for form in ((), ("--json",)):
                result = run("--topo", str(path), *form, memory=4 * MEMORY_BYTES)
                self.assertEqual(result.returncode, 0, result.stderr)


class RefusesWithOneLine(unittest.TestCase):
    def refuse(self, content, place):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "m.xml")
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            result = run("--topo", str(path), memory=MEMORY_BYTES)
        self.assertEqual((result.returncode, result.stdout), (3, ""))
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertRegex(result.stderr, "m.xml" + place)

    def test_what_is_no_machine(self):
        whole = pathlib.Path(golden("dgx_h100")).read_text("utf-8")
        bomb = '<!DOCTYPE s [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>\n'
        cases = {
            "empty": ("", r":1:1: "),
            "truncated": (whole[:len(whole) // 2], r":\d+:\d+: "),
            "zero bytes": (b"\0" * 1000, r":1:1: a zero byte"),
            "UTF-16": (whole.encode("utf-16"), r":1:\d: a zero byte"),
            "noise": (bytes(range(1, 256)) * 40, r":\d+:\d+: "),
            "entities": (bomb + whole, r":1:\d+: a document type with declarations"),
            "an unknown entity": (whole.replace("mlx5_0", "&b;"), r":\d+:\d+: <net> name: entity &b is not accepted"),
            "another version": (whole.replace('version="1"', 'version="9"'), r':1:2: <system>: version "9"'),
            "too deep": (nested(60_000), r":1:\d+: elements within elements, more than 64 deep"),
            "a cycle": (nested(60), r":1:\d+: bus id 0000:00:00.0 is there twice"),
            "many elements": (many(500_000, "<a/>"), r":\d+:\d+: more than 65536 elements"),
            "many CPUs": (many(60_000, '<cpu numaid="{}"/>'), r":258:2: more than 256 CPUs"),
            "many hosts": (many(60_000, '<cpu numaid="0" host_hash="{}"/>'), r":2050:2: more than 2048 CPUs"),
            "many devices": ('<system version="1"><cpu numaid="0">\n' + "".join(
                f'<pci busid="{i:04x}:00:00.0" class="0x068000"/>\n' for i in range(60_000))
                + '</cpu><cpu numaid="0"/></system>', r":60002:8: there are two CPUs with numaid 0"),
            "a link to nowhere": (re.sub(r'tclass="0x068000"', 'tclass="0x030200"', whole, count=1),
                                  r":\d+:\d+: an NVLink leads to .*, where no GPU"),
            "a negative count": (re.sub(r'<nvlink ([^>]*)count="\d+"', r'<nvlink \1count="-1"', whole, count=1),
                                 r':\d+:\d+: <nvlink> count: "-1"'),
            "10^30": (re.sub(r'speed="\d+"', 'speed="1e30"', whole, count=1), r':\d+:\d+: <net> speed: "1e30"'),
        }
        for name, (content, place) in cases.items():
            with self.subTest(name):
                self.refuse(content, place)

    def test_what_is_no_file_or_too_large(self):
        with tempfile.TemporaryDirectory() as folder:
            pipe = os.path.join(folder, "pipe")
            os.mkfifo(pipe)
            large = os.path.join(folder, "large")
            pathlib.Path(large).touch()
            os.truncate(large, 1 << 30)
            for path, wanted in ((folder, "is no regular file"), (pipe, "is no regular file"),
                                 (large, "large:1:4194305: more than 4194304 bytes"), (folder + "/none", "No such file")):
                with self.subTest(path=path):
                    result = run("--topo", path)
                    self.assertEqual((result.returncode, result.stdout), (3, ""))
                    self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
                    self.assertIn(wanted, result.stderr)

    def test_a_profile_of_another_machine(self):
        with tempfile.TemporaryDirectory() as folder:
            profile = pathlib.Path(folder, "p.xml")
            profile.write_text('<profile version="1" name="P" sm="90"><gpu busid="0000:99:00.0"/></profile>', "utf-8")
            result = run("--topo", golden("single_gpu"), "--profile", str(profile))
        self.assertEqual(result.returncode, 3)
        self.assertIn("0000:99:00.0: the profile has a GPU, the machine nothing", result.stderr)


class InARunningJob(unittest.TestCase):
    def job(self, **settings):
        if "perf" not in subprocess.run([TUTTI, "--help"], capture_output=True, text=True, check=False).stdout:
            self.skipTest("this command was built without the library")
        with tempfile.TemporaryDirectory() as folder:
            dump = pathlib.Path(folder, "dump.xml")
            clean = {k: v for k, v in os.environ.items() if not k.upper().startswith(("NCCL_", "TUTTI_"))}
            clean.update({"TUTTI_DEVICE": "host", "NCCL_TOPO_DUMP_FILE": str(dump)}, **settings)
            command = [TUTTI, "perf", "all_reduce", "-n", "4", "-b", "8", "-e", "8", "--iters", "2"]
            result = subprocess.run(command, env=clean, capture_output=True, text=True, timeout=LIMIT, check=False)
            self.assertEqual(result.returncode, 0, result.stderr)
            return result.stdout + result.stderr, dump.read_text("utf-8") if dump.exists() else ""

    def test_one_line_says_what_there_is_and_what_was_assumed(self):
        log, dump = self.job(NCCL_DEBUG="INFO", NCCL_TOPO_DUMP_FILE_RANK="2")
        lines = re.findall(r"topology from this machine: (.*CPU.*); assumed: (.*)", log)
        self.assertEqual(len(lines), 1, log)
        self.assertIn("<cpu ", dump)

    def test_the_file_is_taken_and_written(self):
        log, dump = self.job(NCCL_DEBUG="INFO", NCCL_TOPO_FILE=golden("cpu_2_numa"))
        self.assertRegex(log, "topology from .*cpu_2_numa.xml: 2 CPUs, 1 network port; assumed: nothing")
        self.assertEqual(dump.count("<cpu "), 2)

    def test_a_file_that_is_no_machine_is_warned_of(self):
        log, dump = self.job(NCCL_DEBUG="WARN", NCCL_TOPO_FILE=str(SOURCE / "README.md"))
        self.assertRegex(log, r"README.md:\d+:\d+: ")
        self.assertIn("is not used: this machine's own topology is taken instead", log)
        self.assertIn("<cpu ", dump)


if __name__ == "__main__":
    TUTTI, SOURCE, SANITIZERS = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
