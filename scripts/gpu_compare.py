#!/usr/bin/env python3
"""Times GPU collectives of this build and of another libnccl.so.2 in turn (tutti perf --lib) and prints a Markdown
table an operation and mode: microseconds of both, medians of rounds out of place, and their ratio (above 1: ours is
faster).

    scripts/gpu_compare.py --command build/cuda/bin/tutti --lib /path/to/nccl/lib/libnccl.so.2 --ranks 2
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

OPERATIONS = "all_reduce,all_gather,reduce_scatter,broadcast,reduce,alltoall,sendrecv"


def measure(options, operation, mode):
    """Rows of (bytes, ours, theirs, wrong elements); none where a library failed."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "run.json")
        command = [options.command, "perf", operation, "-b", options.minbytes, "-e", options.maxbytes, "-f",
                   str(options.factor), "-d", options.type, "--lib", options.lib, "--json", str(path), "-T",
                   str(options.timeout), "-a", "3", "-c", str(options.checks)]
        command += ["-n", str(options.ranks)] if options.processes else ["-t", str(options.ranks)]
        command += ["-G", "5", "--iters", "20"] if mode == "graph" else ["--min-time", "0.003"]
        run = subprocess.run(command, capture_output=True, text=True)
        if not path.exists():
            print(f"{operation} {mode}: exit {run.returncode}: {run.stderr[-400:]}", file=sys.stderr)
            return []
        rows = json.loads(path.read_text())["results"]
    return [(row["size"], row["out_of_place"]["time_us"], row["out_of_place"]["peer_time_us"],
             (row["out_of_place"]["wrong"] or 0) + (row["in_place"]["wrong"] or 0)) for row in rows]


def size_text(size):
    for unit, name in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size >= unit:
            return f"{size / unit:.4g}{name}"
    return str(size)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", required=True, help="the tutti command")
    parser.add_argument("--lib", required=True, help="the other libnccl.so.2")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--processes", action="store_true", help="a process a rank instead of a thread")
    parser.add_argument("--ops", default=OPERATIONS)
    parser.add_argument("--modes", default="graph,eager")
    parser.add_argument("--type", default="float")
    parser.add_argument("--timeout", type=int, default=60, help="seconds for an operation and mode")
    parser.add_argument("--checks", type=int, default=1, help="checked runs of a cell; the checks of 1 GB take a minute")
    parser.add_argument("--json", help="write all figures to this file")
    parser.add_argument("-b", "--minbytes", default="1K")
    parser.add_argument("-e", "--maxbytes", default="256M")
    parser.add_argument("-f", "--factor", type=int, default=4)
    options = parser.parse_args()
    figures, slower = [], 0
    for mode in options.modes.split(","):
        sizes = None
        for operation in options.ops.split(","):
            cells = measure(options, operation, mode)
            if cells and sizes is None:
                sizes = [size for size, *_ in cells]
                print(f"\n{mode}, {options.ranks} ranks, {options.type}, us: ours / theirs\n")
                print("| operation |" + "".join(f" {size_text(size)} |" for size in sizes))
                print("|---|" + "---|" * len(sizes))
            wrong = sum(cell[3] for cell in cells)
            print(f"| {operation}{' WRONG' if wrong else ''} |"
                  + "".join(f" {own:.4g} / {other:.4g} |" for _, own, other, _ in cells), flush=True)
            slower += sum(own > other for _, own, other, _ in cells)
            figures += [{"operation": operation, "mode": mode, "size": size, "ours_us": own, "theirs_us": other,
                         "wrong": bad} for size, own, other, bad in cells]
    print(f"\nfaster in {len(figures) - slower} of {len(figures)} cells")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
