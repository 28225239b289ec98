"""The harness itself: what is tried again, what is not, and which time counts."""

import io
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

import harness
import table


def outcome(body):
    """What unittest makes of a case with this test, and the rows of its table."""
    case = type("Case", (harness.FaultCase,), {"test_it": body})("test_it")
    with tempfile.NamedTemporaryFile("r") as rows, unittest.mock.patch.dict(os.environ, FAULTS_TABLE=rows.name):
        result = unittest.TestResult()
        with unittest.mock.patch("sys.stderr", io.StringIO()):
            case.run(result)
        return result, rows.read().splitlines()


class Tries(unittest.TestCase):
    def test_end_with_the_first_that_succeeds(self):
        seen = []
        result, rows = outcome(lambda case: (seen.append(case.own_T), case.keep_time(len(seen), 2 * len(seen) - 1.5)))
        self.assertEqual(seen, [harness.T, 3 * harness.T])
        self.assertTrue(result.wasSuccessful())
        self.assertEqual(result.testsRun, 1)
        self.assertRegex(rows[0], "^tried again\tCase: it\tAssertionError: 1 not less than 0.5")
        self.assertEqual(rows[1:], ["Case: it\t2.000\t3.500"])  # the second bound, and two times T more

    def test_of_what_is_wrong_fail(self):
        seen = []

        def fail(case):
            seen.append(case.patience)
            with case.subTest("part"):
                case.fail("wrong")

        result, rows = outcome(fail)
        self.assertEqual(tuple(seen), harness.PATIENCES)
        self.assertEqual(len(result.failures), 1)
        self.assertEqual([row.split("\t")[0] for row in rows], ["tried again"] * (len(seen) - 1) + ["Case: it (whole test)"])

    def test_of_what_is_skipped_are_one(self):
        seen = []
        result, rows = outcome(lambda case: (seen.append(1), case.skipTest("not here")))
        self.assertEqual((len(seen), [why for _, why in result.skipped], rows), (1, ["not here"], ["skipped\tCase: it\tnot here"]))

    def test_start_anew(self):
        ended = []

        def leave(case):
            case.addCleanup(ended.append, case.patience)
            case.assertGreater(case.patience, 1)

        self.assertTrue(outcome(leave)[0].wasSuccessful())
        self.assertEqual(ended, [1, 3])

    def test_leave_bounds_without_t_as_they_are(self):
        def last(case):
            case.timeout = 60.0
            case.keep_time(1.5, 1.0)

        self.assertEqual(len(outcome(last)[0].failures), 1)


class Rows(unittest.TestCase):
    def test_are_there_of_tests_that_keep_no_time(self):
        result, rows = outcome(lambda case: case.own_T)
        self.assertTrue(result.wasSuccessful())
        self.assertEqual(len(rows), 1)
        self.assertRegex(rows[0], r"^Case: it \(whole test\)\t0\.\d+\t\d+\.000$")

    def test_that_are_over_the_bound_of_the_whole_test_fail(self):
        def dawdle(case):
            case.whole_bound = 0.01
            time.sleep(0.01 * case.patience + 0.02)

        witness = unittest.mock.Mock(stalled=lambda since, until: 0.0)
        with unittest.mock.patch.multiple(harness, WITNESS=witness, IS_SANITIZED=False):
            result, rows = outcome(dawdle)
        self.assertEqual(len(result.failures), 1)
        name, took, bound = rows[-1].split("\t")
        self.assertGreater(float(took), float(bound))

    def test_are_printed_with_their_bounds_and_marked_beyond_them(self):
        rows = "A: good\t0.5\t1.0\nA: good\t0.7\t1.0\nA: late\t3.0\t2.0\nskipped\tA: absent\tno such thing\n"
        text = table.text(*table.read(io.StringIO(rows)), [])
        self.assertRegex(text, r"A: good +0\.700 +1\.000 +30%\n")
        self.assertRegex(text, r"A: late +3\.000 +2\.000 +OVER\n")
        self.assertRegex(text, r"skipped: A: absent: no such thing\n")
        self.assertRegex(text, r"2 times, 1 over its bound")


