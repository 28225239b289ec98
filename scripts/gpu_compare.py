#!/usr/bin/env python3
"""Times GPU collectives through the library's API beside another libnccl.so.2, in turn (tutti perf --lib): out of place
and in place, in graphs and eager, ranks as threads and as processes, with ordinary buffers; and ours with ordinary buffers
beside the other's in windows, which is its best. A cell is repeated once where ours is slower by more than --noise.

    scripts/gpu_compare.py --command build/cuda/bin/tutti --lib /path/to/nccl/lib/libnccl.so.2 --ranks 2
    scripts/gpu_compare.py … --csv times.csv --runs threads,processes,windows,types

Prints Markdown tables: microseconds of ours, the other's time over ours (above 1: ours is faster), medians of rounds, the
slowest rank's. Exit code 1 where a cell beside ordinary buffers stays slower; those beside windows are listed.
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
    theirs: float

    def ratio(self):
        return self.theirs / self.ours

    def mode(self):
        return self.run.name() + PLACES[self.place] + ("" if self.type == "float" else f", {self.type}")

    def key(self):
        return self.run.operation, self.mode(), self.size

    def text(self, ranks):
        return (f"{OPERATIONS[self.run.operation]}, {ranks} ranks, {self.mode()}, {size_text(self.size)}: {self.ours:.4g} us, "
                f"the other {self.theirs:.4g} ({self.ratio():.2f})")


def size_text(size):
    for unit, name in ((G, "G"), (M, "M"), (K, "K")):
        if size >= unit:
            return f"{size / unit:.4g}{name}"
    return str(size)


def measure(options, run):
    """Cells of a run. Of calls through host memory there are none: they are not what is measured."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "run.json")
        command = [options.command, "perf", run.operation, "-b", str(run.least), "-e", str(run.most), "-f", str(FACTOR),
                   "-d", run.types, "--lib", options.lib, "--json", str(path), "-T", str(options.timeout), "-a", "3", "-c", "0",
                   "-t" if run.ranks_as == "threads" else "-n", str(options.ranks)]
        command += ["-G", "5", "--iters", "20"] if run.mode == "graph" else ["--min-time", "0.003"]
        command += ["--lib-register", "2"] if run.windows else []
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0 or not path.exists():
            raise SystemExit(f"{run.operation} {run.name()}: exit {done.returncode}: {done.stderr[-800:]}")
        told = json.loads(path.read_text())
    if told.get("path") != "from GPU to GPU":
        raise SystemExit(f"{run.operation} {run.name()}: calls go {told.get('path', 'by CPU ranks')}")
    return [Cell(run, row["type"], place, row["size"], row[place]["time_us"], row[place]["peer_time_us"])
            for row in told["results"] for place in PLACES]


def repeat_slow(options, run, cells):
    """Once more those that were slower, and what lies between: the better of both times counts."""
    slow = [cell for cell in cells if cell.ratio() < 1 - options.noise]
    if not slow:
        return cells
    again = dataclasses.replace(run, types=",".join(sorted({cell.type for cell in slow})),
                                least=min(cell.size for cell in slow), most=max(cell.size for cell in slow))
    found = {(cell.type, cell.place, cell.size): cell for cell in measure(options, again)}
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
                if kind == "windows":
                    yield Run(operation, mode, windows=True, most=most)


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
        print(f"| {name} |" + "".join(f" {cell.ours:.4g} ({cell.ratio():.2f}) |" for cell in row), flush=True)
    return printed


def write_csv(path, cells, ranks):
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("system", "collective", "ranks", "mode", "bytes", "us", "run", "ratio"))
        for cell in cells:
            row = (OPERATIONS[cell.run.operation], ranks, cell.mode(), cell.size)
            table.writerow(("tutti", *row, f"{cell.ours:.3f}", "library", f"{cell.ratio():.3f}"))
            table.writerow(("nccl", *row, f"{cell.theirs:.3f}", "library", ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", required=True, help="the tutti command")
    parser.add_argument("--lib", required=True, help="the other libnccl.so.2")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--runs", default="threads,processes,windows,types")
    parser.add_argument("--ops", default=",".join(OPERATIONS))
    parser.add_argument("--modes", default="graph,eager")
    parser.add_argument("--most", type=int, default=G, help="the longest, in bytes")
    parser.add_argument("--noise", type=float, default=0.05, help="by which a cell may be slower")
    parser.add_argument("--timeout", type=int, default=60, help="seconds for an operation and mode")
    parser.add_argument("--csv", help="write all figures to this file")
    options = parser.parse_args()
    figures, printed = [], ""
    for run in plan(options):
        cells = repeat_slow(options, run, measure(options, run))
        printed = print_cells(cells, printed)
        figures += cells
        if options.csv:
            write_csv(options.csv, figures, options.ranks)
    beside_windows = [cell for cell in figures if cell.run.windows]
    ordinary = [cell for cell in figures if not cell.run.windows]
    for cells, what in ((ordinary, "ordinary buffers"), (beside_windows, "the other's in windows")):
        slower = sum(cell.ratio() < 1 for cell in cells)
        print(f"\n{what}: faster in {len(cells) - slower} of {len(cells)} cells")
    for cell in beside_windows:
        if cell.ratio() < 1:
            print("behind windows:", cell.text(options.ranks))
    slow = [cell for cell in ordinary if cell.ratio() < 1 - options.noise]
    for cell in slow:
        print("FAIL slower:", cell.text(options.ranks))
    sys.exit(1 if slow else 0)


if __name__ == "__main__":
    main()
