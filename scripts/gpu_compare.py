#!/usr/bin/env python3
"""Times GPU collectives through the library's API beside another libnccl.so.2, in turn (tutti perf --lib): out of place
and in place, in graphs and eager, ranks as threads and as processes, with ordinary buffers; and ours with ordinary buffers
beside the other's in windows, which is its best. A cell is repeated once where ours is slower by more than --noise.
Without --lib ours alone. A command that fails is told, and the others go on.

    scripts/gpu_compare.py --command build/cuda/bin/tutti --lib /path/to/nccl/lib/libnccl.so.2 --ranks 2
    scripts/gpu_compare.py … --csv times.csv --json times.json --runs threads,processes,windows,types

Prints Markdown tables: microseconds of ours, the other's time over ours (above 1: ours is faster), medians of rounds, the
slowest rank's. Exit code 1 where a cell beside ordinary buffers stays slower, or a command failed; those beside windows are listed.
"""
import argparse
import csv
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile

OPERATIONS = {"all_reduce": "AllReduce", "all_gather": "AllGather", "reduce_scatter": "ReduceScatter", "broadcast": "Broadcast",
              "reduce": "Reduce", "alltoall": "AlltoAll", "sendrecv": "SendRecv"}
TYPED = ("all_reduce", "reduce_scatter", "reduce")
TYPES = "half,bfloat16,f8e4m3,f8e5m2"
FACTOR = 4
K, M, G = 1 << 10, 1 << 20, 1 << 30
PLACES = {"out_of_place": "", "in_place": ", in place"}


@dataclasses.dataclass(frozen=True)
class Run:
    """One command: an operation's cells."""
    operation: str
    mode: str  # graph or eager
    ranks_as: str = "threads"
    types: str = "float"
    windows: bool = False  # of the other library
    least: int = K
    most: int = G

    def name(self):
        return f"{self.mode}, {self.ranks_as}" + (", windows" if self.windows else "")


@dataclasses.dataclass
class Cell:
    run: Run
    type: str
    place: str
    size: int
    ours: float
    theirs: float | None  # none: nothing was beside it

    def ratio(self):
        return None if self.theirs is None else self.theirs / self.ours

    def is_slower(self, noise=0.0):
        return self.theirs is not None and self.ratio() < 1 - noise

    def mode(self):
        return self.run.name() + PLACES[self.place] + ("" if self.type == "float" else f", {self.type}")

    def key(self):
        return self.run.operation, self.mode(), self.size

    def text(self, ranks):
        return (f"{OPERATIONS[self.run.operation]}, {ranks} ranks, {self.mode()}, {size_text(self.size)}: {self.ours:.4g} us, "
                f"the other {self.theirs:.4g} ({self.ratio():.2f})")


class Failed(Exception):
    """A command that gave no figures, and why."""


@dataclasses.dataclass
class Outcome:
    cells: list = dataclasses.field(default_factory=list)
    failures: list = dataclasses.field(default_factory=list)
    versions: dict = dataclasses.field(default_factory=dict)  # that tutti perf told


def size_text(size):
    for unit, name in ((G, "G"), (M, "M"), (K, "K")):
        if size >= unit:
            return f"{size / unit:.4g}{name}"
    return str(size)


def measure(options, run, outcome):
    """Cells of a run. Of calls through host memory there are none: they are not what is measured."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "run.json")
        command = [options.command, "perf", run.operation, "-b", str(run.least), "-e", str(run.most), "-f", str(FACTOR),
                   "-d", run.types, "--json", str(path), "-T", str(options.timeout), "-a", "3", "-c", "0",
                   "-t" if run.ranks_as == "threads" else "-n", str(options.ranks)]
        command += ["-G", "5", "--iters", "20"] if run.mode == "graph" else ["--min-time", "0.003"]
        command += ["--lib", options.lib] if options.lib else []
        command += ["--lib-register", "2"] if run.windows else []
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0 or not path.exists():
            raise Failed(f"{run.operation} {run.name()}: exit {done.returncode}: {done.stderr[-800:]}")
        told = json.loads(path.read_text())
    if told.get("path") != "from GPU to GPU":
        raise Failed(f"{run.operation} {run.name()}: calls go {told.get('path', 'by CPU ranks')}")
    outcome.versions = {name: told[name] for name in ("tutti", "nccl_library", "peer_nccl_library") if name in told}
    return [Cell(run, row["type"], place, row["size"], row[place]["time_us"], row[place].get("peer_time_us"))
            for row in told["results"] for place in PLACES]


def repeat_slow(options, run, cells, outcome):
    """Once more those that were slower, and what lies between: the better of both times counts."""
    slow = [cell for cell in cells if cell.is_slower(options.noise)]
    if not slow:
        return cells
    again = dataclasses.replace(run, types=",".join(sorted({cell.type for cell in slow})),
                                least=min(cell.size for cell in slow), most=max(cell.size for cell in slow))
    found = {(cell.type, cell.place, cell.size): cell for cell in measure(options, again, outcome)}
    better = []
    for cell in cells:
        other = found.get((cell.type, cell.place, cell.size), cell)
        better.append(other if cell in slow and other.ratio() > cell.ratio() else cell)
    return better


def plan(options):
    """Graphs end at 64 MB: beyond, the launch is nothing beside the call."""
    for kind in options.runs.split(","):
        for mode in options.modes.split(","):
            most = min(options.most, 64 * M if mode == "graph" else G)
            for operation in options.ops.split(","):
                if kind == "types" and operation in TYPED:
                    yield Run(operation, mode, types=TYPES, least=64 * K, most=min(most, 64 * M))
                if kind in ("threads", "processes"):
                    yield Run(operation, mode, kind, most=most)
                if kind == "windows" and options.lib:
                    yield Run(operation, mode, windows=True, most=most)


def cell_text(cell):
    return f"{cell.ours:.4g}" + ("" if cell.theirs is None else f" ({cell.ratio():.2f})")


def print_cells(cells, printed):
    """A line for each type and place; a head where the run's name is new."""
    run = cells[0].run
    for (kind, place) in dict.fromkeys((cell.type, cell.place) for cell in cells):
        row = [cell for cell in cells if (cell.type, cell.place) == (kind, place)]
        if run.name() + run.types != printed:
            printed = run.name() + run.types
            print(f"\n| {run.name()} |" + "".join(f" {size_text(cell.size)} |" for cell in row))
            print("|---|" + "---|" * len(row))
        name = OPERATIONS[run.operation] + PLACES[place] + ("" if kind == "float" else f", {kind}")
        print(f"| {name} |" + "".join(f" {cell_text(cell)} |" for cell in row), flush=True)
    return printed


