#!/usr/bin/env python3
"""Checks a Spin model exhaustively: run.py MODEL.pml [--bug N] [--define NAME=VALUE ...]. With --bug the model has an
error built in, and finding none is the failure. Exits 77 where spin or a C compiler is missing."""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
MEMORY_MIB = 1000


def check(model, defines, folder):
    """The verifier's output."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if shutil.which("spin") is None or compiler is None:
        print("skipped: no spin (Debian package spin), or no C compiler")
        sys.exit(SKIPPED)
    subprocess.run(["spin", *defines, "-a", model], cwd=folder, check=True, capture_output=True)
    options = ["-O2", "-w", "-DSAFETY", "-DCOLLAPSE", f"-DMEMLIM={MEMORY_MIB}"]
    subprocess.run([compiler, *options, "-o", "pan", "pan.c"], cwd=folder, check=True)
    result = subprocess.run(["./pan", "-m200000"], cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    return result.stdout + result.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--bug", type=int, default=0)
    parser.add_argument("--define", action="append", default=[], metavar="NAME=VALUE", help="of the model's shape")
    options = parser.parse_args()
    defines = [f"-D{each}" for each in [f"BUG={options.bug}", *options.define]]
    with tempfile.TemporaryDirectory() as folder:
        text = check(options.model.resolve(), defines, folder)
        if options.bug == 0 and "errors: 0" not in text:
            trail = ["spin", *defines, "-t", "-p", "-g", options.model.resolve()]
            print(subprocess.run(trail, cwd=folder, capture_output=True, text=True, check=False).stdout[-6000:])
    errors = re.search(r"errors: (\d+)", text)
    is_complete = "max search depth too small" not in text and "out of memory" not in text and errors is not None
    states = re.search(r"(\d+\S*) states, stored", text)
    print(f"{options.model.name}, bug {options.bug}: {errors[0] if errors else 'no verdict'}, {states[1] if states else '?'} states")
    if is_complete and (int(errors[1]) > 0) == (options.bug != 0):
        return 0
    print(text)
    return 1


if __name__ == "__main__":
    sys.exit(main())
