"""The harness itself: what is tried again, what is not, and which time counts."""

import io
import os
import tempfile
import threading
import time
import unittest
import unittest.mock

import harness


def outcome(body):
    """What unittest makes of a case with this test, and the rows of its table."""
    case = type("Case", (harness.FaultCase,), {"test_it": body})("test_it")
    with tempfile.NamedTemporaryFile("r") as table, unittest.mock.patch.dict(os.environ, FAULTS_TABLE=table.name):
        result = unittest.TestResult()
        with unittest.mock.patch("sys.stderr", io.StringIO()):
            case.run(result)
        return result, table.read().splitlines()


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
        self.assertEqual(len(rows), len(seen) - 1)

    def test_of_what_is_skipped_are_one(self):
        seen = []
        result, rows = outcome(lambda case: (seen.append(1), case.skipTest("not here")))
        self.assertEqual((len(seen), [why for _, why in result.skipped], rows), (1, ["not here"], []))

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
