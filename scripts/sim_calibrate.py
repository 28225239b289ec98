#!/usr/bin/env python3
"""Fits the simulator's time constants to measured calls and prints them as rows of src/plan/device_constants.txt.

  scripts/sim_calibrate.py docs/results/2026-11-21-gpu-measured.csv

A line of the file: system,collective,ranks,mode,bytes,us,run. For each system and collective three protocols, each with
three prices, none negative: fixed + hop x hops + bytes x factor / rate, where hops and factor are those of the
algorithm. A call takes the cheapest. Fitted to mode "graph" by relative least squares; where one protocol takes over
from another is searched among the measured sizes. "eager" adds what its shortest calls take longer, at least.
"""
import csv
import itertools
import statistics
import sys

# system, collective -> algorithm of the short, middle and long protocol; SendRecv is a ring of sends.
ALGORITHMS = {
    ("tutti", "AllReduce"): ("oneshot", "twoshot", "twoshot"),
    ("tutti", "AllGather"): ("direct",) * 3,
    ("tutti", "ReduceScatter"): ("direct",) * 3,
    ("tutti", "Broadcast"): ("direct", "ring", "ring"),
    ("tutti", "Reduce"): ("direct", "ring", "ring"),
}
# A hop is at least a flag from GPU to GPU, which was measured by itself on the same machine.
LEAST_HOP_US = 0.66
PROTOCOLS = ("LL", "LL128", "Simple")


def algorithm(system, collective, protocol):
    if (system, collective) in ALGORITHMS:
        return ALGORITHMS[system, collective][protocol]
    return "direct" if collective in ("AlltoAll", "SendRecv") else "ring"


def hops_and_factor(collective, name, n):
    """Messages that wait for each other, and bytes that the busiest rank sends, of the vector's."""
    if collective == "AllReduce":
        return {"ring": (2 * (n - 1), 2 * (n - 1) / n), "oneshot": (1, n - 1), "twoshot": (2, 2 * (n - 1) / n)}[name]
    if collective in ("AllGather", "ReduceScatter"):
        return (n - 1 if name == "ring" else 1, (n - 1) / n)
    if collective in ("Broadcast", "Reduce"):
        return (n - 1, 1) if name == "ring" else (1, n - 1 if collective == "Broadcast" else 1)
    if collective == "AlltoAll":
        return 1, (n - 1) / n
    return 1, 1


def solve(rows, values):
    """Least squares, non-negative: the best of all subsets of the three columns."""
    values = [v - LEAST_HOP_US * r[1] for r, v in zip(rows, values)]
    best = None
    for size in (3, 2, 1):
        for columns in itertools.combinations(range(3), size):
            a = [[sum(r[i] * r[j] for r in rows) for j in columns] + [sum(r[i] * v for r, v in zip(rows, values))]
                 for i in columns]
            x = gauss(a)
            # Bytes always cost something: a price of 0 would be an infinite rate elsewhere.
            if x is None or min(x) < 0 or 2 not in columns or x[-1] <= 0:
                continue
            full = [0.0, 0.0, 0.0]
            for c, v in zip(columns, x):
                full[c] = v
            error = sum((sum(p * q for p, q in zip(r, full)) - v) ** 2 for r, v in zip(rows, values))
            if best is None or error < best[0] - 1e-12:
                best = error, full
    return [best[1][0], best[1][1] + LEAST_HOP_US, best[1][2]] if best else None


def gauss(a):
    n = len(a)
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(a[r][i]))
        if abs(a[pivot][i]) < 1e-14:
            return None
        a[i], a[pivot] = a[pivot], a[i]
        for r in range(n):
            if r != i:
                f = a[r][i] / a[i][i]
                a[r] = [x - f * y for x, y in zip(a[r], a[i])]
    return [a[i][n] / a[i][i] for i in range(n)]


def features(system, collective, protocol, n, size):
    hops, factor = hops_and_factor(collective, algorithm(system, collective, protocol), n)
    return [1.0, float(hops), factor * size / 1e6]


