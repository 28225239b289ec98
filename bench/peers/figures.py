"""What the raw times say: medians, ratios in pairs, geometric means, targets. Pure: values in, values out.

A cell is one collective, number of ranks and size; it holds rounds, and in each round every peer was measured once,
one after the other. Times are µs a call.
"""

import dataclasses
import math
import statistics

OTHER_CPU_LIMIT = 0.05  # of a core, by processes that are not measured
STEAL_LIMIT = 0.02  # of a core, by the hypervisor

COLLECTIVES = ["allreduce", "allgather", "reduce_scatter", "broadcast", "alltoall", "pingpong"]  # as in harness.h


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

    def covers(self, cell):
        return cell["ranks"] in self.ranks and self.smallest <= cell["bytes"] <= self.largest


KIB, MIB = 1 << 10, 1 << 20
TARGETS = [
    Target("2 ranks, ordinary buffers, 8 B to 16 KB", "tutti", (2,), 8, 16 * KIB, 0.60, 0.45),
    Target("2 ranks, ordinary buffers, above 16 KB to 256 MB", "tutti", (2,), 16 * KIB + 1, 256 * MIB, 0.95, 0.75),
    Target("2 ranks, shared buffers, all sizes", "tutti-shared", (2,), 0, 1 << 62, 0.70, 0.35),
    Target("4 and 8 ranks, ordinary buffers", "tutti", (4, 8), 0, 1 << 62, 0.90, 0.50),
    Target("4 and 8 ranks, shared buffers", "tutti-shared", (4, 8), 0, 1 << 62, 0.90, 0.50),
]
OURS = ("tutti", "tutti-shared")


@dataclasses.dataclass
class Summary:
    """One cell in figures."""

    cell: dict
    times: dict  # peer -> median µs
    best: str | None  # the peer, not ours, with the smallest median
    ratios: dict  # ours -> median over rounds of ours / best in the same round
    rounds: int  # that count
    is_noisy: bool  # too few rounds were quiet, so all count


def is_quiet(round_):
    return round_["other_cpu"] <= OTHER_CPU_LIMIT and round_["steal"] <= STEAL_LIMIT


def counted_rounds(cell):
    """The quiet rounds if they are the majority; otherwise all of them, and False."""
    quiet = [round_ for round_ in cell["rounds"] if is_quiet(round_)]
    if 2 * len(quiet) > len(cell["rounds"]):
        return quiet, True
    return cell["rounds"], False


def summarize(cell):
    rounds, is_calm = counted_rounds(cell)
    names = {name for round_ in rounds for name in round_["us"]}
    times = {name: statistics.median(r["us"][name] for r in rounds if name in r["us"]) for name in names}
    peers = {name: time for name, time in times.items() if name not in OURS}
    best = min(peers, key=lambda name: (peers[name], name)) if peers else None
    ratios = {}
    for name in OURS:
        pairs = [r["us"][name] / r["us"][best] for r in rounds if best in r["us"] and name in r["us"]]
        if pairs:
            ratios[name] = statistics.median(pairs)
    return Summary(cell, times, best, ratios, len(rounds), not is_calm)


def geometric_mean(values):
    return math.exp(statistics.fmean(math.log(value) for value in values))


def judge(summaries):
    """For each target that has cells: (target, geometric mean, number of cells, the summaries that miss it)."""
    verdicts = []
    for target in TARGETS:
        covered = [s for s in summaries if target.covers(s.cell) and target.ours in s.ratios]
        if not covered:
            continue
        mean = geometric_mean([s.ratios[target.ours] for s in covered])
        missing = [s for s in covered if s.ratios[target.ours] > target.cell]
        verdicts.append((target, mean, len(covered), missing))
    return verdicts


def behind(summaries):
    """Cells in which the best peer is faster, worst first: (ratio, which of ours, summary)."""
    found = [(ratio, name, s) for s in summaries for name, ratio in s.ratios.items() if ratio > 1]
    return sorted(found, key=lambda entry: -entry[0])


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
