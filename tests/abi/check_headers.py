#!/usr/bin/env python3
"""Compiles the facts with one compiler in each language it has: with CUDA's headers, without them,
and with CUDA's included only after ours. Exit 0: all compile; 1: one does not; 77: nothing to try."""
import argparse
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
WARNINGS = ["-pedantic", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-Wno-deprecated-declarations"]
# Each header of ours must stand alone.
ALONE = {"c99": "tutti/host.h", "c++17": "tutti/host.h", "c++20": "tutti/tutti.hpp"}
# A program that includes nccl.h without CUDA's headers, and CUDA's later by another header.
CUDA_LATER = '#define TUTTI_WITHOUT_CUDA_HEADERS 1\n#include "nccl.h"\n#include <cuda_runtime.h>\n'


def compile_with(command, what):
    """Whether `command` succeeds; says so, with the compiler's words where it does not."""
    done = subprocess.run(command, capture_output=True, text=True)
    print(f"{'ok  ' if done.returncode == 0 else 'FAIL'} {what}")
    if done.returncode:
        print("  " + " ".join(map(str, command)))
        print(done.stdout + done.stderr)
    return done.returncode == 0


def host_cases(arguments, scratch):
    """(what, flags, source) of each way to compile with a host compiler."""
    later = scratch / "later.c"
    later.write_text(CUDA_LATER)
    facts = HERE / "interface_facts.c"
    cuda = ["-isystem", arguments.cuda] if arguments.cuda else None
    for language, standard in (("c", "c99"), ("c", "c11"), ("c++", "c++17"), ("c++", "c++20")):
        flags = ["-x", language, f"-std={standard}", *WARNINGS]
        if standard in ALONE:
            source = scratch / f"alone_{standard}.c"
            source.write_text(f"#include <{ALONE[standard]}>\n")
            for with_cuda in ([], cuda) if cuda else ([],):
                yield f"{ALONE[standard]} alone as {standard}", [*flags, *with_cuda], source
        yield f"{standard} without CUDA", [*flags, "-DTUTTI_WITHOUT_CUDA_HEADERS"], facts
        if cuda:
            yield f"{standard} with CUDA", [*flags, *cuda], facts
            # C99 has no repeated typedefs; CUDA's own headers need no more than C++11 or C11.
            if standard != "c99":
                yield f"{standard} with CUDA after ours", [*flags, *cuda], later


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--kind", choices=("c", "c++", "nvcc"), required=True)
    parser.add_argument("--include", required=True)
    parser.add_argument("--cuda", help="the folder of cuda_runtime.h")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as scratch:
        output = ["-I", arguments.include, "-c", "-o", f"{scratch}/out.o"]
        if arguments.kind == "nvcc":
            cases = [("nvcc", ["-x", "cu", "-std=c++17", "-Wno-deprecated-declarations"],
                      HERE / "interface_facts.c")]
        else:
            cases = [case for case in host_cases(arguments, pathlib.Path(scratch))
                     if (case[1][1] == "c++") == (arguments.kind == "c++")]
        good = [compile_with([arguments.compiler, *flags, *output, source], what)
                for what, flags, source in cases]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