class Elsewhere(unittest.TestCase):
    PAGE = "| # | fault | tests |\n| --- | --- | --- |\n| 7 | never comes | Bootstrap.AMissing… (≤ 5 s), Bootstrap.TwoThreads*; death: at_once; Gone.* |\n"
    TIMES = {"bootstrap.Bootstrap.AMissingRank": 2.0, "conformance.Sizes/Bootstrap.TwoThreadsMeet/3": 40.0, "bootstrap.Other.AMissingRank": 9.0}

    def test_the_matrix_names_tests_whose_times_are_found(self):
        rows, unknown = table.elsewhere(self.PAGE, self.TIMES)
        self.assertEqual(rows, {"row 7: Bootstrap.AMissing…": (2.0, 5.0), "row 7: Bootstrap.TwoThreads*": (40.0, table.BOUND)})
        self.assertEqual(unknown, ["row 7: Gone.*"])

    def test_a_name_of_skipped_tests_is_known(self):
        rows, unknown = table.elsewhere(self.PAGE, {}, ["x.Gone.Here", "bootstrap.Bootstrap.AMissingRank"])
        self.assertEqual((rows, unknown), ({}, ["row 7: Bootstrap.TwoThreads*"]))

    def test_names_of_python_tests_need_their_file(self):
        page = "| 8 | x | death: of_a_rank_that_is_none; exit: Exit.*; of_the_partner_in_a_group |\n"
        folder = os.path.dirname(os.path.abspath(__file__))
        self.assertEqual(table.missing_python_tests(page, folder), ["row 8: death: of_a_rank_that_is_none", "row 8: of_the_partner_in_a_group of no file"])

    def test_each_name_of_the_page_is_of_a_test(self):
        """Python tests, whose names are in files; the others run elsewhere, and `make test` looks for them."""
        folder = os.path.dirname(os.path.abspath(__file__))
        with open(os.path.join(folder, "README.md")) as page:
            missing = table.missing_python_tests(page.read(), folder)
        self.assertEqual(missing, [])


class Report(unittest.TestCase):
    """Of ctest, as `make test` has it printed at its end."""

    CASES = """<testsuite>
<testcase name="a.One" status="run" time="2.5"><system-out>well</system-out></testcase>
<testcase name="a.Two" status="notrun" time="0"><skipped/><system-out>x.cc:7: Skipped\nno GPU here\n\n[  SKIPPED ] a.Two</system-out></testcase>
<testcase name="a.Three" status="notrun" time="0"><skipped/><system-out>skipped: no GPU here\n</system-out></testcase>
<testcase name="a.Four" status="disabled" time="0"><system-out>Disabled</system-out></testcase>
</testsuite>"""

    def show(self, *options):
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as report:
            report.write(self.CASES)
            report.flush()
            command = [sys.executable, table.__file__, "/nowhere.tsv", report.name, *options]
            return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_names_what_was_skipped_and_why(self):
        shown = self.show()
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertEqual(shown.stdout, "3 tests were skipped:\n     2  no GPU here: a.Two, a.Three\n     1  Disabled: a.Four\n")

    def test_of_all_tests_fails_where_the_page_names_others(self):
        shown = self.show("--whole")
        self.assertEqual(shown.returncode, 1, shown.stdout)
        self.assertRegex(shown.stdout, r"row \d+: .*: no such test ran\n")


class Hosts(unittest.TestCase):
    """Of the tests beside these, where nobody can make one."""

    def enter(self, **settings):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        with open(f"{folder}/unshare", "w") as program:
            program.write("#!/bin/sh\nexit 1\n")
        os.chmod(program.name, 0o755)
        here = os.path.dirname(os.path.abspath(__file__))
        clean = {key: value for key, value in os.environ.items() if not key.startswith("MULTIHOST_")}
        return subprocess.run([sys.executable, "-c", "import bed; bed.enter()"], cwd=f"{here}/../multihost", capture_output=True, text=True,
                              env=clean | {"PATH": f"{folder}:{os.environ['PATH']}"} | settings, check=False)  # fmt: skip

    def test_are_skipped(self):
        ended = self.enter()
        self.assertEqual(ended.returncode, 77, ended.stderr)
        self.assertRegex(ended.stdout, "^skipped: this system lets us make no network namespace")

    def test_are_a_failure_where_they_are_required(self):
        ended = self.enter(MULTIHOST_REQUIRED="1")
        self.assertEqual(ended.returncode, 1, ended.stdout)
        self.assertRegex(ended.stderr, "this system lets us make no network namespace")


class Time(unittest.TestCase):
    def test_in_which_nobody_was_woken_does_not_count(self):
        witness = harness.Witness.__new__(harness.Witness)
        witness.stalls = [(1.0, 2.0), (5.0, 5.5)]
        self.assertAlmostEqual(witness.stalled(1.5, 5.25), 0.75)
        self.assertEqual(witness.stalled(2.5, 4.5), 0)

    def test_that_passes_counts(self):
        began = time.monotonic()
        threading.Event().wait(0.3)
        stalled = harness.WITNESS.stalled(began, time.monotonic())
        self.assertGreaterEqual(harness.FaultCase().taken(began) + stalled, 0.3)


if __name__ == "__main__":
    unittest.main(verbosity=1)
