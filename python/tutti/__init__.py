"""Collective communication between GPUs and between CPU ranks.

    import numpy, tutti
    with tutti.Communicator.from_environment() as comm:      # python -m tutti run -n 4 script.py
        gradients = numpy.full(1000, comm.rank, numpy.float32)
        comm.all_reduce(gradients, op="avg")                 # in place
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
from typing import Any

from ._communicator import Communicator, Op, Work, group, unique_id
from ._library import Error, command_path, lib, library_path

__all__ = ["Communicator", "Error", "Op", "Work", "command_path", "explain", "group", "interface_version",
           "library_path", "settings", "unique_id"]


def interface_version() -> int:
    """The version of NCCL's interface that the library speaks, as 22809 for 2.28.9."""
    version = ctypes.c_int()
    lib.ncclGetVersion(ctypes.byref(version))
    return version.value


def _ask_command(*arguments: str, good: tuple = (0,)) -> Any:
    result = subprocess.run([os.fspath(command_path()), *arguments, "--json"], capture_output=True, text=True, check=False)
    if result.returncode not in good:
        raise ValueError(f"tutti {' '.join(arguments)}: {result.stderr.strip()}")
    return json.loads(result.stdout)


def explain(collective: str, ranks: int = 4, bytes: int = 1 << 20) -> dict:
    """Which algorithm a call takes and why, its costs and steps, as `tutti explain --json` tells. bytes: of the call."""
    return _ask_command("explain", collective, "-n", str(ranks), "-b", str(bytes), good=(0, 1))


def settings() -> dict:
    """Every setting, its value, where it came from, and complaints, as `tutti settings --json` tells."""
    return _ask_command("settings", good=(0, 1))
