#!/usr/bin/env python3
"""Draws measured times of GPU ranks (a CSV of docs/results: system,collective,ranks,mode,bytes,us,run) as SVG: how many
times as long another system takes, or, where the CSV has none, microseconds. A panel for each number of ranks and mode, a
line for each collective.

    scripts/gpu_plot.py docs/results/2026-11-22-gpu4-measured.csv docs/results/2026-11-22-gpu4.svg
"""
import argparse
import csv
import math
import pathlib

COLOURS = {"AllReduce": "#1f5fa8", "AllGather": "#d1730c", "ReduceScatter": "#2a8a3a", "Broadcast": "#b5302b",
           "Reduce": "#7a4fa3", "AlltoAll": "#7d5a42", "SendRecv": "#c2529c"}
WIDTH, HEIGHT, MARGIN, LEGEND = 420, 250, 46, 50
RATIOS = (0.5, 0.7, 1, 1.4, 2, 2.8, 4)


def read(path, other):
    """{(ranks, mode): {collective: [(bytes, ratio)]}}, with microseconds in place of ratios where nothing is of the other; and whether so."""
    times = {}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = (int(row["ranks"]), row["mode"], row["collective"], int(row["bytes"]))
            times.setdefault(key, {})[row["system"]] = float(row["us"])
    is_alone = not any(other in both for both in times.values())
    panels = {}
    for (ranks, mode, collective, size), both in sorted(times.items()):
        if "tutti" in both and (is_alone or other in both):
            value = both["tutti"] if is_alone else both[other] / both["tutti"]
            panels.setdefault((ranks, mode), {}).setdefault(collective, []).append((size, value))
    return panels, is_alone


def decades(panels):
    """Powers of ten around all values."""
    values = [value for lines in panels.values() for points in lines.values() for _, value in points]
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def size_text(size):
    for unit, name in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size >= unit:
            return f"{size // unit}{name}"
    return str(size)


def draw_panel(title, lines, marks, left, top):
    least, most = marks[0], marks[-1]
    sizes = sorted({size for points in lines.values() for size, _ in points})
    first, last = math.log2(sizes[0]), math.log2(sizes[-1])

    def x(size):
        return left + MARGIN + (math.log2(size) - first) / max(last - first, 1) * (WIDTH - MARGIN - 16)

    def y(value):
        share = math.log2(min(max(value, least), most) / least) / math.log2(most / least)
        return top + HEIGHT - 30 - share * (HEIGHT - 60)

    parts = [f'<text x="{left + MARGIN}" y="{top + 18}" font-weight="bold">{title}</text>']
    for mark in marks:
        stroke = "#444" if mark == 1 else "#ddd"
        parts.append(f'<line x1="{x(sizes[0]):.1f}" y1="{y(mark):.1f}" x2="{x(sizes[-1]):.1f}" y2="{y(mark):.1f}" '
                     f'stroke="{stroke}"/><text x="{left + MARGIN - 6}" y="{y(mark) + 4:.1f}" '
                     f'text-anchor="end">{mark:g}</text>')
    parts += [f'<text x="{x(size):.1f}" y="{top + HEIGHT - 12}" text-anchor="middle">{size_text(size)}</text>'
              for size in sizes]
    for collective, points in lines.items():
        path = " ".join(f"{x(size):.1f},{y(value):.1f}" for size, value in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS.get(collective, "#000")}" '
                     'stroke-width="1.8"/>')
    return parts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv")
    parser.add_argument("svg")
    parser.add_argument("--other", default="nccl", help="the system to compare with")
    options = parser.parse_args()
    panels, is_alone = read(options.csv, options.other)
    if not panels:
        raise SystemExit(f"{options.csv}: no times")
    marks = decades(panels) if is_alone else RATIOS
    rows = math.ceil(len(panels) / 2)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * WIDTH}" height="{rows * HEIGHT + LEGEND}" '
             'font-family="sans-serif" font-size="11">', '<rect width="100%" height="100%" fill="#fff"/>']
    for i, (name, colour) in enumerate(COLOURS.items()):
        parts.append(f'<rect x="{MARGIN + i * 112}" y="10" width="12" height="12" fill="{colour}"/>'
                     f'<text x="{MARGIN + 16 + i * 112}" y="20">{name}</text>')
    other = "NCCL" if options.other == "nccl" else options.other
    head = "microseconds" if is_alone else f"{other}'s time over ours: above 1, ours is faster"
    parts.append(f'<text x="{MARGIN}" y="40">{head}</text>')
    for i, ((ranks, mode), lines) in enumerate(sorted(panels.items())):
        parts += draw_panel(f"{ranks} ranks, {mode}", lines, marks, i % 2 * WIDTH, LEGEND + i // 2 * HEIGHT)
    pathlib.Path(options.svg).write_text("\n".join(parts + ["</svg>"]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
