"""The run as one HTML page that needs nothing else: plots as inline SVG, readable on a phone, light and dark."""

import dataclasses
import html
import math

import figures
from figures import size_text, time_text

# Told apart by colour, dash and marker; ours are the thick ones.
STYLES = {
    "tutti": ("#2f7de1", "", 2.6),
    "tutti-shared": ("#12a37a", "", 2.6),
    "openmpi": ("#e4572e", "", 1.4),
    "openmpi-ucx": ("#e0a100", "5 2", 1.4),
    "mpich": ("#9556d6", "2 2", 1.4),
    "gloo": ("#8a8f98", "7 2 1 2", 1.4),
    "openmpi-sm": ("#c9a227", "2 3", 1.4),
    "openmpi-han": ("#8d6e63", "2 3", 1.4),
    "openmpi-adapt": ("#7e57c2", "2 3", 1.4),
    "openmpi-nocma": ("#78909c", "2 3", 1.4),
    "bare": ("#4a6fa5", "1 3", 1.8),
    "bare-shared": ("#3f8f78", "1 3", 1.8),
}
WIDTH, LEFT, RIGHT, TOP = 360, 46, 8, 8
TIME_HEIGHT, RATIO_HEIGHT, BOTTOM = 220, 120, 26

CSS = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5c6570; --line: #d9dee4; --page: #fff; --card: #f7f8fa;
  --good: #0a7d54; --bad: #c0341d; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --soft: #9aa4af; --line: #333a43; --page: #14171b;
  --card: #1c2026; --good: #4fce9e; --bad: #ff8a70; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 16px; max-width: 1240px; background: var(--page); color: var(--ink);
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.35rem; margin: 0 0 4px; } h2 { font-size: 1.1rem; margin: 28px 0 8px; }
h3 { font-size: 1rem; margin: 0 0 4px; }
p, li { max-width: 75ch; } .soft { color: var(--soft); } code { overflow-wrap: anywhere; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 340px), 1fr)); gap: 14px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px; min-width: 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: 2px 8px; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child, td.text, th.text { text-align: left; }
@media (max-width: 480px) { th, td { padding: 2px 5px; } }
.good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; }
.key { display: flex; flex-wrap: wrap; gap: 4px 16px; padding: 0; margin: 8px 0; list-style: none; font-size: 13px; }
.key svg { vertical-align: middle; margin-right: 6px; }
svg.plot { display: block; width: 100%; height: auto; } svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
.grid { stroke: var(--line); stroke-width: 1; } .one { stroke: var(--ink); stroke-width: 1; }
caption, figcaption { font-size: 12px; color: var(--soft); }
figure { margin: 0; } td.case { white-space: normal; min-width: 9em; }
summary { cursor: pointer; color: var(--soft); font-size: 13px; margin-top: 4px; }
"""


FLOOR_TITLES = {"bare": "bare: the transfer alone, its best form", "bare-shared": "bare, shared buffers"}


def show_floors(summary):
    """With the floors among the times, instead of the forms that they are the best of."""
    times = {key: time for key, time in summary.times.items() if not figures.is_bare(key)}
    return dataclasses.replace(summary, times=times | {floor.name: floor.us for floor in summary.floors.values()})


def render(data):
    summaries = [show_floors(figures.summarize(cell)) for cell in data["cells"]]
    data = data | {"titles": data["titles"] | FLOOR_TITLES}
    shown = [key for key in data["titles"] if any(key in s.times for s in summaries)]
    parts = [head(data), warning(summaries), targets(summaries), opponents(summaries), key_list(data, shown)]
    for ranks in sorted({s.cell["ranks"] for s in summaries}):
        parts.append(f'<h2>{ranks} ranks</h2><div class="cards">')
        for collective in figures.COLLECTIVES:
            group = [s for s in summaries if s.cell["ranks"] == ranks and s.cell["collective"] == collective]
            if group:
                parts.append(card(data, shown, collective, group))
        parts.append("</div>")
    parts.append(behind(data, summaries))
    parts.append(over_floor(data, summaries))
    parts.append(method(data, summaries))
    title = f"Collectives of CPU ranks, {data['date'][:10]}"
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{CSS}</style>\n</head>\n<body>\n'
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def head(data):
    machine = data["machine"]
    return (
        "<h1>tutti and its peers: collectives of CPU ranks</h1>"
        f'<p class="soft">{data["date"][:16].replace("T", " ")} · {machine["cores"]} cores of {escape(machine["cpu"])} · '
        f'{escape(machine["system"])}, Linux {escape(machine["kernel"])} · '
        f'load {machine["load_at_start"]:.1f} before, {machine["load_at_end"]:.1f} after</p>'
    )


def warning(summaries):
    noisy = sum(s.is_noisy for s in summaries)
    if 2 * noisy <= len(summaries):
        return ""
    return (
        f'<p class="bad">The machine was busy with other work: in {noisy} of {len(summaries)} cells most rounds were '
        "disturbed. Single figures may be off by factors.</p>"
    )


def opponents(summaries):
    rows = [
        f'<tr><td class="case">{target.name}</td><td>{figures.geometric_mean([ratio for ratio, _ in pairs]):.2f}</td>'
        f"<td>{sum(ratio > 1 for ratio, _ in pairs)} of {len(pairs)}</td></tr>"
        for target, pairs in figures.beside_opponents(summaries)
    ]
    if not rows:
        return ""
    return (
        "<h2>Beside stronger opponents elsewhere</h2>"
        f'<p class="soft">Ours here to what the fastest of libraries that no package brings took on {escape(figures.elsewhere()[0])}: '
        "no ratio of one run. The tables' last column has their times.</p>"
        '<div class="scroll"><table><tr><th>case</th><th>mean</th><th>ours slower</th></tr>' + "".join(rows) + "</table></div>"
    )


def targets(summaries):
    verdicts = figures.judge(summaries)
    has_floor = any(verdict.floor_mean is not None for verdict in verdicts)
    rows = []
    for verdict in verdicts:
        target, missing = verdict.target, verdict.missing
        mark = ("good", "met") if verdict.is_met else ("bad", "missed")
        cells = f'<span class="{"bad" if missing else "good"}">{verdict.count - len(missing)} of {verdict.count}</span>'
        row = (
            f'<td class="case">{target.name}</td><td>{verdict.mean:.2f}</td>'
            f'<td class="{mark[0]}">{target.mean:.2f} {mark[1]}</td><td>{cells} ≤ {target.cell:.2f}</td>'
        )
        if has_floor:
            row += f"<td>{ratio_text(verdict.floor_mean)}</td><td>{ratio_text(verdict.over_floor)}</td>"
        rows.append(f"<tr>{row}</tr>")
    floor_note = (
        " The floor is the transfer alone, by processes that check, plan and match nothing." if has_floor else ""
    )
    floor_heads = "<th>floor's mean</th><th>ours over the floor</th>" if has_floor else ""
    return (
        "<h2>Time relative to the best peer of each cell</h2>"
        f'<p class="soft">Geometric means of the cells\' ratios; below 1 is faster than every peer.{floor_note}</p>'
        f'<div class="scroll"><table><tr><th>case</th><th>mean</th><th>wanted</th><th>cells</th>{floor_heads}</tr>'
        + "".join(rows)
        + "</table></div>"
    )


def ratio_text(ratio):
    return "–" if ratio is None else f"{ratio:.2f}"


def key_list(data, shown):
    items = []
    for key in shown:
        line = f'<svg width="34" height="12">{stroke(key, "M1 6 H33")}{marker(key, 17, 6)}</svg>'
        items.append(f"<li>{line}{escape(data['titles'][key])}</li>")
    return f'<ul class="key">{"".join(items)}</ul>'


def card(data, shown, collective, group):
    return (
        f'<div class="card"><h3>{collective}</h3>{time_plot(data, shown, group)}{ratio_plot(data, shown, group)}'
        f"<details><summary>figures</summary>{table(shown, group)}</details></div>"
    )


# ---- plots ----------------------------------------------------------------------------------------------------------


class Scale:
    """A logarithmic axis from values to pixels."""

    def __init__(self, low, high, start, end):
        self.low, self.start = math.log(low), start
        span = math.log(high) - self.low
        self.factor = (end - start) / span if span else 0

    def __call__(self, value):
        return self.start + (math.log(value) - self.low) * self.factor


def stroke(key, path):
    colour, dash, width = STYLES[key]
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}/>'


def marker(key, x, y, tip=""):
    colour = STYLES[key][0]
    title = f"<title>{escape(tip)}</title>" if tip else ""
    if key in figures.OURS:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" fill="{colour}">{title}</circle>'
    return f'<rect x="{x - 2:.1f}" y="{y - 2:.1f}" width="4" height="4" fill="{colour}">{title}</rect>'


def curve(key, points):
    """`points`: (x, y, tip)."""
    path = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y, _ in points)
    return (stroke(key, path) if len(points) > 1 else "") + "".join(marker(key, x, y, tip) for x, y, tip in points)


def size_axis(group):
    sizes = sorted({s.cell["bytes"] for s in group})
    return sizes, Scale(sizes[0], max(sizes[-1], sizes[0] + 1), LEFT + 8, WIDTH - RIGHT - 8)


def size_labels(sizes, x, bottom, baseline):
    """As many as fit: each takes some 44 pixels."""
    parts, free = [], 0
    for size in sizes:
        parts.append(f'<line class="grid" x1="{x(size):.1f}" x2="{x(size):.1f}" y1="{TOP}" y2="{bottom}"/>')
        if x(size) >= free:
            parts.append(
                f'<text x="{x(size):.1f}" y="{baseline}" text-anchor="middle">{size_text(size)}</text>'
            )
            free = x(size) + 44
    return parts


def time_plot(data, shown, group):
    times = [time for s in group for time in s.times.values()]
    sizes, x = size_axis(group)
    bottom = TIME_HEIGHT - BOTTOM
    low, high = 10 ** math.floor(math.log10(min(times))), 10 ** math.ceil(math.log10(max(times) * 1.001))
    y = Scale(low, high, bottom, TOP)
    parts = size_labels(sizes, x, bottom, TIME_HEIGHT - 8)
    power = low
    while power <= high * 1.001:
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(power):.1f}" y2="{y(power):.1f}"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{y(power) + 4:.1f}" text-anchor="end">{power_text(power)}</text>')
        power *= 10
    for key in reversed(shown_last(shown)):
        points = [
            (x(s.cell["bytes"]), y(s.times[key]), tip(data, key, s, f"{time_text(s.times[key])} µs"))
            for s in group
            if key in s.times
        ]
        parts.append(curve(key, points) if points else "")
    return svg(TIME_HEIGHT, parts, "time of a call")


def ratio_plot(data, shown, group):
    ratios = [ratio for s in group for ratio in s.ratios.values()]
    if not ratios:
        return ""
    ratios += [floor.to_best for s in group for floor in s.floors.values() if floor.to_best is not None]
    sizes, x = size_axis(group)
    bottom = RATIO_HEIGHT - BOTTOM
    low, high = min(0.25, *ratios, 1), max(2, *ratios)
    y = Scale(low / 1.1, high * 1.1, bottom, TOP)
    parts = size_labels(sizes, x, bottom, RATIO_HEIGHT - 8)
    for level in [2.0**power for power in range(-6, 11)]:
        if low / 1.1 <= level <= high * 1.1:
            kind = "one" if level == 1 else "grid"
            parts.append(f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(level):.1f}" y2="{y(level):.1f}"/>')
            if level in (0.0625, 0.25, 1, 4, 16, 64, 256):
                parts.append(f'<text x="{LEFT - 5}" y="{y(level) + 4:.1f}" text-anchor="end">×{level:.3g}</text>')
    for key in (key for key in figures.OURS if key in shown):
        points = [
            (x(s.cell["bytes"]), y(s.ratios[key]), tip(data, key, s, f"{s.ratios[key]:.2f} of {data['titles'][s.best]}"))
            for s in group
            if key in s.ratios
        ]
        parts.append(curve(key, points) if points else "")
    parts += floor_curves(data, group, x, y)
    return svg(RATIO_HEIGHT, parts, "relative to the best peer of the cell")


def floor_curves(data, group, x, y):
    """Of each floor, its ratio to the best peer."""
    parts = []
    for ours, (name, _) in figures.FLOORS.items():
        points = [
            (x(s.cell["bytes"]), y(ratio), tip(data, name, s, f"{ratio:.2f} of {data['titles'][s.best]}"))
            for s in group
            if ours in s.floors and (ratio := s.floors[ours].to_best) is not None
        ]
        parts.append(curve(name, points) if points else "")
    return parts


def shown_last(shown):
    """Ours first, so that drawn in reverse they lie on top."""
    return [key for key in shown if key in figures.OURS] + [key for key in shown if key not in figures.OURS]


def svg(height, parts, label):
    return (
        f"<figure><figcaption>{label}</figcaption>"
        f'<svg class="plot" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">{"".join(parts)}</svg></figure>'
    )


def power_text(us):
    if us >= 1e6:
        return f"{us / 1e6:.0f} s"
    if us >= 1e3:
        return f"{us / 1e3:.0f} ms"
    return f"{us:g} µs"


def tip(data, key, summary, text):
    return f"{data['titles'][key]}, {size_text(summary.cell['bytes'])}: {text}{' (noisy)' if summary.is_noisy else ''}"


# ---- tables ---------------------------------------------------------------------------------------------------------


def table(shown, group):
    keys = [key for key in shown if any(key in s.times for s in group)]
    ours = [key for key in figures.OURS if key in keys]
    floors = [(key, name) for key, (name, _) in figures.FLOORS.items() if name in keys]
    names = keys + [f"{key} / best" for key in ours]
    for key, name in floors:
        names += [f"{name} / best", f"{key} / {name}"]
    names.append("elsewhere")
    rows = [f"<tr><th>size</th>{''.join(f'<th>{name}</th>' for name in names)}</tr>"]
    for s in group:
        forms = {floor.name: f" {floor.form}" for floor in s.floors.values()}
        cells = [f"<td>{size_text(s.cell['bytes'])}{' ~' if s.is_noisy else ''}</td>"]
        for key in keys:
            text = time_text(s.times[key]) + forms.get(key, "") if key in s.times else "–"
            cells.append(f"<td>{f'<b>{text}</b>' if key == s.best else text}</td>")
        for key in ours:
            ratio = s.ratios.get(key)
            kind = "" if ratio is None else ' class="good"' if ratio <= 1 else ' class="bad"'
            cells.append(f"<td{kind}>{ratio_text(ratio)}</td>")
        for key, _ in floors:
            floor = s.floors.get(key)
            cells += [f"<td>{ratio_text(ratio)}</td>" for ratio in ((floor.to_best, floor.over) if floor else (None, None))]
        cells.append(f"<td>{figures.opponent_text(s.cell) or '–'}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return f'<div class="scroll"><table>{"".join(rows)}</table></div>'


def behind(data, summaries):
    found = figures.behind(summaries)
    if not found:
        return "<h2>Cells behind a peer</h2><p>None.</p>"
    rows = []
    for ratio, key, s in found:
        best = data["titles"][s.best]
        rows.append(
            f'<tr><td>{s.cell["collective"]}</td><td>{s.cell["ranks"]}</td><td>{size_text(s.cell["bytes"])}</td>'
            f'<td class="text">{escape(data["titles"][key])}</td><td class="bad">{ratio:.2f}</td>'
            f"<td>{time_text(s.times[key])}</td><td>{time_text(s.times[s.best])}</td>"
            f'<td class="text">{escape(best)}{" ~" if s.is_noisy else ""}</td></tr>'
        )
    return (
        f"<h2>Cells behind a peer: {len(found)}</h2><details><summary>worst first</summary>"
        '<div class="scroll"><table><tr><th>collective</th><th>ranks</th>'
        '<th>size</th><th class="text">ours</th><th>ratio</th><th>µs</th><th>peer µs</th><th class="text">best peer</th></tr>'
        + "".join(rows)
        + "</table></div></details>"
    )


def over_floor(data, summaries):
    if not any(s.floors for s in summaries):
        return ""
    found = figures.far_over_floor(summaries)
    rows = []
    for ratio, key, s in found:
        floor = s.floors[key]
        rows.append(
            f'<tr><td>{s.cell["collective"]}</td><td>{s.cell["ranks"]}</td><td>{size_text(s.cell["bytes"])}</td>'
            f'<td class="text">{escape(data["titles"][key])}</td><td>{ratio:.2f}</td><td>{time_text(s.times[key])}</td>'
            f'<td>{time_text(floor.us)}</td><td class="text">{floor.form}{" ~" if s.is_noisy else ""}</td></tr>'
        )
    return (
        f"<h2>Cells over {figures.FAR_OVER_FLOOR} of the floor: {len(found)}</h2>"
        '<details><summary>worst first</summary><div class="scroll"><table><tr><th>collective</th><th>ranks</th>'
        '<th>size</th><th class="text">ours</th><th>ratio</th><th>µs</th><th>floor µs</th><th class="text">form</th></tr>'
        + "".join(rows)
        + "</table></div></details>"
    )


def method(data, summaries):
    settings = data["settings"]
    noisy = sum(s.is_noisy for s in summaries)
    items = [f"<li>{escape(data['titles'][key])}: {escape(text)}</li>" for key, text in data["versions"].items()]
    items += [f"<li>not measured: {escape(key)}: {escape(reason)}</li>" for key, reason in data["skipped"].items()]
    return (
        "<h2>How it was measured</h2>"
        f"<p>{settings['rounds']} rounds a cell; in each, every library is measured once for {settings['seconds_per_cell']} s "
        "or three calls, one after the other, while the others sleep. Ranks are processes, pinned while there is a core for "
        f"each;{figures.wire_text(data)} a time is the mean of a call, of the slowest rank, and of the rounds the median; a "
        "ratio is the median of the rounds' ratios to the best peer of the cell. float, sum; random whole numbers; results are checked after the "
        "timing. Bytes are those of the vector that a rank reduces or broadcasts, or of the whole gathered, scattered or "
        "exchanged vector; a ping-pong is a round trip.</p>"
        f"<p>A round in which other processes took over {figures.OTHER_CPU_LIMIT:.0%} of a core, or steal was over "
        f"{figures.STEAL_LIMIT:.0%}, is left out where most rounds of its cell are quiet; {noisy} of {len(summaries)} cells "
        "are too noisy for that, and marked ~.</p>"
        f"<p>Commit {escape(data['commit'])}: <code>{escape(data['command'])}</code></p><ul>{''.join(items)}</ul>"
    )


def escape(text):
    return html.escape(str(text))
