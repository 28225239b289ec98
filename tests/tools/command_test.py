"""The tutti command as a script sees it: exit codes, key lines, JSON, and docs/SETTINGS.md.

Usage: command_test.py TUTTI SOURCE_FOLDER VERSION
"""

import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest

from command import LIMIT, SOURCE, TUTTI, VERSION, run


class Frame(unittest.TestCase):
    def test_usage_errors_exit_2_and_leave_stdout_empty(self):
        for arguments in ([], ["nonsense"], ["settings", "--nonsense"], ["version", "extra"],
                          ["settings", "--json", "--markdown"]):
            with self.subTest(arguments=arguments):
                result = run(*arguments)
                self.assertEqual(result.returncode, 2)
                self.assertEqual(result.stdout, "")
                self.assertNotEqual(result.stderr, "")

    def test_each_subcommand_has_help_with_an_example(self):
        overview = run("--help")
        self.assertEqual(overview.returncode, 0)
        for command in ("explain", "doctor", "settings", "version"):
            with self.subTest(command=command):
                self.assertIn(command, overview.stdout)
                result = run(command, "--help")
                self.assertEqual(result.returncode, 0)
                self.assertIn("Example: ", result.stdout)

    def test_a_full_disk_is_no_success(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            result = run("version", stdout=full)
        self.assertEqual(result.returncode, 3)
        self.assertIn("No space left", result.stderr)

    def test_usage_errors_name_the_command_and_what_was_wrong(self):
        self.assertEqual(run("frobnicate").stderr.split(";")[0], "tutti: there is no subcommand 'frobnicate'")
        self.assertIn("tutti topo: not expected: one two\n", run("topo", "one", "two").stderr)

    def test_a_closed_stream_is_no_other_file(self):
        for command in (("settings",), ("perf", "all_reduce", "-n", "2", "-b", "8", "-e", "8", "-c", "0")):
            with self.subTest(command=command):
                closed = subprocess.run(["sh", "-c", '"$0" "$@" >&-', TUTTI, *command], stderr=subprocess.PIPE, text=True,
                                        timeout=LIMIT, check=False)
                self.assertEqual(closed.returncode, 3)
                self.assertIn("Bad file descriptor", closed.stderr)

    def test_what_cannot_be_written_is_refused_before_the_work(self):
        cluster = str(SOURCE / "examples/clusters/h200x4.yaml")
        for command in (("perf", "all_reduce", "-n", "2", "--json", "/none/x"), ("perf", "all_reduce", "-n", "2", "--html", "/none/x"),
                        ("tune", "-o", "/none/x"), ("tune", "--times", "/none/x"),
                        ("explain", "--topo", str(SOURCE / "tests/golden/topologies/dgx1v.xml"), "--dump-graphs", "/none/x"),
                        ("sim", "--cluster", cluster, "--html", "/none/x"),
                        ("sim", "--cluster", cluster, "--export", "goal", "--output", "/none/x")):
            with self.subTest(command=command):
                result = run(*command)
                self.assertEqual(result.returncode, 3)
                self.assertEqual(result.stdout, "")
                self.assertIn("cannot write /none/x: No such file or directory", result.stderr)
                self.assertNotIn("--topo", result.stderr)

    def test_a_file_that_is_not_there_is_no_usage_error(self):
        cluster = str(SOURCE / "examples/clusters/h200x4.yaml")
        machine = str(SOURCE / "tests/golden/topologies/dgx1v.xml")
        for command in (("explain", "--topo", "/none/x"), ("explain", "--topo", machine, "--graphs", "/none/x"),
                        ("explain", "--topo", machine, "--profile", "/none/x"), ("topo", "--topo", "/none/x"),
                        ("run", "--hostfile", "/none/x", "--", "true"), ("perf", "all_reduce", "--lib", "/none/x"),
                        ("sim", "--cluster", cluster, "--trace", "/none/x"), ("sim", "compare", "/none/x", "--cluster", cluster),
                        ("sim", "--cluster", "/none/x"), ("trace", "/none/x"), ("tune", "--from", "/none/x")):
            with self.subTest(command=command):
                result = run(*command)
                self.assertEqual(result.returncode, 3, result.stderr)
                self.assertEqual(result.stdout, "")
                self.assertRegex(result.stderr, f"^tutti {command[0]}: .*/none/x: .*\n$")

    def test_a_page_does_not_go_where_the_table_goes(self):
        cluster = str(SOURCE / "examples/clusters/h200x4.yaml")
        for command in (("perf", "all_reduce"), ("sim", "--cluster", cluster, "--bytes", "1M")):
            for place in ("-", "/dev/stdout"):
                result = run(*command, "--html", place)
                self.assertEqual(result.returncode, 2, command)
                self.assertIn("--html: wanted a file", result.stderr)

    def test_hosts_that_are_wrong_are_named_with_their_line(self):
        with tempfile.NamedTemporaryFile("w", suffix=".hosts") as file:
            file.write("# two\nnode1 slots=2 max_slots=4\nnode2 slots=many\n")
            file.flush()
            result = run("run", "--hostfile", file.name, "--", "true")
        self.assertEqual(result.returncode, 2)
        self.assertIn(f"--hostfile: {file.name}:3: 'node2' has 'many' slots", result.stderr)

    def test_a_device_is_written_to_and_stays_one(self):
        with tempfile.TemporaryDirectory() as folder:
            device = os.path.join(folder, "full")
            try:
                os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(1, 7))
                os.close(os.open(device, os.O_WRONLY))
            except PermissionError:
                self.skipTest("devices are made by root only")
            cluster = str(SOURCE / "examples/clusters/h200x4.yaml")
            for command in (("why", "--bundle", device), ("sim", "--cluster", cluster, "--html", device),
                            ("perf", "all_reduce", "-n", "2", "-b", "8", "-e", "8", "--json", device)):
                result = run(*command)
                self.assertEqual(result.returncode, 3, command)
                self.assertIn(f"cannot write {device}: No space left", result.stderr)
                self.assertTrue(stat.S_ISCHR(os.stat(device).st_mode), command)

    def test_settings_that_name_no_regular_file_end_no_initialisation_late(self):
        with tempfile.TemporaryDirectory() as folder:
            pipe = os.path.join(folder, "pipe")
            os.mkfifo(pipe)
            for setting in ("TUTTI_TUNING_FILE", "TUTTI_VIRTUAL_CLUSTER"):
                for path in (folder, pipe, "/dev/zero"):
                    with self.subTest(setting=setting, path=path):
                        result = run("perf", "all_reduce", "-n", "2", "-b", "8", "-e", "8", "-T", "30", env={setting: path})
                        self.assertEqual(result.returncode, 3)
                        self.assertRegex(result.stderr, f"{setting}.*{path}: is no regular file")

    def test_sizes_that_do_not_fit_are_refused(self):
        cluster = str(SOURCE / "examples/clusters/h200x4.yaml")
        for command in (("explain", "all_reduce", "-b", "99999999999999999999"), ("explain", "all_reduce", "-b", "8E"),
                        ("sim", "--cluster", cluster, "--bytes", "-5"), ("sim", "--cluster", cluster, "--bytes", "0"),
                        ("sim", "--cluster", cluster, "-b", "2M", "-e", "1M"), ("tune", "--sizes", "18446744073709551617"),
                        ("sim", "--cluster", cluster, "--what-if", "0=nan")):
            with self.subTest(command=command):
                result = run(*command)
                self.assertEqual(result.returncode, 2)
                self.assertEqual(result.stdout, "")
        self.assertIn("1536 ", run("explain", "all_reduce", "-b", "1.5K").stdout)

    def test_no_colours_where_nobody_looks(self):
        for command in ("settings", "doctor"):
            self.assertNotIn("\x1b", run(command).stdout)


