#!/usr/bin/env python3
"""Fits the simulator's time constants to measured calls and prints them as lines of src/plan/device_constants.txt.

  scripts/sim_calibrate.py docs/results/2026-11-22-gpu-measured.csv

A line of the file: system,collective,ranks,mode,bytes,us,run. For each system, collective and number of ranks three
protocols, each with three prices, none negative: fixed + hop x hops + bytes x factor / rate, where hops and factor are
those of the algorithm. A call takes the cheapest. Fitted to mode "graph" by relative least squares; where one protocol
takes over from another is searched among the measured sizes. What a hop costs is how much longer more ranks take.
"eager" adds what its shortest calls take longer, at least. Runs named "library" are left to judge by.
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
# A run of another program, not fitted to.
JUDGE = "library"


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
    """Least squares of fixed and per MB, non-negative, where each hop takes the least."""
    values = [v - LEAST_HOP_US * r[1] for r, v in zip(rows, values)]
    best = None
    # Bytes always cost something: a price of 0 would be an infinite rate elsewhere.
    for columns in ((0, 2), (2,)):
        a = [[sum(r[i] * r[j] for r in rows) for j in columns] + [sum(r[i] * v for r, v in zip(rows, values))]
             for i in columns]
        x = gauss(a)
        if x is None or min(x) < 0 or x[-1] <= 0:
            continue
        full = [0.0, 0.0, 0.0]
        for c, v in zip(columns, x):
            full[c] = v
        error = sum((sum(p * q for p, q in zip(r, full)) - v) ** 2 for r, v in zip(rows, values))
        if best is None or error < best[0] - 1e-12:
            best = error, full
    return [best[1][0], LEAST_HOP_US, best[1][2]] if best else None


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


def share_hops(system, collective, fitted):
    """Moves what more ranks take longer from the fixed price to that of a hop; no call takes another time for it."""
    for k in range(3):
        hops = {n: features(system, collective, k, n, 0)[1] for n in fitted}
        waits = {n: fitted[n][k][0] + fitted[n][k][1] * hops[n] for n in fitted}
        low, high = min(fitted), max(fitted)
        if hops[high] == hops[low]:
            continue
        slope = (waits[high] - waits[low]) / (hops[high] - hops[low])
        hop = max(LEAST_HOP_US, min([slope] + [waits[n] / hops[n] for n in fitted]))
        for n in fitted:
            fitted[n][k][:2] = [waits[n] - hop * hops[n], hop]


def launch_of(system, table, predicted):
    """Whether the host bounds short calls: a sum or a floor, whichever explains them better."""
    ours = [r for r in table if r[0] == system and r[3] == "eager" and r[6] != JUDGE and r[4] <= 64 << 10]
    more = statistics.median(r[5] - predicted(r) for r in ours)
    floor = statistics.median(r[5] for r in ours)
    sums = [abs((predicted(r) + more) / r[5] - 1) for r in ours]
    floors = [abs(max(predicted(r) + 1, floor) / r[5] - 1) for r in ours]
    return (more, 0.0) if sum(sums) <= sum(floors) else (1.0, floor)


def report(table, predicted, launch):
    groups = {}
    for row in table:
        t = predicted(row)
        if row[3] == "eager":
            more, floor = launch[row[0]]
            t = max(t + more, floor)
        groups.setdefault((row[0], row[3], row[6]), []).append((t / row[5] - 1, row[1], row[2], row[4]))
    for key, found in groups.items():
        worst = max(found, key=lambda f: abs(f[0]))
        over = sum(abs(f[0]) > 0.25 for f in found)
        print(f"# {key}: {len(found)} cells, median {statistics.median(abs(f[0]) for f in found):.1%}, worst {worst}, "
              f"{over} over 25 %")


def main():
    with open(sys.argv[1], newline="", encoding="utf-8") as file:
        table = [(r["system"], r["collective"], int(r["ranks"]), r["mode"], int(r["bytes"]), float(r["us"]), r["run"])
                 for r in csv.DictReader(file)]
    fitted = {}
    for system, collective in dict.fromkeys((r[0], r[1]) for r in table):
        mine = [r for r in table if r[:2] == (system, collective) and r[6] != JUDGE]
        of_ranks = {}
        for n in sorted({r[2] for r in mine}):
            samples = [(n, r[4], r[5]) for r in mine if r[2] == n and r[3] == "graph"]
            samples += [(n, r[4], r[5] - 1.0) for r in mine if r[2] == n and r[3] == "eager" and r[4] > 64 << 20]
            of_ranks[n] = fit(system, collective, samples)
        share_hops(system, collective, of_ranks)
        fitted[system, collective] = of_ranks

    def predicted(row):
        return predict(row[0], row[1], fitted[row[0], row[1]][row[2]], row[2], row[4])

    launch = {system: launch_of(system, table, predicted) for system in dict.fromkeys(r[0] for r in table)}
    for system, (more, floor) in launch.items():
        print(f"launch {system} more_us {more:.1f} least_us {floor:.1f}")
    for (system, collective), of_ranks in fitted.items():
        for n, prices in of_ranks.items():
            for k, (fixed, hop, per_mb) in enumerate(prices):
                priced = "Send" if collective == "SendRecv" else collective
                print(f"call {system} {priced} {algorithm(system, collective, k)} {PROTOCOLS[k]} ranks {n} "
                      f"fixed_us {fixed:.2f} hop_us {hop:.2f} gb_s {1e3 / per_mb:.4g}")
    report(table, predicted, launch)


main()
