#!/usr/bin/env python3
"""Lets libFuzzer try each target for a while: run.py --programs build/fuzz/bin [--seconds 100] [NAME...]. New inputs stay
in build/fuzz/corpus; one that fails is kept beside them, and its name printed."""

import argparse
import os
import pathlib
import re
import subprocess
import sys

SEEDS = pathlib.Path(__file__).parent / "seeds"


def fuzz(program, seconds, folder):
    """True when nothing was found."""
    name = program.name.removeprefix("fuzz_")
    corpus = folder / name
    corpus.mkdir(parents=True, exist_ok=True)
    options = [f"-max_total_time={seconds}", "-max_len=8192", "-print_final_stats=1", f"-artifact_prefix={folder}/{name}-"]
    command = [str(program), *options, str(corpus), str(SEEDS / name)]
    result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, env=dict(os.environ, NCCL_DEBUG="NONE"))
    runs = re.search(r"number_of_executed_units: (\d+)", result.stderr)
    coverage = re.findall(r"cov: (\d+)", result.stderr)
    outcome = "nothing found" if result.returncode == 0 else "FAILED"
    print(f"{name:<24} {runs[1] if runs else '?':>10} runs  {coverage[-1] if coverage else '?':>6} edges  {outcome}", flush=True)
    if result.returncode != 0:
        print(result.stderr[-4000:])
    return result.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=int, default=100)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    programs = sorted(options.programs.glob("fuzz_*"))
    if options.names:
        programs = [program for program in programs if program.name.removeprefix("fuzz_") in options.names]
    if not programs:
        print(f"no fuzz targets in {options.programs}")
        return 1
    folder = options.programs.parent / "corpus"
    folder.mkdir(exist_ok=True)
    outcomes = [fuzz(program, options.seconds, folder.resolve()) for program in programs]
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
