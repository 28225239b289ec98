#!/usr/bin/env python3
"""Compiles for 64-bit Arm what has code for one kind of processor, and stops at warnings as the build does.

Such code is seen by no build of another kind. The sources are those of src/ that name a processor's words, and those that
include a header that does. Exit codes: 0; 1 with the compiler's words; 77 where no aarch64-linux-gnu-g++ is installed.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMPILER = "aarch64-linux-gnu-g++"
WORDS = re.compile(r"__x86_64__|__aarch64__|__builtin_ia32|arm_neon\.h|immintrin\.h")
# Headers that are the same for every processor are found where this machine has its own.
FLAGS = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror", "-Isrc", "-Iinclude", "-idirafter",
         "/usr/include", "-c", "-o", "/dev/null"]


def sources():
    """Below src/; of those that only include such a header the ones of base and kernels, who have most of it."""
    texts = {str(path.relative_to(ROOT / "src")): path.read_text() for path in (ROOT / "src").rglob("*.[hc]*")
             if path.suffix in (".h", ".cc")}
    named = {path for path, text in texts.items() if WORDS.search(text)}
    includes = [f'#include "{path}"' for path in named if path.endswith(".h")]
    near = {path for path, text in texts.items()
            if path.startswith(("base/", "kernels/")) and any(line in text for line in includes)}
    return sorted(path for path in named | near if path.endswith(".cc") and "avx" not in path)


def compile_one(source):
    run = subprocess.run([COMPILER, *FLAGS, f"src/{source}"], cwd=ROOT, capture_output=True, text=True)
    return source, run.returncode, run.stderr


def main():
    if shutil.which(COMPILER) is None:
        print(f"skipped: no {COMPILER}; scripts/install-deps.sh lint installs it")
        return 77
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for source, code, words in pool.map(compile_one, sources()):
            print(f"{'ok   ' if code == 0 else 'FAIL '} {source}")
            if code != 0:
                print(words)
                failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