class Version(unittest.TestCase):
    def test_text_names_version_and_interface(self):
        result = run("version")
        self.assertEqual(result.returncode, 0)
        self.assertIn(VERSION, result.stdout)
        self.assertIn("2.28.9 (22809)", result.stdout)
        self.assertEqual(run("--version").stdout, f"tutti {VERSION}\n")

    def test_json_says_the_same(self):
        version = json.loads(run("version", "--json").stdout)
        self.assertEqual(version["tutti"], VERSION)
        self.assertEqual(version["nccl_interface"], "2.28.9")
        self.assertIn(version["cuda_driver_found"], (True, False))
        self.assertIn(version["nvtx"], (True, False))
        self.assertIn("ranges around calls" if version["nvtx"] else "built without NVTX3's headers", run("version").stdout)


class Settings(unittest.TestCase):
    def test_defaults_exit_0(self):
        result = run("settings")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"TUTTI_TIMEOUT_MS +10000 +default")
        self.assertNotIn("NCCL_IB_ECE_ENABLE", result.stdout)
        self.assertIn("NCCL_IB_ECE_ENABLE", run("settings", "--all").stdout)

    def test_a_mistyped_name_exits_1_with_what_was_meant(self):
        result = run("settings", env={"NCCL_DEBUGG": "INFO"})
        self.assertEqual(result.returncode, 1)
        self.assertIn("did you mean NCCL_DEBUG?", result.stdout)

    def test_a_wrong_value_exits_1_with_what_is_allowed(self):
        result = run("settings", env={"TUTTI_TIMEOUT_MS": "soon"})
        self.assertEqual(result.returncode, 1)
        self.assertIn("TUTTI_TIMEOUT_MS=soon (environment): wanted a number, 200..86400000 ms", result.stdout)
        self.assertRegex(result.stdout, r"TUTTI_TIMEOUT_MS +10000 +default")

    def test_what_has_no_effect_says_so_and_is_no_fault(self):
        result = run("settings", env={"NCCL_IB_ECE_ENABLE": "0"})
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"NCCL_IB_ECE_ENABLE +0 +environment +\(no effect: ")

    def test_json_tells_value_source_and_complaints(self):
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.write("NCCL_BUFFSIZE=64K\nNCCL_ALGO=abc\n")
            file.flush()
            result = run("settings", "--json", env={"NCCL_CONF_FILE": file.name})
        self.assertEqual(result.returncode, 1)
        output = json.loads(result.stdout)
        values = {each["name"]: each for each in output["settings"]}
        self.assertEqual(values["NCCL_BUFFSIZE"]["value"], "65536")
        self.assertEqual(values["NCCL_BUFFSIZE"]["source"], file.name)
        self.assertEqual([each["name"] for each in output["complaints"]], ["NCCL_ALGO"])
        self.assertIn(f"{file.name}:2", output["complaints"][0]["text"])

    def test_bytes_that_are_no_text_do_not_break_json(self):
        result = run("settings", "--json", env={"NCCL_HOSTID": os.fsdecode(b"\xff\xfe")})
        self.assertEqual(result.returncode, 0)
        json.loads(result.stdout)

    def test_the_page_in_docs_is_current(self):
        page = run("settings", "--markdown", env={"NCCL_DEBUG": "abc"})
        self.assertEqual(page.returncode, 0)
        self.assertEqual(page.stdout, (SOURCE / "docs/SETTINGS.md").read_text(encoding="utf-8"),
                         "run: tutti settings --markdown > docs/SETTINGS.md")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