def predict(system, collective, prices, n, size):
    return min(sum(p * q for p, q in zip(prices[k], features(system, collective, k, n, size))) for k in range(3))


def fit(system, collective, samples):
    sizes = sorted({s for _, s, _ in samples})
    best = None
    for low, high in itertools.combinations(range(1, len(sizes) - 1), 2):
        prices = []
        for k, part in enumerate((sizes[:low], sizes[low:high], sizes[high:])):
            chosen = [(n, s, us) for n, s, us in samples if s in part]
            # Relative errors: each row and its value divided by the value.
            rows = [[f / us for f in features(system, collective, k, n, s)] for n, s, us in chosen]
            prices.append(solve(rows, [1.0] * len(rows)))
        if None in prices:
            continue
        errors = [abs(predict(system, collective, prices, n, s) / us - 1) for n, s, us in samples]
        score = max(errors) + statistics.fmean(errors)
        if best is None or score < best[0]:
            best = score, prices
    return best[1]


def main():
    with open(sys.argv[1], newline="", encoding="utf-8") as file:
        table = [(r["system"], r["collective"], int(r["ranks"]), r["mode"], int(r["bytes"]), float(r["us"]), r["run"])
                 for r in csv.DictReader(file)]
    keys = list(dict.fromkeys((r[0], r[1]) for r in table))
    eager = {}
    fitted = {}
    for system, collective in keys:
        mine = [r for r in table if r[:2] == (system, collective)]
        graph = [(r[2], r[4], r[5]) for r in mine if r[3] == "graph" and r[6] == "kernels"]
        graph += [(r[2], r[4], r[5] - 1.0) for r in mine if r[3] == "eager" and r[4] > 64 << 20]
        fitted[system, collective] = fit(system, collective, graph)
    errors = []
    for system in dict.fromkeys(k[0] for k in keys):
        ours = [r for r in table if r[0] == system and r[3] == "eager" and r[6] == "kernels" and r[4] <= 64 << 10]
        more = statistics.median(r[5] - predict(r[0], r[1], fitted[r[0], r[1]], r[2], r[4]) for r in ours)
        floor = statistics.median(r[5] for r in ours)
        # Whether the host bounds short calls: a sum or a floor, whichever explains them better.
        sums = [abs((predict(r[0], r[1], fitted[r[0], r[1]], r[2], r[4]) + more) / r[5] - 1) for r in ours]
        floors = [abs(max(predict(r[0], r[1], fitted[r[0], r[1]], r[2], r[4]) + 1, floor) / r[5] - 1) for r in ours]
        eager[system] = (more, 0.0) if sum(sums) <= sum(floors) else (1.0, floor)
        print(f"launch {system} more_us {eager[system][0]:.1f} least_us {eager[system][1]:.1f}")
    for (system, collective), prices in fitted.items():
        for k, (fixed, hop, per_mb) in enumerate(prices):
            rate = 1e3 / per_mb if per_mb > 0 else 0
            priced = "Send" if collective == "SendRecv" else collective
            print(f"call {system} {priced} {algorithm(system, collective, k)} {PROTOCOLS[k]} "
                  f"fixed_us {fixed:.2f} hop_us {hop:.2f} gb_s {rate:.1f}")
    groups = {}
    for system, collective, n, mode, size, us, run in table:
        t = predict(system, collective, fitted[system, collective], n, size)
        if mode == "eager":
            more, floor = eager[system]
            t = max(t + more, floor)
        groups.setdefault((system, mode, run), []).append((t / us - 1, collective, n, size))
    for key, found in groups.items():
        worst = max(found, key=lambda f: abs(f[0]))
        over = sum(abs(f[0]) > 0.25 for f in found)
        print(f"# {key}: {len(found)} cells, median {statistics.median(abs(f[0]) for f in found):.1%}, worst {worst}, "
              f"{over} over 25 %")


main()
