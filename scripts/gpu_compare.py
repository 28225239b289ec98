#!/usr/bin/env python3
"""Times GPU collectives of this build and of another libnccl.so.2 in turn, with the same program, and prints a table
of both with their ratio (above 1: ours is faster). Each cell is the least of the rounds' times.

    scripts/gpu_compare.py --command build/release/bin/tutti --ours build/release/lib/libnccl.so.2 \\
        --theirs /path/to/nccl/lib/libnccl.so.2 --ranks 2 --ops all_reduce,all_gather -b 1K -e 1G
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

OPERATIONS = "all_reduce,all_gather,reduce_scatter,broadcast,reduce,alltoall,sendrecv"


def measure(options, library, operation, mode):
    """Microseconds by size; None where the library failed."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "run.json")
        command = [options.command, "perf", operation, "-b", options.minbytes, "-e", options.maxbytes, "-f",
                   str(options.factor), "-d", options.type, "-c", "0", "--json", str(path), "-T", "60"]
        command += ["-n", str(options.ranks)] if options.processes else ["-t", str(options.ranks)]
        command += ["-G", "5", "--iters", "20"] if mode == "graph" else ["--min-time", "0.003"]
        environment = {**os.environ, "LD_PRELOAD": library}
        run = subprocess.run(command, env=environment, capture_output=True, text=True)
        if run.returncode != 0 or not path.exists():
            print(f"{library}: {operation} {mode}: exit {run.returncode}: {run.stderr[-300:]}", file=sys.stderr)
            return {}
        rows = json.loads(path.read_text())["results"]
    return {row["size"]: min(row[side]["time_us"] for side in ("out_of_place", "in_place")) for row in rows}


def least(into, new):
    for size, time in new.items():
        into[size] = min(time, into.get(size, time))


def sizeText(size):
    for unit, name in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size >= unit:
            return f"{size / unit:.4g}{name}"
    return str(size)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", required=True, help="the tutti command")
    parser.add_argument("--ours", required=True)
    parser.add_argument("--theirs", required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--processes", action="store_true", help="a process a rank instead of a thread")
    parser.add_argument("--ops", default=OPERATIONS)
    parser.add_argument("--modes", default="eager,graph")
    parser.add_argument("--type", default="float")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("-b", "--minbytes", default="1K")
    parser.add_argument("-e", "--maxbytes", default="256M")
    parser.add_argument("-f", "--factor", type=int, default=4)
    options = parser.parse_args()
    for mode in options.modes.split(","):
        for operation in options.ops.split(","):
            ours, theirs = {}, {}
            for _ in range(options.rounds):
                least(ours, measure(options, options.ours, operation, mode))
                least(theirs, measure(options, options.theirs, operation, mode))
            cells = [(size, ours[size], theirs[size]) for size in sorted(ours) if size in theirs]
            print(f"\n{operation}, {options.ranks} ranks, {mode}, {options.type} (us)")
            print("| size |" + "".join(f" {sizeText(size)} |" for size, _, _ in cells))
            print("|---|" + "---|" * len(cells))
            print("| ours |" + "".join(f" {own:.4g} |" for _, own, _ in cells))
            print("| theirs |" + "".join(f" {other:.4g} |" for _, _, other in cells))
            print("| ratio |" + "".join(f" {other / own:.2f} |" for _, own, other in cells), flush=True)


if __name__ == "__main__":
    main()
