#!/usr/bin/env python3
"""Fits the simulator's time constants to measured calls and prints them as lines of src/plan/device_constants.txt.

  scripts/sim_calibrate.py docs/results/2026-11-24-gpu-measured.csv

A line of the file: system,collective,ranks,mode,bytes,us,run, and case where calls differ in more; of several runs of a
call the median counts. For each system, collective and number of ranks three protocols, each with three prices, none
negative: hop x hops + the longer of fixed + bytes x factor / rate and what the busiest link takes, where hops and factor
are those of the algorithm. A call takes the cheapest. Fitted to mode "graph" by relative least squares; where one
protocol takes over from another is searched among the measured sizes. What a hop costs is how much longer more ranks
take. Beyond the sizes that a short protocol was measured with, a byte goes at the long one's rate, less what of each
line are flags: the slope among short calls, where bytes hardly count, says nothing of long ones. "eager" adds what the host
takes: a sum and a floor, which is longer for each peer where NCCL launches a send to each. Cases are left out.
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
# Bytes on the wire for each of data.
WIRE = (2.0, 128 / 120, 1.0)
# From a GPU to the switch, or back: examples/clusters/h200x4.yaml.
LINK_GB_S = 370.8


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


def link_us(system, collective, protocol, n, size):
    """What the busiest link takes: the root's that all others send to, else the busiest sender's."""
    name = algorithm(system, collective, protocol)
    factor = n - 1 if (collective, name) == ("Reduce", "direct") else hops_and_factor(collective, name, n)[1]
    return factor * size * (WIRE[protocol] if system == "tutti" else 1.0) / LINK_GB_S / 1e3


def features(system, collective, protocol, n, size):
    hops, factor = hops_and_factor(collective, algorithm(system, collective, protocol), n)
    return [1.0, float(hops), factor * size / 1e6]


def price(system, collective, prices, protocol, n, size):
    """Of one protocol, whose prices are fixed, hop, us per MB, the MB up to which that holds, us per MB beyond."""
    _, hops, mb = features(system, collective, protocol, n, size)
    fixed, hop, per_mb, upto, tail = prices
    lanes = fixed + min(mb, upto) * per_mb + max(0.0, mb - upto) * tail
    return hop * hops + max(lanes, link_us(system, collective, protocol, n, size))


def predict(system, collective, prices, n, size):
    return min(price(system, collective, prices[k], k, n, size) for k in range(3))


def solve_part(system, collective, protocol, samples):
    """Prices of the ranks' own work: calls that a link bounds say nothing of it."""
    bound = 0.75
    free = [x for x in samples if link_us(system, collective, protocol, *x[:2]) < bound * x[2]]
    # Relative errors: each row and its value divided by the value.
    rows = [[f / us for f in features(system, collective, protocol, n, s)] for n, s, us in free or samples]
    return solve(rows, [1.0] * len(rows))


def fit(system, collective, samples):
    sizes = sorted({s for _, s, _ in samples})
    best = None
    for low, high in itertools.combinations(range(1, len(sizes) - 1), 2):
        parts = (sizes[:low], sizes[low:high], sizes[high:])
        solved = [solve_part(system, collective, k, [x for x in samples if x[1] in parts[k]]) for k in range(3)]
        if None in solved:
            continue
        prices = []
        for k in range(3):
            last = max(features(system, collective, k, n, parts[k][-1])[2] for n, _, _ in samples)
            prices.append(solved[k] + ([last, solved[2][2] * WIRE[k]] if k < 2 else [float("inf"), 0.0]))
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


def peers_of(system, collective, ranks):
    """Peers that the host launches sends to one by one, in one group: NCCL's all-to-all is no kernel of its own."""
    return ranks - 1 if (system, collective) == ("nccl", "AlltoAll") else 1


def launched(us, cost, system, collective, ranks):
    """What a call takes that the host launches: longer than in a graph, and no less than the host takes to launch it."""
    more, least, peer = cost
    return max(us + more, least + peer * (peers_of(system, collective, ranks) - 1))


def launch_of(system, table, predicted):
    """What the host adds to a call, how long it takes at least, and for each further peer, µs: those that explain calls best."""
    ours = [(r, predicted(r)) for r in table if r[0] == system and r[3] == "eager"]

    def misses(cost, rows):
        return sum(abs(launched(us, cost, *r[:3]) / r[5] - 1) for r, us in rows)

    alone = [x for x in ours if peers_of(*x[0][:3]) == 1]
    grouped = [x for x in ours if peers_of(*x[0][:3]) > 1]
    tenths = [i / 10 for i in range(200)]
    more, least = min(((m, f) for m in tenths[:31] for f in tenths), key=lambda c: misses((*c, 0.0), alone))
    peer = min(tenths[:100], key=lambda p: misses((more, least, p), grouped))
    return more, least, peer


def report(table, predicted, launch):
    groups = {}
    for row in table:
        t = predicted(row)
        if row[3] == "eager":
            t = launched(t, launch[row[0]], *row[:3])
        groups.setdefault((row[0], row[3]), []).append((t / row[5] - 1, row[1], row[2], row[4]))
    for key, found in groups.items():
        worst = max(found, key=lambda f: abs(f[0]))
        over = sum(abs(f[0]) > 0.25 for f in found)
        print(f"# {key}: {len(found)} cells, median {statistics.median(abs(f[0]) for f in found):.1%}, worst {worst}, "
              f"{over} over 25 %")


def main():
    runs = {}
    with open(sys.argv[1], newline="", encoding="utf-8") as file:
        for r in csv.DictReader(file):
            if not r.get("case"):
                call = r["system"], r["collective"], int(r["ranks"]), r["mode"], int(r["bytes"])
                runs.setdefault(call, []).append(float(r["us"]))
    table = [(*call, statistics.median(us)) for call, us in runs.items()]
    fitted = {}
    for system, collective in dict.fromkeys((r[0], r[1]) for r in table):
        mine = [r for r in table if r[:2] == (system, collective)]
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
    for system, (more, least, peer) in launch.items():
        print(f"launch {system} more_us {more:.1f} least_us {least:.1f}" + (f" peer_us {peer:.1f}" if peer else ""))
    for (system, collective), of_ranks in fitted.items():
        for n, prices in of_ranks.items():
            for k, (fixed, hop, per_mb, upto, tail) in enumerate(prices):
                priced = "Send" if collective == "SendRecv" else collective
                end = f" upto_bytes {upto * 1e6:.0f} tail_gb_s {1e3 / tail:.4g}" if k < 2 else ""
                print(f"call {system} {priced} {algorithm(system, collective, k)} {PROTOCOLS[k]} ranks {n} "
                      f"fixed_us {fixed:.2f} hop_us {hop:.2f} gb_s {1e3 / per_mb:.4g}{end}")
    report(table, predicted, launch)


main()
