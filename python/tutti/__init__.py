"""Collective communication between GPUs and between CPU ranks.

    import numpy, tutti
    with tutti.Communicator.from_environment() as comm:      # python -m tutti run -n 4 script.py
        gradients = numpy.full(1000, comm.rank, numpy.float32)
        comm.all_reduce(gradients, op="avg")                 # in place
"""

from __future__ import annotations

import ctypes

from ._answers import (Algorithm, Complaint, Explanation, Link, Mapped, MappedStep, Node, Path, Program, Proof, Setting,
                       Settings, Simulation, Switch, Topology, Way, WayOut, explain, settings, simulate, topology)
from ._communicator import Communicator, Op, Work, group, unique_id
from ._library import Error, command_path, lib, library_path

__all__ = ["Algorithm", "Communicator", "Complaint", "Error", "Explanation", "Link", "Mapped", "MappedStep", "Node", "Op",
           "Path", "Program", "Proof", "Setting", "Settings", "Simulation", "Switch", "Topology", "Way", "WayOut", "Work",
           "command_path", "explain", "group", "interface_version", "library_path", "settings", "simulate", "topology",
           "unique_id"]


def interface_version() -> int:
    """The version of NCCL's interface that the library speaks, as 22809 for 2.28.9."""
    version = ctypes.c_int()
    lib.ncclGetVersion(ctypes.byref(version))
    return version.value
