"""tutti sim as a script sees it: table, JSON, page, sweeps, what-ifs, comparison, exports, and files with something wrong in them.

Usage: sim_test.py TUTTI SOURCE_FOLDER
"""

import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import unittest

TUTTI = ""
SOURCE = pathlib.Path()
LIMIT = 300  # seconds: many times what the longest needs, and still an end


def run(*arguments):
    clean = {k: v for k, v in os.environ.items() if not k.upper().startswith(("NCCL_", "TUTTI_"))}
    clean["NCCL_DEBUG"] = "NONE"
    return subprocess.run([TUTTI, "sim", *map(str, arguments)], env=clean, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=LIMIT, check=False)


def example(name):
    return SOURCE / "examples" / "clusters" / f"{name}.yaml"


class Sim(unittest.TestCase):
    def rows(self, *arguments):
        result = run(*arguments, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)["rows"]

    def test_one_call_names_way_time_limit_and_losers(self):
        result = run("all_reduce", "--cluster", example("dgx_h100x64"), "--bytes", "1G")
        self.assertEqual(result.returncode, 0, result.stderr)
        for wanted in ("LIMITED BY", "512", "TO BEST", "hops"):
            self.assertIn(wanted, result.stdout)

    def test_sweeps_sizes_nodes_and_algorithms(self):
        rows = self.rows("all_reduce", "--cluster", example("dgx_h100x64"), "-b", "1M", "-e", "16M", "-f", "4",
                         "--nodes", "2,4", "--algorithm", "ring,tree")
        self.assertEqual(len(rows), 3 * 2 * 2)
        self.assertEqual([r["ranks"] for r in rows[:7]], [16] * 6 + [32])
        self.assertTrue(rows[0]["way"].startswith("ring") and rows[3]["way"].startswith("tree"))

    def test_threads_change_nothing(self):
        arguments = ("all_gather", "--cluster", example("mixed"), "-b", "1M", "-e", "8M", "--fidelity", "fair",
                     "--algorithm", "ring")
        self.assertEqual(self.rows(*arguments, "--threads", 1), self.rows(*arguments, "--threads", 3))

    def test_a_slow_link_and_a_straggler_cost_time(self):
        arguments = ("all_reduce", "--cluster", example("dgx_h100x64"), "--nodes", 4, "--bytes", "256M", "--algorithm", "ring")
        usual = self.rows(*arguments)[0]["us"]
        slow = self.rows(*arguments, "--what-if", "node 3 port 0 -> leaf 0=0.1")[0]
        self.assertGreater(slow["us"], 2 * usual)
        self.assertEqual(slow["limited_by"], "node 3 port 0 -> leaf 0")
        self.assertGreater(self.rows(*arguments, "--what-if", "7=0.1")[0]["us"], 2 * usual)

    def test_nccl_is_asked_with_its_losers(self):
        row = self.rows("all_reduce", "--cluster", example("dgx_a100x16"), "--bytes", "64M", "--system", "nccl")[0]
        self.assertIn("choice model", row["reason"])
        self.assertTrue(any(way.get("nccl_model_us") for way in row["ways"]))

    def test_the_page_is_whole(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.html"
            result = run("all_reduce", "--cluster", example("cpu_cluster"), "-b", "1K", "-e", "1M", "-f", "4", "--html", page)
            self.assertEqual(result.returncode, 0, result.stderr)
            text = page.read_text(encoding="utf-8")
            for wanted in ("Bus bandwidth", "What limits", "Time line of rank 0", "</html>", "<rect"):
                self.assertIn(wanted, text)
            self.assertNotIn("nan", text.replace("dominant", ""))

    def test_a_page_leaves_out_a_time_line_of_more_messages_than_it_can_wait_for(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.html"
            result = run("all_reduce", "--cluster", example("dgx_h100x64"), "--nodes", "8", "-b", "64M", "--html", page)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertRegex(page.read_text(), r"Not drawn: \d+ messages between all ranks")

    def test_compare_prints_signed_errors(self):
        with tempfile.TemporaryDirectory() as folder:
            table = pathlib.Path(folder) / "measured.csv"
            table.write_text("collective,ranks,bytes,us\nall_reduce,4,1048576,20.8\nall_reduce,2,1024,5.0\n", encoding="utf-8")
            result = run("compare", table, "--cluster", example("h200x4"))
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("2 calls, median error", result.stdout)
            table.write_text("collective,ranks,bytes,us,run\nall_reduce,4,1048576,20.8,a\nall_reduce,2,1024,3.0,a\n"
                             "all_reduce,2,1024,5.1,b\nall_reduce,2,1024,900,c\n", encoding="utf-8")
            result = run("compare", table, "--cluster", example("h200x4"))
            self.assertIn("2 calls, median error", result.stdout)
            self.assertIn("; 1 of them unstable, the worst", result.stdout)
            self.assertRegex(result.stdout, r"AllReduce +2 +1K +\S+ +\S+ +3 5.1 900\n")
            result = run("compare", table, "--cluster", example("h200x4"), "--json")
            calls = json.loads(result.stdout)["rows"]
            self.assertEqual([(c["ranks"], c["measured_us"], c["unstable"], len(c["runs"])) for c in calls],
                             [(2, 5.1, True, 3), (4, 20.8, False, 1)])
            # Run once, between sizes that were run twice: those say what it may be.
            lines = [f"all_reduce,4,{size},{us},{name}" for size, us in ((1024, 5), (16384, 7)) for name in "ab"]
            for alone, unstable in ((5.5, False), (9.0, True)):
                table.write_text("\n".join(["collective,ranks,bytes,us,run", *lines, f"all_reduce,4,8704,{alone},a"]),
                                 encoding="utf-8")
                calls = json.loads(run("compare", table, "--cluster", example("h200x4"), "--json").stdout)["rows"]
                self.assertEqual([(c["bytes"], c["line_us"], c["unstable"]) for c in calls],
                                 [(1024, 0, False), (8704, 6.0, unstable), (16384, 0, False)])
            table.write_text("collective,ranks,bytes,us\nall_reduce,4,many,20.8\n", encoding="utf-8")
            result = run("compare", table, "--cluster", example("h200x4"))
            self.assertEqual(result.returncode, 2)
            self.assertIn("measured.csv:2:14: many is no bytes", result.stderr)

    def test_exports_flows_in_every_form(self):
        with tempfile.TemporaryDirectory() as folder:
            for form in ("jsonl", "simai", "goal", "goalbin", "chakra", "msccl", "htsim", "topology", "chrome"):
                out = pathlib.Path(folder) / form
                result = run("all_reduce", "--cluster", example("dgx_h100x64"), "--nodes", 2, "--bytes", "64K",
                             "--algorithm", "ring", "--channels", 2, "--export", form, "--output", out)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(result.stdout, "")
                self.assertEqual(len(list(pathlib.Path(folder).glob(form + "*"))), 16 if form == "chakra" else 1)
        result = run("all_reduce", "--cluster", example("h200x4"), "--bytes", "1K", "--export", "jsonl", "--algorithm", "ring")
        first = json.loads(result.stdout.splitlines()[0])
        self.assertEqual(first["schema"], "tutti.flows/1")
        self.assertEqual(run("--cluster", example("h200x4"), "--bytes", "1K", "--export", "morse").returncode, 2)
        result = run("--cluster", example("h200x4"), "--bytes", "1K", "--export", "htsim_topology")
        self.assertEqual(result.returncode, 2)
        self.assertIn("the form has leaf_spine and fat_tree", result.stderr)

    def test_a_trace_is_simulated(self):
        with tempfile.TemporaryDirectory() as folder:
            trace, page = pathlib.Path(folder) / "step.jsonl", pathlib.Path(folder) / "step.html"
            made = subprocess.run([sys.executable, SOURCE / "examples/traces/make_transformer_step.py", "--layers", "2", "--data", "2"],
                                  stdout=subprocess.PIPE, text=True, check=True)
            trace.write_text(made.stdout, encoding="utf-8")
            arguments = ("--trace", trace, "--cluster", example("dgx_h100x64"), "--nodes", 2)
            result = run(*arguments, "--html", page)
            self.assertEqual(result.returncode, 0, result.stderr)
            for wanted in ("16 ranks", "tensor", "ReduceScatter", "ONLY CALLS us"):
                self.assertIn(wanted, result.stdout)
            self.assertIn("backward 1", page.read_text(encoding="utf-8"))
            report = json.loads(run(*arguments, "--json", "--root", 3).stdout)
            self.assertEqual(report["schema"], "tutti.sim.trace/1")
            self.assertEqual(len(report["by_rank"]), 16)
            self.assertLess(report["by_rank"][0]["exposed_us"], report["by_rank"][0]["call_us"])  # some of it is hidden
            trace.write_text(made.stdout + '{"call": "all_reduce"}\n', encoding="utf-8")
            refused = run(*arguments)
            self.assertEqual(refused.returncode, 2)
            self.assertIn("count is missing", refused.stderr)

    def test_chakra_goes_out_and_in(self):
        with tempfile.TemporaryDirectory() as folder:
            arguments = ("--cluster", example("h200x4"), "--bytes", "1M", "--algorithm", "ring", "--channels", 1)
            result = run("all_reduce", *arguments, "--export", "chakra", "--output", pathlib.Path(folder) / "ring")
            self.assertEqual(result.returncode, 0, result.stderr)
            result = run("--trace", pathlib.Path(folder) / "ring.0.et", "--cluster", example("h200x4"))
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("4 ranks", result.stdout)
            self.assertIn("Send", result.stdout)

    def test_an_export_that_does_not_fit_leaves_no_half(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
        with tempfile.TemporaryDirectory() as folder:
            full = subprocess.run([TUTTI, "sim", "--cluster", example("h200x4"), "--bytes", "1M", "--export", "goal", "--output",
                                   pathlib.Path(folder) / "x.goal"], preexec_fn=limit, capture_output=True, text=True, timeout=LIMIT,
                                  check=False)
            self.assertEqual(full.returncode, 3)
            self.assertIn("x.goal: File too large", full.stderr)
            self.assertEqual(os.listdir(folder), [])

    def test_errors_name_the_place_and_leave_stdout_empty(self):
        with tempfile.TemporaryDirectory() as folder:
            bad = pathlib.Path(folder) / "bad.yaml"
            bad.write_text("nodes:\n  - {count: 2, machine: {gpus: many}}\n", encoding="utf-8")
            for arguments, wanted in (
                (("--cluster", bad), "bad.yaml:2:32: gpus is many"),
                (("--cluster", folder), "is no regular file"),
                (("--cluster", "/dev/zero"), "is no regular file"),
                (("--cluster", example("h200x4"), "--what-if", "nonsense"), "wanted LINK=FACTOR"),
                (("--cluster", example("h200x4"), "--what-if", "nonsense=2"), "no link is called"),
                (("--cluster", example("h200x4"), "--algorithm", "butterfly"), "no algorithm butterfly"),
                (("--cluster", example("dgx_h100x64"), "--ranks", "12"), "12 ranks are no whole number of nodes"),
                ((), "--cluster")):
                with self.subTest(arguments=arguments):
                    result = run("all_reduce", *arguments)
                    self.assertEqual(result.returncode, 2)
                    self.assertEqual(result.stdout, "")
                    self.assertIn(wanted, result.stderr)
            missing = run("--cluster", pathlib.Path(folder) / "none.yaml")
            self.assertEqual(missing.returncode, 3)
            self.assertIn("none.yaml: No such file or directory", missing.stderr)


if __name__ == "__main__":
    TUTTI, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1])
