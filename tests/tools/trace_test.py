"""tutti trace as a script sees it: traces of ranks whose hosts' clocks differ, joined on one; pictures; and files that are none.

Usage: trace_test.py TUTTI SOURCE_FOLDER
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TUTTI = ""
LIMIT = 300  # seconds: many times what the longest needs, and still an end


def run(*arguments):
    return subprocess.run([TUTTI, "trace", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=LIMIT, check=False)


def trace(rank, clock, wall_us, sends=(), receives=()):
    """A rank with one call from 0 to 100 us; sends and receives: (id, us on this rank's clock)."""
    bar = {"ph": "X", "pid": rank, "tid": 0}
    arrow = {"name": "message", "cat": "message", "pid": rank, "tid": 64}
    return {
        "otherData": {"schema": "tutti.trace/1", "communicator": "0a", "name": "job", "rank": rank, "rank_count": 3,
                      "host": f"h{clock}", "clock": clock, "process_id": 7, "wall_clock_offset_us": wall_us,
                      "dropped_events": 0},
        "traceEvents": [
            {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank} (h)"}},
            {"ph": "M", "name": "thread_name", "pid": rank, "tid": 0, "args": {"name": "calls"}},
            {"ph": "M", "name": "thread_name", "pid": rank, "tid": 64, "args": {"name": "to rank 1, messages"}},
            {**bar, "name": "AllReduce #1 (8 of float, sum)", "cat": "call", "ts": 1000.0, "dur": 100.0, "args": {}},
            *({**bar, "tid": 64, "name": "goes out", "cat": "phase", "ts": at, "dur": 1.0} for _, at in sends),
            *({**arrow, "ph": "s", "id": name, "ts": at} for name, at in sends),
            *({**arrow, "ph": "f", "bp": "e", "id": name, "ts": at} for name, at in receives),
        ],
    }


class Trace(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def write(self, *traces):
        for number, content in enumerate(traces):
            (self.root / f"trace-{number}.json").write_text(json.dumps(content))

    def joined(self):
        result = run(self.root, "-o", self.root / "out.json")
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads((self.root / "out.json").read_text())

    def times(self, joined):
        """When each message left and came."""
        times = {}
        for event in joined["traceEvents"]:
            if event["ph"] in "sf":
                times.setdefault(event["id"], {})[event["ph"]] = event["ts"]
        return times

    def test_clocks_of_two_hosts_are_set_so_that_both_ways_take_alike(self):
        # Host b's wall clock is 5 ms late; a message takes 20 us.
        self.write(trace(0, "a", 1e15, sends=[("ab", 1010)], receives=[("ba", 1070)]),
                   trace(1, "b", 1e15 - 5000, sends=[("ba", 1050)], receives=[("ab", 1030)]))
        joined = self.joined()
        for name, at in self.times(joined).items():
            self.assertAlmostEqual(at["f"] - at["s"], 20, delta=0.01, msg=name)
        for rank, shift in zip(joined["otherData"]["ranks"], (0, 5000)):
            self.assertAlmostEqual(rank["clock_shift_us"], shift, delta=1, msg=rank["host"])

    def test_clocks_of_a_ring_are_set_so_that_each_hop_takes_alike(self):
        walls = [2e15, 2e15 + 3000, 2e15 - 8000]
        shift = [0, 400, -900]  # of the monotonic clocks
        take = 30
        sends, receives = [[], [], []], [[], [], []]
        for rank in range(3):
            to = (rank + 1) % 3
            sends[rank].append((f"{rank}{to}", 1010 + shift[rank]))
            receives[to].append((f"{rank}{to}", 1010 + take + shift[to]))
        self.write(*(trace(r, "abc"[r], walls[r], sends[r], receives[r]) for r in range(3)))
        for name, at in self.times(self.joined()).items():
            self.assertAlmostEqual(at["f"] - at["s"], take, delta=0.01, msg=name)

    def test_no_message_comes_before_it_left_where_all_go_one_way(self):
        self.write(trace(0, "a", 1e15, sends=[("ab", 1010)]), trace(1, "b", 1e15 - 5000, receives=[("ab", 1030)]))
        at = self.times(self.joined())["ab"]
        self.assertGreaterEqual(at["f"], at["s"] - 0.01)

    def test_ranks_of_one_host_keep_their_clock(self):
        self.write(trace(0, "a", 1e15, sends=[("x", 1010)]), trace(1, "a", 1e15, receives=[("x", 1012)]))
        at = self.times(self.joined())["x"]
        self.assertAlmostEqual(at["f"] - at["s"], 2, delta=0.01)

    def test_ranks_become_processes_and_time_begins_at_zero(self):
        self.write(trace(1, "a", 1e15), trace(0, "a", 1e15))
        joined = self.joined()
        self.assertEqual([rank["rank"] for rank in joined["otherData"]["ranks"]], [0, 1])
        self.assertEqual({event["pid"] for event in joined["traceEvents"]}, {0, 1})
        self.assertEqual(min(event["ts"] for event in joined["traceEvents"] if "ts" in event), 0)

    def test_the_summary_counts_calls_and_messages(self):
        self.write(trace(0, "a", 1e15, sends=[("ab", 1010), ("ab2", 1020)]), trace(1, "b", 1e15, receives=[("ab", 1030)]))
        lines = run(self.root).stdout.splitlines()
        self.assertEqual(lines[0].split()[:3], ["communicator", "rank", "host"])
        self.assertEqual(lines[1].split()[:7], ["0a", "0", "ha", "1", "100.0", "2", "0"])
        self.assertEqual(lines[2].split()[:7], ["0a", "1", "hb", "1", "100.0", "0", "1"])

    def test_the_picture_shows_calls_messages_and_lines(self):
        self.write(trace(0, "a", 1e15, sends=[("ab", 1010)]), trace(1, "b", 1e15, sends=[("ba", 1020)], receives=[("ab", 1030)]))
        picture = self.root / "p.svg"
        self.assertEqual(run(self.root, "--svg", picture, "--call", "AllReduce #1 ").returncode, 0)
        text = picture.read_text()
        for wanted in ("<svg", "AllReduce #1 ", "class=\"send\"", "class=\"arrow\"", "rank 0 (h)", "to rank 1"):
            self.assertIn(wanted, text)

    def test_what_is_wrong_is_named(self):
        self.write(trace(0, "a", 1e15))
        for content, wanted in (("{", "not a trace"), ("{}", "not a trace"), ('{"otherData": {"schema": 1}}', "schema"),
                                ('{"otherData": {"schema": "tutti.trace/1"}}', "clock")):
            (self.root / "trace-9.json").write_text(content)
            result = run(self.root)
            self.assertEqual(result.returncode, 3)
            self.assertIn("trace-9.json", result.stderr)
            self.assertIn(wanted, result.stderr)
        (self.root / "trace-9.json").unlink()
        self.assertIn("no call \"Reduce\"", run(self.root, "--svg", self.root / "p.svg", "--call", "Reduce").stderr)
        self.assertEqual(run(self.root / "absent.json").returncode, 3)


if __name__ == "__main__":
    TUTTI = sys.argv[1]
    unittest.main(argv=sys.argv[:1])
