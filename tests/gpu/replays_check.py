#!/usr/bin/env python3
"""What traces tell of graphs' replays between hosts: each is told of as a call of its own, with its messages. Two ranks of
two hosts, played by NCCL_HOSTID, in `tutti perf`.

    tests/gpu/replays_check.py BUILD
"""
import collections
import json
import pathlib
import sys
import tempfile

import hosts_check

ITERATIONS = 5
PLACES = 2  # out of place, in place
KINDS = ("call", "run", "message sent", "message received")


def count(build, replays):
    """Of each rank: how many of each kind its trace has."""
    with tempfile.TemporaryDirectory() as folder:
        command = [pathlib.Path(build, "bin/tutti"), "perf", "all_reduce", "-b", "64K", "-e", "64K", "-w", "1", "--iters",
                   str(ITERATIONS), "-G", str(replays)]
        _, failure = hosts_check.run(command, 2, 2, {"TUTTI_TRACE_DIR": folder})
        if failure is not None:
            raise SystemExit(failure)
        return [count_in(path) for path in sorted(pathlib.Path(folder).glob("trace-*.json"))]


def count_in(path):
    counts = collections.Counter()
    for event in json.loads(path.read_text())["traceEvents"]:
        if event["ph"] != "X":
            continue
        if event["cat"] in ("call", "run"):
            counts[event["cat"]] += 1
        elif event["name"].startswith("message "):
            counts["message sent" if event["cat"] == "send" else "message received"] += 1
    return counts


def main():
    few, many = count(sys.argv[1], 2), count(sys.argv[1], 4)
    wanted = 2 * PLACES * ITERATIONS
    grown = [{kind: more[kind] - less[kind] for kind in KINDS} for less, more in zip(few, many)]
    print(f"two replays more: {grown}", flush=True)
    return 0 if len(grown) == 2 and all(value == wanted for rank in grown for value in rank.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
