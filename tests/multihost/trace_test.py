"""Traces of ranks on three hosts, event by event: what a viewer of Chrome's format takes for granted, and what a call is."""

import collections
import itertools
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import bed
from host_case import LIMIT, HostCase

ROUNDING = 0.0021  # us: three decimals, twice
CALLS = ["AllReduce #1 ", "AllReduce #2 ", "AllReduce #3 "]


def bars_of(trace):
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def end_of(bar):
    return bar["ts"] + bar["dur"]


def is_inside(inner, outer):
    return outer["ts"] <= inner["ts"] + ROUNDING and end_of(inner) <= end_of(outer) + ROUNDING


class Traces(HostCase):
    looks_afterwards = False  # the communicator that shows it would write traces beside these

    def make_traces(self):
        """(by rank, joined) of three all-reduces over three hosts."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        hosts = self.make_hosts(3)
        ranks = self.launch_on(hosts, [0, 1, 2], *["allreduce:1 allreduce:5000 allreduce:300000 destroy"] * 3, timeout_ms=20_000, TUTTI_TRACE_DIR=str(folder))
        self.expect_success(ranks, "destroy")
        for rank in ranks:
            rank.child.wait(LIMIT)
        traces = {}
        for path in folder.iterdir():
            trace = json.loads(path.read_text())
            traces[trace["otherData"]["rank"]] = trace
        self.assertEqual(set(traces), {0, 1, 2})
        self.assertEqual(len({trace["otherData"]["clock"] for trace in traces.values()}), 3, "ranks share a host")
        joined = folder / "job.json"
        subprocess.run([os.environ["TUTTI"], "trace", str(folder), "-o", str(joined)], check=True, stdout=subprocess.DEVNULL, timeout=LIMIT)
        return traces, json.loads(joined.read_text())

    def check_fields(self, trace):
        self.assertTrue(trace["traceEvents"])
        for event in trace["traceEvents"]:
            self.assertIn(event["ph"], ("X", "M", "s", "f"), event)  # bars come whole: there is no begin without an end
            self.assertIsInstance(event["pid"], int, event)
            self.assertTrue(event["name"], event)
            if event["ph"] == "M":
                self.assertIn(event["name"], ("process_name", "process_sort_index", "thread_name", "thread_sort_index"), event)
                continue
            self.assertIsInstance(event["tid"], int, event)
            self.assertGreaterEqual(event["ts"], 0, event)
            if event["ph"] == "X":
                self.assertGreaterEqual(event["dur"], 0, event)
        named = collections.Counter((event["pid"], event["tid"]) for event in trace["traceEvents"] if event["name"] == "thread_name")
        self.assertEqual(set(named.values()), {1})
        self.assertEqual({(event["pid"], event["tid"]) for event in trace["traceEvents"] if event["ph"] != "M"} - set(named), set())

    def check_nesting(self, trace):
        """On one row bars lie inside each other or apart; runs lie in their call, a message's phases in it."""
        rows = collections.defaultdict(list)
        for bar in bars_of(trace):
            rows[bar["pid"], bar["tid"]].append(bar)
        parents = {"run": ("call",), "phase": ("send", "receive")}
        for row in rows.values():
            open_bars = []
            for bar in sorted(row, key=lambda each: (each["ts"], -each["dur"])):
                while open_bars and end_of(open_bars[-1]) <= bar["ts"] + ROUNDING and not is_inside(bar, open_bars[-1]):
                    open_bars.pop()
                if open_bars:
                    self.assertTrue(is_inside(bar, open_bars[-1]), (bar, open_bars[-1]))
                open_bars.append(bar)
            for bar in row:
                if bar["cat"] in parents:
                    self.assertTrue(any(each["cat"] in parents[bar["cat"]] and is_inside(bar, each) for each in row), bar)

    def check_calls(self, trace, rank):
        """Each call once, with a run, over, and each message within what the call sends or receives over a link."""
        own = [bar for bar in bars_of(trace) if bar["pid"] == rank]
        calls = [bar for bar in own if bar["cat"] == "call"]
        self.assertEqual([[bar["name"].startswith(name) for bar in calls].count(True) for name in CALLS], [1, 1, 1])
        self.assertEqual(len(calls), 3)
        self.assertTrue(all(bar["args"]["ended"] for bar in calls))
        self.assertEqual(len([bar for bar in own if bar["cat"] == "run"]), 3)
        messages = [bar for bar in own if bar["name"].startswith("message ")]
        self.assertTrue(messages)
        names = {bar["name"] for bar in calls}
        for message in messages:
            self.assertIn(message["args"]["call"], names)
            transfers = [bar for bar in own if bar["name"] == message["args"]["call"] and bar["cat"] == message["cat"]]
            # What is received may have come before the call that wants it, and its slot goes back with the last at the latest.
            fits = is_inside if message["cat"] == "send" else lambda inner, outer: end_of(inner) <= end_of(outer) + ROUNDING
            self.assertTrue(any(fits(message, transfer) for transfer in transfers), (message, transfers))
        announced = sum(bar["args"].get("messages", 0) for bar in own)
        self.assertEqual(len(messages), announced)

    def check_arrows(self, trace):
        """Each message that left came, once, and not before."""
        ends = {"s": {}, "f": {}}
        for event in trace["traceEvents"]:
            if event["ph"] in ends:
                self.assertNotIn(event["id"], ends[event["ph"]])
                ends[event["ph"]][event["id"]] = event
        self.assertTrue(ends["s"])
        self.assertEqual(ends["s"].keys(), ends["f"].keys())
        for name, left in ends["s"].items():
            came = ends["f"][name]
            self.assertNotEqual(left["pid"], came["pid"])
            self.assertGreaterEqual(came["ts"] + ROUNDING, left["ts"], name)

    def check_one_clock(self, joined):
        """No rank is through with an all-reduce before all have begun it."""
        for name in CALLS:
            bars = [bar for bar in bars_of(joined) if bar["cat"] == "call" and bar["name"].startswith(name)]
            self.assertEqual({bar["pid"] for bar in bars}, {0, 1, 2})
            for one, other in itertools.permutations(bars, 2):
                self.assertLess(one["ts"], end_of(other), name)

    def test_of_all_reduces_over_three_hosts(self):
        traces, joined = self.make_traces()
        for rank, trace in traces.items():
            self.check_fields(trace)
            self.check_nesting(trace)
            self.check_calls(trace, rank)
        self.check_fields(joined)
        self.check_nesting(joined)
        for rank in traces:
            self.check_calls(joined, rank)
        self.check_arrows(joined)
        self.check_one_clock(joined)
        self.assertEqual(len(joined["traceEvents"]), sum(len(trace["traceEvents"]) for trace in traces.values()))


if __name__ == "__main__":
    bed.enter()
    unittest.main(verbosity=1)
