"""What the raw times say: medians, ratios in pairs, geometric means, targets. Pure: values in, values out.

A cell is one collective, number of ranks, size and wire; it holds rounds, and in each round every peer was measured once,
one after the other. Times are µs a call.
"""

import dataclasses
import functools
import json
import math
import pathlib
import statistics

OTHER_CPU_LIMIT = 0.05  # of a core, by processes that are not measured
STEAL_LIMIT = 0.02  # of a core, by the hypervisor

COLLECTIVES = ["allreduce", "allgather", "reduce_scatter", "broadcast", "alltoall", "pingpong"]  # as in harness.h


MEMORY, TCP = "memory", "tcp"  # what the ranks of a cell talk over: the host's memory, or loopback as if between hosts
BARE_FORMS = ["mail", "demote", "bounce", "read", "mapped"]  # of the transfer alone: bare.h


@dataclasses.dataclass(frozen=True)
class Target:
    """Ratios of time to the best peer that we want: of each cell, and of their geometric mean."""

    name: str
    ours: str  # key of our variant
    ranks: tuple[int, ...]
    smallest: int
    largest: int
    cell: float
    mean: float
    wire: str = MEMORY

    def covers(self, cell):
        return (
            cell.get("wire", MEMORY) == self.wire
            and cell["ranks"] in self.ranks
            and self.smallest <= cell["bytes"] <= self.largest
        )


KIB, MIB = 1 << 10, 1 << 20
TARGETS = [
    Target("2 ranks, ordinary buffers, 8 B to 16 KB", "tutti", (2,), 8, 16 * KIB, 0.60, 0.45),
    Target("2 ranks, ordinary buffers, above 16 KB to 256 MB", "tutti", (2,), 16 * KIB + 1, 256 * MIB, 0.95, 0.75),
    Target("2 ranks, shared buffers, all sizes", "tutti-shared", (2,), 0, 1 << 62, 0.70, 0.35),
    Target("4 and 8 ranks, ordinary buffers", "tutti", (4, 8), 0, 1 << 62, 0.90, 0.50),
    Target("4 and 8 ranks, shared buffers", "tutti-shared", (4, 8), 0, 1 << 62, 0.90, 0.50),
    Target("TCP on loopback, 2 hosts of a rank", "tutti", (2,), 0, 1 << 62, 1.00, 0.85, TCP),
]
OURS = ("tutti", "tutti-shared")
# The forms that a floor is the best of, for each of ours: what serves ordinary buffers serves shared ones, too.
FLOORS = {"tutti": ("bare", BARE_FORMS[:-1]), "tutti-shared": ("bare-shared", BARE_FORMS)}
FAR_OVER_FLOOR = 1.3


@dataclasses.dataclass
class Floor:
    """What the transfer alone took in a cell: no library's, so never the best peer."""

    name: str  # "bare" or "bare-shared"
    form: str
    us: float
    to_best: float | None  # median over rounds of the floor to the best peer; None without a peer
    over: float | None  # and of ours to the floor


@dataclasses.dataclass
class Summary:
    """One cell in figures."""

    cell: dict
    times: dict  # peer -> median µs
    best: str | None  # the peer, not ours, with the smallest median
    ratios: dict  # ours -> median over rounds of ours / best in the same round
    rounds: int  # that count
    is_noisy: bool  # too few rounds were quiet, so all count
    floors: dict  # ours -> Floor; none where the transfer alone was not measured


def is_quiet(round_):
    return round_["other_cpu"] <= OTHER_CPU_LIMIT and round_["steal"] <= STEAL_LIMIT


def counted_rounds(cell):
    """The quiet rounds if they are the majority; otherwise all of them, and False."""
    quiet = [round_ for round_ in cell["rounds"] if is_quiet(round_)]
    if 2 * len(quiet) > len(cell["rounds"]):
        return quiet, True
    return cell["rounds"], False


def paired_ratio(rounds, name, other):
    """Median over the rounds that have both; None without one."""
    pairs = [r["us"][name] / r["us"][other] for r in rounds if name in r["us"] and other in r["us"]]
    return statistics.median(pairs) if pairs else None


def fastest(times, names):
    """Of the names that have a time; None without one."""
    return min((name for name in names if name in times), key=lambda name: (times[name], name), default=None)


def is_bare(key):
    return key.startswith("bare-")


def find_floors(rounds, times, best):
    floors = {}
    for ours, (name, forms) in FLOORS.items():
        key = fastest(times, [f"bare-{form}" for form in forms])
        if key:
            to_best, over = paired_ratio(rounds, key, best), paired_ratio(rounds, ours, key)
            floors[ours] = Floor(name, key.removeprefix("bare-"), times[key], to_best, over)
    return floors