def write_csv(path, cells, ranks):
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("system", "collective", "ranks", "mode", "bytes", "us", "run", "ratio"))
        for cell in cells:
            row = (OPERATIONS[cell.run.operation], ranks, cell.mode(), cell.size)
            ratio = "" if cell.theirs is None else f"{cell.ratio():.3f}"
            table.writerow(("tutti", *row, f"{cell.ours:.3f}", "library", ratio))
            if cell.theirs is not None:
                table.writerow(("nccl", *row, f"{cell.theirs:.3f}", "library", ""))


def write_json(path, outcome, ranks):
    """What gpu_results.py gathers."""
    cells = []
    for cell in outcome.cells:
        told = {"collective": OPERATIONS[cell.run.operation], "ranks": ranks, "mode": cell.mode(), "bytes": cell.size, "us": cell.ours}
        if cell.theirs is not None:
            told |= {"nccl_us": cell.theirs, "ratio": round(cell.ratio(), 4)}
        cells.append(told)
    text = json.dumps({"ranks": ranks, "versions": outcome.versions, "failures": outcome.failures, "cells": cells}, indent=1)
    unfinished = pathlib.Path(f"{path}.new")  # whole at any time: the next command may be the last
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def measure_all(options):
    outcome, printed = Outcome(), ""
    for run in plan(options):
        try:
            cells = measure(options, run, outcome)
            cells = repeat_slow(options, run, cells, outcome)
        except Failed as failure:
            print(f"FAIL {failure}", flush=True)
            outcome.failures.append(f"{run.operation}, {run.name()}")
            continue
        outcome.cells += cells
        printed = print_cells(cells, printed)
        if options.csv:
            write_csv(options.csv, outcome.cells, options.ranks)
        if options.json:
            write_json(options.json, outcome, options.ranks)
    return outcome


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", required=True, help="the tutti command")
    parser.add_argument("--lib", help="the other libnccl.so.2")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--runs", default="threads,processes,windows,types")
    parser.add_argument("--ops", default=",".join(OPERATIONS))
    parser.add_argument("--modes", default="graph,eager")
    parser.add_argument("--most", type=int, default=G, help="the longest, in bytes")
    parser.add_argument("--noise", type=float, default=0.05, help="by which a cell may be slower")
    parser.add_argument("--timeout", type=int, default=60, help="seconds for an operation and mode")
    parser.add_argument("--csv", help="write all figures to this file")
    parser.add_argument("--json", help="write all figures to this file, too, with versions and what failed")
    options = parser.parse_args()
    outcome = measure_all(options)
    beside_windows = [cell for cell in outcome.cells if cell.run.windows]
    ordinary = [cell for cell in outcome.cells if not cell.run.windows]
    for cells, what in ((ordinary, "ordinary buffers"), (beside_windows, "the other's in windows")):
        slower = sum(cell.is_slower() for cell in cells)
        if options.lib:
            print(f"\n{what}: faster in {len(cells) - slower} of {len(cells)} cells")
    for cell in beside_windows:
        if cell.is_slower():
            print("behind windows:", cell.text(options.ranks))
    slow = [cell for cell in ordinary if cell.is_slower(options.noise)]
    for cell in slow:
        print("FAIL slower:", cell.text(options.ranks))
    sys.exit(1 if slow or outcome.failures or not outcome.cells else 0)


if __name__ == "__main__":
    main()
