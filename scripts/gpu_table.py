#!/usr/bin/env python3
"""Makes the CSV of docs/results (system,collective,ranks,mode,bytes,us,run) of what gpu_kernels_bench wrote with --json;
`run` is the bench's --label, or "kernels".

    gpu_kernels_bench time --ranks 2 --gpus 2 --nccl path/to/libnccl.so.2 --json times.json
    scripts/gpu_table.py times.json times.csv
"""
import argparse
import csv
import json
import pathlib

# Where a line of the bench has the time of a system and mode; 0: not measured.
PLACES = {("tutti", "graph"): "graph", ("nccl", "graph"): "nccl_graph", ("tutti", "eager"): "eager", ("nccl", "eager"): "nccl_eager"}


def rows(lines):
    for line in lines:
        cell = json.loads(line)
        for (system, mode), place in PLACES.items():
            if cell[place] > 0:
                yield (system, cell["op"], cell["ranks"], mode, cell["bytes"], cell[place], cell["label"] or "kernels")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", help="the bench's lines")
    parser.add_argument("csv", help="the table to write")
    options = parser.parse_args()
    lines = pathlib.Path(options.json).read_text(encoding="utf-8").splitlines()
    with open(options.csv, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("system", "collective", "ranks", "mode", "bytes", "us", "run"))
        table.writerows(rows(lines))


if __name__ == "__main__":
    main()
