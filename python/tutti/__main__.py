"""python -m tutti: the tutti command. `python -m tutti run -n 4 script.py` starts ranks of a Python script."""

from __future__ import annotations

import os
import sys

from ._library import command_path


# Options of `tutti run` that are followed by a value.
TAKE_VALUES = frozenset({"-n", "--ranks", "--timeout", "--hosts", "--hostfile", "--ssh", "--port", "-x"})


def with_interpreter(arguments: list[str]) -> list[str]:
    """For `doctor`: names this interpreter. For `run`: puts it before a script, and -- before the program.

    Where the program is Python's, the library is preloaded, too: PyTorch's wheels have a library path of their own (RPATH),
    which goes before LD_LIBRARY_PATH and leads to NVIDIA's libnccl.so.2; CuPy loads that by its place. Unless NCCL_CTA_POLICY
    is set it then is 1: long calls of GPU ranks leave multiprocessors to what computes beside them.
    """
    if arguments[:1] == ["doctor"] and "--python" not in arguments:
        return [*arguments, "--python", sys.executable]
    if not arguments or arguments[0] != "run":
        return arguments
    at = 1
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] not in ("--", "-m", "-c"):
        at += 2 if arguments[at] in TAKE_VALUES else 1
    program = arguments[at:]
    if program[:1] == ["--"]:
        program = program[1:]
    if not program:
        return arguments
    if program[0].endswith(".py") or program[0] in ("-m", "-c"):
        program = [sys.executable, *program]
    preloads = ["--preload"] if program[0] == sys.executable and "--preload" not in arguments[:at] else []
    return [*arguments[:at], *preloads, "--", *program]


def main() -> None:
    command = os.fspath(command_path())
    os.execv(command, ["tutti", *with_interpreter(sys.argv[1:])])


if __name__ == "__main__":
    main()
