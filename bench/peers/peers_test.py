#!/usr/bin/env python3
"""The figures, the table and the page, from made-up times; and one real cell where the library is named."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import figures  # noqa: E402
import jobs  # noqa: E402
import page  # noqa: E402
import report  # noqa: E402
import run  # noqa: E402


def round_of(us, other=0.0, steal=0.0):
    return {"us": us, "fastest_us": us, "other_cpu": other, "steal": steal}


def cell_of(rounds, size=8, ranks=2, collective="allreduce"):
    wrong = {key: 0 for round_ in rounds for key in round_["us"]}
    return {"collective": collective, "ranks": ranks, "bytes": size, "iterations": {}, "wrong": wrong, "rounds": rounds}


def data_of(cells):
    return {
        "date": "2026-11-20T19:00:00+00:00",
        "seconds": 1.0,
        "command": "run.py <&>",
        "commit": "abc",
        "machine": {
            "cpu": "a <CPU>", "cpu_family_model": "1/2", "cores": 2, "memory": "1 kB", "kernel": "6", "system": "D",
            "load_at_start": 0.1, "load_at_end": 0.2,
        },
        "settings": {"rounds": 2, "seconds_per_cell": 0.1},
        "titles": {"openmpi": "Open MPI", "mpich": "MPICH", "tutti": "tutti"},
        "versions": {"openmpi": "v1"},
        "skipped": {"gloo": "not here"},
        "cells": cells,
    }  # fmt: skip


class Figures(unittest.TestCase):
    def test_ratios_pair_the_times_of_a_round(self):
        cell = cell_of([round_of({"openmpi": 1, "tutti": 2}), round_of({"openmpi": 10, "tutti": 5}),
                        round_of({"openmpi": 4, "tutti": 4})])  # fmt: skip
        self.assertEqual(figures.summarize(cell).ratios, {"tutti": 1.0})

    def test_the_best_peer_is_the_one_with_the_smallest_median(self):
        cell = cell_of([round_of({"openmpi": 5, "mpich": 1, "tutti": 3}), round_of({"openmpi": 5, "mpich": 9, "tutti": 3}),
                        round_of({"openmpi": 5, "mpich": 9, "tutti": 3})])  # fmt: skip
        self.assertEqual(figures.summarize(cell).best, "openmpi")

    def test_noisy_rounds_are_left_out_where_most_are_quiet(self):
        quiet, noisy = round_of({"openmpi": 1, "tutti": 1}), round_of({"openmpi": 1, "tutti": 9}, other=0.5)
        summary = figures.summarize(cell_of([quiet, quiet, noisy]))
        self.assertEqual((summary.ratios["tutti"], summary.rounds, summary.is_noisy), (1, 2, False))

    def test_where_most_rounds_are_noisy_all_count_and_it_says_so(self):
        quiet, noisy = round_of({"openmpi": 1, "tutti": 1}), round_of({"openmpi": 1, "tutti": 9}, steal=0.5)
        summary = figures.summarize(cell_of([quiet, noisy, noisy]))
        self.assertEqual((summary.ratios["tutti"], summary.rounds, summary.is_noisy), (9, 3, True))

    def test_a_cell_without_peers_has_no_ratio(self):
        summary = figures.summarize(cell_of([round_of({"tutti": 1})]))
        self.assertEqual((summary.best, summary.ratios), (None, {}))

    def test_the_geometric_mean_of_a_half_and_two_is_one(self):
        self.assertAlmostEqual(figures.geometric_mean([0.5, 2]), 1)

    def test_a_target_lists_the_cells_that_miss_it(self):
        cells = [cell_of([round_of({"openmpi": 10, "tutti": us})], size=size) for us, size in ((5, 8), (7, 64))]
        (verdict,) = figures.judge([figures.summarize(cell) for cell in cells])
        missing = [s.cell["bytes"] for s in verdict.missing]
        self.assertEqual((verdict.target.ours, verdict.count, missing), ("tutti", 2, [64]))
        self.assertAlmostEqual(verdict.mean, 0.35**0.5)
        self.assertEqual((verdict.floor_mean, verdict.over_floor), (None, None))

    def test_targets_leave_no_gap_between_the_sizes_of_two_ranks(self):
        for size in run.FULL + [32 * 1024]:
            covering = [t for t in figures.TARGETS if t.ours == "tutti" and t.covers(cell_of([], size=size))]
            self.assertEqual(len(covering), 1, size)

    def test_a_floor_is_the_form_with_the_smallest_median_and_its_ratios_pair_rounds(self):
        cell = cell_of([round_of({"openmpi": 8, "tutti": 4, "bare-mail": 2, "bare-read": 1, "bare-mapped": 1}),
                        round_of({"openmpi": 8, "tutti": 6, "bare-mail": 2, "bare-read": 9, "bare-mapped": 1}),
                        round_of({"openmpi": 4, "tutti": 4, "bare-mail": 4, "bare-read": 9, "bare-mapped": 9})])  # fmt: skip
        floors = figures.summarize(cell).floors
        self.assertEqual(floors["tutti"], figures.Floor("bare", "mail", 2, 0.25, 2))
        self.assertEqual(floors["tutti-shared"], figures.Floor("bare-shared", "mapped", 1, 0.125, None))

    def test_a_floor_is_never_the_best_peer(self):
        cell = cell_of([round_of({"openmpi": 5, "tutti": 3, "bare-mail": 1})])
        self.assertEqual(figures.summarize(cell).best, "openmpi")
        self.assertIsNone(figures.summarize(cell_of([round_of({"tutti": 3, "bare-mail": 1})])).best)

    def test_where_no_form_was_measured_there_is_no_floor(self):
        summary = figures.summarize(cell_of([round_of({"openmpi": 5, "tutti": 3})]))
        self.assertEqual((summary.floors, figures.far_over_floor([summary])), ({}, []))

    def test_a_target_says_what_its_floor_took_and_what_ours_takes_more(self):
        rounds = [round_of({"openmpi": 8, "tutti": 4, "bare-mail": 2})]
        cells = [cell_of(rounds, size=8), cell_of(rounds, size=64), cell_of([round_of({"openmpi": 8, "tutti": 8})], size=256)]
        ((verdict),) = figures.judge([figures.summarize(cell) for cell in cells])
        self.assertAlmostEqual(verdict.floor_mean, 0.25)
        self.assertAlmostEqual(verdict.over_floor, 2)
        self.assertEqual(figures.describe_verdicts([figures.summarize(cells[0])])[0]["over_floor"], verdict.over_floor)

    def test_cells_far_over_the_floor_come_worst_first(self):
        cells = [cell_of([round_of({"tutti": us, "bare-read": 10})]) for us in (12, 14, 30)]
        found = figures.far_over_floor([figures.summarize(cell) for cell in cells])
        self.assertEqual([ratio for ratio, _, _ in found], [3.0, 1.4])

    def test_cells_behind_a_peer_come_worst_first(self):
        cells = [cell_of([round_of({"openmpi": 10, "tutti": us})]) for us in (9, 11, 30)]
        found = figures.behind([figures.summarize(cell) for cell in cells])
        self.assertEqual([ratio for ratio, _, _ in found], [3.0, 1.1])


    def test_cells_over_tcp_have_a_target_of_their_own(self):
        cell = cell_of([round_of({"openmpi": 10, "tutti": 9})]) | {"wire": figures.TCP}
        (verdict,) = figures.judge([figures.summarize(cell)])
        self.assertEqual((verdict.target.wire, verdict.target.mean, verdict.missing), (figures.TCP, 0.85, []))


class Output(unittest.TestCase):
    def setUp(self):
        sizes = (8, 4096, 1 << 20)
        self.data = data_of([
            cell_of([round_of({"openmpi": size / 8, "mpich": size / 4, "tutti": size / 6})] * 2, size) for size in sizes
        ])  # fmt: skip

    def test_the_table_has_a_line_a_size_and_says_what_is_missing(self):
        text = report.render(self.data)
        self.assertRegex(text, r"(?m)^ +4 KB +512 +1024 +683 +1\.33 +openmpi +2\.33 o6/def$")
        self.assertIn("not measured: gloo: not here", text)
        self.assertIn("Behind a peer: 3 cells", text)

    def test_stronger_opponents_elsewhere_stand_beside_ours_but_are_no_peer(self):
        text = report.render(self.data)
        self.assertIn("Cascade Lake", text)
        self.assertRegex(text, r"8 B to 16 KB +geometric mean +34.41 +slower: 2 of 2: allreduce 2 x 4 KB 292\.99")
        self.assertRegex(text, r"above 16 KB to 256 MB +geometric mean +900.84 +slower: 1 of 1: allreduce 2 x 1 MB")
        self.assertIn("<td>2.33 o6/def</td>", page.render(self.data))
        self.assertEqual({figures.summarize(cell).best for cell in self.data["cells"]}, {"openmpi"})
        self.data["cells"][0]["ranks"] = 3
        self.assertEqual(figures.opponent_text(self.data["cells"][0]), "")

    def test_table_and_page_say_that_ranks_talk_over_tcp(self):
        self.assertNotIn("TCP", report.render(self.data) + page.render(self.data))
        self.data["settings"]["wire"] = figures.TCP
        self.assertIn("over TCP", report.render(self.data))
        self.assertIn("over TCP", page.render(self.data))

    def test_wrong_results_stand_in_their_line(self):
        self.data["cells"][0]["wrong"]["tutti"] = 7
        self.assertRegex(report.render(self.data), r"(?m)^ +8 B .*WRONG: tutti$")

    def test_the_page_is_whole_escaped_and_needs_nothing_else(self):
        text = page.render(self.data)
        body = text[text.index("<body>") : text.index("</html>")]
        xml.etree.ElementTree.fromstring(body)  # as XML it is stricter than HTML asks
        self.assertIn("a &lt;CPU&gt;", text)
        self.assertNotRegex(text, r'(src|href)="?http')
        self.assertEqual(text.count('<svg class="plot"'), 2)

    def test_plots_stay_inside_their_frames(self):
        for x, y in re.findall(r'c[xy]="([\d.-]+)" c[xy]="([\d.-]+)"', page.render(self.data)):
            self.assertTrue(0 <= float(x) <= page.WIDTH and 0 <= float(y) <= page.TIME_HEIGHT, (x, y))

    def test_one_size_alone_makes_a_page(self):
        self.data["cells"] = self.data["cells"][:1]
        self.assertIn('<svg class="plot"', page.render(self.data))

    def test_nothing_measured_makes_a_page_and_a_table(self):
        self.data["cells"] = []
        self.assertIn("</html>", page.render(self.data))
        self.assertIn("not measured", report.render(self.data))


class FloorOutput(unittest.TestCase):
    def setUp(self):
        times = {"openmpi": 8, "tutti": 4, "bare-mail": 2, "bare-read": 3}
        self.data = data_of([cell_of([round_of(times)], size) for size in (8, 4096)])
        self.data["titles"] |= {"bare-mail": "bare: mail", "bare-read": "bare: read"}
        self.data["skipped"]["bare-mapped"] = "a rank has ended"

    def test_the_table_names_the_best_form_and_both_ratios(self):
        text = report.render(self.data)
        self.assertRegex(text, r"(?m)^ +8 B +8\.00 +4\.00 +2\.00 +3\.00 +0\.50 +2\.00 mail +0\.25 +2\.00 +openmpi +0\.33 ucc-persist$")
        self.assertRegex(text, r"floor's mean 0\.25  ours over the floor 2\.00")
        self.assertRegex(text, r"(?m)^ +2\.00  tutti .*allreduce .*bare \(mail\) 2\.00 µs$")

    def test_a_form_that_has_failed_is_left_out_and_named(self):
        self.assertIn("not measured: bare-mapped: a rank has ended", report.render(self.data))
        self.assertIn("not measured: bare-mapped", page.render(self.data))

    def test_the_page_shows_the_floor_instead_of_its_forms(self):
        text = page.render(self.data)
        xml.etree.ElementTree.fromstring(text[text.index("<body>") : text.index("</html>")])
        self.assertIn("<th>ours over the floor</th>", text)
        self.assertIn("<td>2.00 mail</td>", text)
        self.assertIn("Cells over 1.3 of the floor: 2", text)
        self.assertNotIn("bare: read", text)

    def test_without_a_floor_nothing_speaks_of_it(self):
        data = data_of([cell_of([round_of({"openmpi": 8, "tutti": 4})])])
        self.assertNotIn("floor", report.render(data) + page.render(data))


class CommandLine(unittest.TestCase):
    def test_the_floor_adds_all_forms_to_the_peers(self):
        self.assertEqual(run.parse_arguments(["--peers", "tutti", "--floor"]).peers, ["tutti", *run.BARE])
        self.assertNotIn("bare-mail", run.parse_arguments([]).peers)

    def test_sizes_have_units(self):
        self.assertEqual([run.parse_size(text) for text in ("8", "4K", "2m")], [8, 4096, 2 << 20])

    def test_wrong_usage_ends_with_2(self):
        for words in (["--peers", "nobody"], ["--sizes", "7"], ["--sizes", "x"], ["--ranks", "1"], ["--rounds", "-1"]):
            done = subprocess.run([sys.executable, HERE / "run.py", *words], capture_output=True, check=False)
            self.assertEqual(done.returncode, 2, words)

    def test_a_machine_without_git_or_a_name_is_unknown(self):
        with unittest.mock.patch.dict("os.environ", {"PATH": ""}):
            self.assertEqual(run.commit(), "unknown")
        self.assertEqual(run.first_match("/nowhere/os-release", "PRETTY_NAME"), "unknown")

    def test_over_tcp_there_are_two_ranks_ordinary_buffers_and_no_floor(self):
        options = run.parse_arguments(["--tcp"])
        self.assertEqual((options.ranks, "tutti-shared" in options.peers), ([2], False))
        with self.assertRaises(SystemExit), unittest.mock.patch("sys.stderr"):
            run.parse_arguments(["--tcp", "--floor"])

    def test_without_our_library_it_says_where_it_looked(self):
        with tempfile.TemporaryDirectory() as folder:
            words = ["--peers", "tutti", "--library", folder, "--work", folder]
            done = subprocess.run([sys.executable, HERE / "run.py", *words], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 3)
        self.assertIn(folder, done.stderr)


@unittest.skipUnless(os.environ.get("PEERS_TEST_LIBRARY"), "PEERS_TEST_LIBRARY names no folder of libnccl.so.2")
class RealRun(unittest.TestCase):
    def test_every_collective_is_right_on_three_ranks_and_two(self):
        with tempfile.TemporaryDirectory() as folder:
            words = ["--peers", "tutti,tutti-shared", "--library", os.environ["PEERS_TEST_LIBRARY"], "--work", folder]
            words += ["--ranks", "2,3", "--sizes", "12,96K", "--rounds", "1", "--seconds", "0.001", "--json", "-"]
            done = subprocess.run([sys.executable, HERE / "run.py", *words], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr)
        data = json.loads(done.stdout)
        # Two cells a collective and number of ranks; ping-pong has only two ranks.
        self.assertEqual(len(data["cells"]), 2 * (6 + 5))
        for cell in data["cells"]:
            self.assertEqual(cell["wrong"], {"tutti": 0, "tutti-shared": 0}, cell)


    def test_ranks_taken_for_hosts_are_right_over_tcp(self):
        with tempfile.TemporaryDirectory() as folder:
            words = ["--tcp", "--peers", "tutti", "--library", os.environ["PEERS_TEST_LIBRARY"], "--work", folder]
            words += ["--sizes", "12,96K", "--rounds", "1", "--seconds", "0.001", "--json", "-"]
            done = subprocess.run([sys.executable, HERE / "run.py", *words], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr)
        data = json.loads(done.stdout)
        self.assertEqual(len(data["cells"]), 2 * 6)
        self.assertEqual({sum(cell["wrong"].values()) for cell in data["cells"]}, {0})
        self.assertIn("each rank a host", data["versions"]["tutti"])


class RealFloor(unittest.TestCase):
    def test_a_rank_that_wakes_late_misses_no_command(self):
        with tempfile.TemporaryDirectory() as folder:
            peers, _ = jobs.find_peers(["bare-read"], pathlib.Path(folder), pathlib.Path(folder), over_tcp=False)
            with jobs.Job(peers["bare-read"], 3) as job:
                job.start()
                os.kill(job.pids[2], signal.SIGSTOP)
                os.write(job.command, b"measure 2 60 1 0.001\nmeasure 2 12288 3 0.001\n")  # too short for reads, and not
                time.sleep(0.2)
                os.kill(job.pids[2], signal.SIGCONT)
                self.assertEqual(job.read_line(30), "absent")
                self.assertRegex(job.read_line(30), r"^time \S+ \S+ 3 0$")
                self.assertEqual(job.measure("reduce_scatter", 3 << 19, 3, 0.001, 30).wrong, 0)

    def test_every_form_is_right_on_two_three_and_five_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            words = ["--peers", ",".join(run.BARE), "--work", folder, "--ranks", "2,3,5", "--sizes", "20,12K,1540K"]
            words += ["--rounds", "1", "--seconds", "0.001", "--json", "-"]
            done = subprocess.run([sys.executable, HERE / "run.py", *words], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr)
        data = json.loads(done.stdout)
        self.assertEqual(data["skipped"], {})
        self.assertEqual(len(data["cells"]), 3 * (6 + 5 + 5))
        for cell in data["cells"]:
            self.assertEqual(set(cell["wrong"].values()), {0}, cell)
            self.assertEqual({"bare-mail", "bare-read"} & set(cell["wrong"]), {"bare-mail"} if cell["bytes"] < 4096 else
                             {"bare-read", "bare-mail"} if cell["bytes"] <= 16384 else {"bare-read"})  # fmt: skip


if __name__ == "__main__":
    unittest.main()
