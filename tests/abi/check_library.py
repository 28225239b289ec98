#!/usr/bin/env python3
"""Checks the built libnccl.so.2 from outside: its names, what it needs, its size, and that it loads.
Exit 0: as wanted; 1: not; 77: the check has no meaning for this build (says why)."""
import argparse
import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SKIP = 77
ALLOWED_NEEDS = re.compile(
    r"^(libc|libm|libpthread|libdl|librt|libstdc\+\+|libgcc_s|ld-linux-[\w-]+)\.so\.\d+$")
STANDARD_NAME_COUNT = 53


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def wanted_symbols(include):
    """Name -> 'W' (weak) or 'T' (strong), from the facts and from the headers of our additions."""
    facts = (HERE / "functions.inc").read_text()
    names = re.findall(r"^(?:HOST|DEVICE)\([\w ]+\*?, (\w+),", facts, re.MULTILINE)
    symbols = {"ncclResetDebugInitInternal": "T"}
    for header in sorted(pathlib.Path(include, "tutti").glob("*.h")):
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header.read_text(), flags=re.DOTALL)
        names += re.findall(r"\bnccl(Tutti\w+)\s*\(", text)
    for name in names:
        symbols["nccl" + name] = "W"
        symbols["pnccl" + name] = "T"
    standard = [name for name in symbols if name.startswith("nccl") and "Tutti" not in name]
    assert len(standard) == STANDARD_NAME_COUNT, f"functions.inc lists {len(standard)} names"
    return symbols


def check_exports(arguments):
    """Exactly the wanted names, each as weak or strong as a drop-in has it."""
    found = {}
    for line in run("nm", "-D", "--defined-only", arguments.library).splitlines():
        kind, name = line.split()[-2:]
        found[name] = kind
    wanted = wanted_symbols(arguments.include)
    problems = [f"{name} is missing" for name in sorted(wanted.keys() - found.keys())]
    problems += [f"{name} is exported, and should not be" for name in found.keys() - wanted.keys()]
    problems += [f"{name} is of kind {found[name]}, wanted {wanted[name]} (W weak, T strong)"
                 for name in sorted(wanted.keys() & found.keys()) if found[name] != wanted[name]]
    print(f"{len(found)} names exported, {len(wanted)} wanted")
    return problems


def dynamic_entries(library, tag):
    return re.findall(rf"\({tag}\).*\[(.*)\]", run("readelf", "-d", library))


def check_needs(arguments):
    """Only libraries that every Linux has, a SONAME of libnccl.so.2, no run path, no text relocation."""
    needs = dynamic_entries(arguments.library, "NEEDED")
    print("needs", *needs)
    problems = [f"needs {name}, which a machine may lack" for name in needs
                if not ALLOWED_NEEDS.match(name)]
    soname = dynamic_entries(arguments.library, "SONAME")
    if soname != ["libnccl.so.2"]:
        problems.append(f"SONAME is {soname}, wanted libnccl.so.2")
    for tag in ("RPATH", "RUNPATH"):
        if dynamic_entries(arguments.library, tag):
            problems.append(f"has a {tag}")
    if "TEXTREL" in run("readelf", "-d", arguments.library):
        problems.append("has text relocations")
    return problems


def check_size(arguments):
    """The stripped file's size."""
    with tempfile.TemporaryDirectory() as scratch:
        stripped = os.path.join(scratch, "libnccl.so.2")
        run("strip", "-o", stripped, arguments.library)
        size = os.path.getsize(stripped)
    limit = arguments.megabytes * 1024 * 1024
    print(f"{size} bytes stripped, limit {limit}")
    return [] if size <= limit else [f"{size} bytes are over the limit"]


def check_loads(arguments):
    """Loads with every name bound at once, as Python's import does, and answers without a GPU."""
    library = ctypes.CDLL(arguments.library, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    version = ctypes.c_int(0)
    if library.ncclGetVersion(ctypes.byref(version)) != 0 or version.value != 22809:
        return [f"ncclGetVersion tells {version.value}, wanted 22809"]
    # Programs compare these texts.
    texts = ["no error", "unhandled cuda error", "unhandled system error",
             "internal error - please report this issue to the NCCL developers", "invalid argument",
             "invalid usage", "remote process exited or there was a network error",
             "NCCL operation in progress"]
    library.ncclGetErrorString.restype = ctypes.c_char_p
    told = [library.ncclGetErrorString(code).decode() for code in range(len(texts))]
    return [f"ncclGetErrorString({code}) is '{told[code]}', wanted '{text}'"
            for code, text in enumerate(texts) if not told[code].startswith(text)]


def interface_of(arguments):
    """What a program compiled against the library relies on, as abidw tells it; None where it cannot."""
    for tool in ("abidw", "abidiff"):
        if not shutil.which(tool):
            print(f"{tool} is not installed (Debian's abigail-tools)")
            return None
    text = run("abidw", "--exported-interfaces-only", "--headers-dir", arguments.include, "--drop-private-types",
               "--drop-undefined-syms", "--no-elf-needed", "--no-show-locs", "--no-corpus-path", "--no-comp-dir-path",
               "--type-id-style", "hash", arguments.library)
    return re.sub(r" path='[^']*/", " path='", text)  # where it was built is no part of it


def check_interface(arguments):
    """Nothing that the last release has is gone or has changed: types, sizes, parameters, versions."""
    text = interface_of(arguments)
    if text is None:
        return SKIP
    stored = pathlib.Path(arguments.stored)
    if arguments.renew:
        stored.write_text(text)
        print(f"{stored}: what the library offers now")
        return []
    architectures = [re.search(r"architecture='([^']*)'", each).group(1) for each in (text, stored.read_text())]
    if architectures[0] != architectures[1]:
        print(f"the library is for {architectures[0]}, and {stored} for {architectures[1]}")
        return SKIP
    with tempfile.TemporaryDirectory() as scratch:
        now = pathlib.Path(scratch, "libnccl.so.2.abi")
        now.write_text(text)
        told = subprocess.run(["abidiff", "--no-added-syms", stored, now], capture_output=True, text=True, check=False)
    print(told.stdout, told.stderr, sep="")
    return [] if told.returncode == 0 else [f"not what {stored} says; if that is wanted: docs/TESTING.md, Of the binary interface"]


CHECKS = {"exports": (check_exports, False), "needs": (check_needs, True), "size": (check_size, True),
          "loads": (check_loads, True), "interface": (check_interface, True)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("check", choices=CHECKS)
    parser.add_argument("--library", required=True)
    parser.add_argument("--include", required=True)
    parser.add_argument("--sanitizers", default="")
    parser.add_argument("--megabytes", type=int, default=5, help="size: the most it may have, stripped")
    parser.add_argument("--stored", default=HERE / "libnccl.so.2.abi", help="the last release's interface")
    parser.add_argument("--renew", action="store_true", help="interface: write that file instead")
    arguments = parser.parse_args()

    check, plain_builds_only = CHECKS[arguments.check]
    if plain_builds_only and arguments.sanitizers:
        print(f"a build with sanitizers ({arguments.sanitizers}) needs their libraries and is larger")
        return SKIP
    problems = check(arguments)
    if problems == SKIP:
        return SKIP
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
