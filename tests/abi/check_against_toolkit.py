#!/usr/bin/env python3
"""Compares our nccl.h with the CUDA toolkit's: the two dumps must be equal, and every name that the
toolkit's header declares must be declared by ours. Exit 0: they agree; 1: they do not."""
import argparse
import difflib
import re
import subprocess
import sys

# What a header may have for itself: its include guard.
OWN_NAMES = {"NCCL_H_"}
NAME = re.compile(r"\b(?:p?nccl[A-Z]\w*|NCCL_\w+)")


def declared_names(compiler, include_flags, language):
    """The interface names in the text that nccl.h itself contributes, macros included."""
    command = [compiler, "-x", language, "-E", "-dD", *include_flags, "-"]
    text = subprocess.run(command, input='#include "nccl.h"\n', capture_output=True, text=True,
                          check=True).stdout
    names, inside = set(), False
    for line in text.splitlines():
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            inside = marker.group(1).endswith("/nccl.h")
        elif inside:
            names.update(NAME.findall(line))
    return names - OWN_NAMES


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--ours", required=True, help="the dump program built with our headers")
    parser.add_argument("--theirs", required=True, help="the same built with the toolkit's")
    parser.add_argument("--our-include", required=True)
    parser.add_argument("--toolkit-include", required=True)
    arguments = parser.parse_args()

    ours, theirs = (subprocess.run([program], capture_output=True, text=True, check=True).stdout
                    for program in (arguments.ours, arguments.theirs))
    difference = list(difflib.unified_diff(theirs.splitlines(), ours.splitlines(), "toolkit", "ours",
                                           lineterm="", n=0))
    print(f"{len(ours.splitlines())} facts dumped, {len(difference)} lines of difference")
    print("\n".join(difference))

    cuda = ["-isystem", arguments.toolkit_include]
    missing = (declared_names(arguments.compiler, cuda, "c++")
               - declared_names(arguments.compiler, ["-I", arguments.our_include, *cuda], "c++"))
    for name in sorted(missing):
        print(f"{name} is declared by the toolkit's nccl.h, not by ours")
    if len(ours.splitlines()) < 200:
        print("the dump is too short to have compared anything")
        return 1
    return 1 if difference or missing else 0


if __name__ == "__main__":
    sys.exit(main())