def summarize(cell):
    rounds, is_calm = counted_rounds(cell)
    names = {name for round_ in rounds for name in round_["us"]}
    times = {name: statistics.median(r["us"][name] for r in rounds if name in r["us"]) for name in names}
    best = fastest(times, [name for name in names if name not in OURS and not is_bare(name)])
    ratios = {name: paired_ratio(rounds, name, best) for name in OURS}
    ratios = {name: ratio for name, ratio in ratios.items() if ratio is not None}
    return Summary(cell, times, best, ratios, len(rounds), not is_calm, find_floors(rounds, times, best))


@functools.cache
def elsewhere():
    """Figures of stronger opponents that no package brings, from another machine, and what that was."""
    read = json.loads((pathlib.Path(__file__).parent / "elsewhere.json").read_text())
    cells = {(c["wire"], c["collective"], c["ranks"], c["bytes"]): c for c in read["cells"]}
    return read["machine"], cells


def opponent(cell):
    """What they took in such a cell: us and who, or None."""
    return elsewhere()[1].get((cell.get("wire", MEMORY), cell["collective"], cell["ranks"], cell["bytes"]))


def beside_opponents(summaries):
    """Of each target's cells that they have, too: ours to theirs."""
    found = []
    for target in TARGETS:
        pairs = [
            (s.times[target.ours] / opponent(s.cell)["us"], s)
            for s in summaries
            if target.covers(s.cell) and target.ours in s.times and opponent(s.cell)
        ]
        if pairs:
            found.append((target, sorted(pairs, key=lambda pair: -pair[0])))
    return found


def geometric_mean(values):
    return math.exp(statistics.fmean(math.log(value) for value in values))


@dataclasses.dataclass
class Verdict:
    """What came of a target: geometric means over its cells; the floor's over those that have one, None without."""

    target: Target
    mean: float
    count: int
    missing: list  # the summaries that miss it
    floor_mean: float | None  # of the floor to the best peer
    over_floor: float | None  # of ours to the floor

    @property
    def is_met(self):
        return self.mean <= self.target.mean


def mean_if_any(values):
    values = [value for value in values if value is not None]
    return geometric_mean(values) if values else None


def judge(summaries):
    """The Verdict of each target that has cells."""
    verdicts = []
    for target in TARGETS:
        covered = [s for s in summaries if target.covers(s.cell) and target.ours in s.ratios]
        if not covered:
            continue
        mean = geometric_mean([s.ratios[target.ours] for s in covered])
        missing = [s for s in covered if s.ratios[target.ours] > target.cell]
        floors = [s.floors[target.ours] for s in covered if target.ours in s.floors]
        floor_mean, over = mean_if_any([f.to_best for f in floors]), mean_if_any([f.over for f in floors])
        verdicts.append(Verdict(target, mean, len(covered), missing, floor_mean, over))
    return verdicts


def describe_verdicts(summaries):
    """The same as plain values."""
    return [
        {
            "name": verdict.target.name, "wanted": verdict.target.mean, "mean": verdict.mean, "cells": verdict.count,
            "missing": len(verdict.missing), "floor_mean": verdict.floor_mean, "over_floor": verdict.over_floor,
        }
        for verdict in judge(summaries)
    ]  # fmt: skip


def far_over_floor(summaries):
    """Cells in which ours takes much more than the transfer alone, worst first: (ratio, which of ours, summary)."""
    found = [(floor.over, name, s) for s in summaries for name, floor in s.floors.items()]
    found = [entry for entry in found if entry[0] is not None and entry[0] > FAR_OVER_FLOOR]
    return sorted(found, key=lambda entry: -entry[0])


def behind(summaries):
    """Cells in which the best peer is faster, worst first: (ratio, which of ours, summary)."""
    found = [(ratio, name, s) for s in summaries for name, ratio in s.ratios.items() if ratio > 1]
    return sorted(found, key=lambda entry: -entry[0])


def wire_text(data):
    """What the ranks talk over, to go on a sentence with; nothing where it is the host's memory."""
    if data["settings"].get("wire", MEMORY) == MEMORY:
        return ""
    return " all talk over TCP on loopback, as if each rank were on a host of its own;"


def size_text(size):
    for unit, name in ((1 << 30, "GB"), (MIB, "MB"), (KIB, "KB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def time_text(us):
    if us < 10:
        return f"{us:.2f}"
    if us < 100:
        return f"{us:.1f}"
    return f"{us:.0f}"


def opponent_text(cell):
    found = opponent(cell)
    return f"{time_text(found['us'])} {found['who']}" if found else ""
