"""The run as text: what was measured where, the targets, the cells behind a peer, the tables."""

import figures
from figures import size_text, time_text


def render(data):
    summaries = [figures.summarize(cell) for cell in data["cells"]]
    parts = [header(data), verdicts(summaries), behind(data, summaries), over_floor(data, summaries)]
    parts.append(opponents(summaries))
    for collective in figures.COLLECTIVES:
        for ranks in sorted({cell["ranks"] for cell in data["cells"]}):
            group = [s for s in summaries if s.cell["collective"] == collective and s.cell["ranks"] == ranks]
            if group:
                parts.append(table(data, collective, ranks, group))
    return "\n".join(part for part in parts if part)


def header(data):
    machine, settings = data["machine"], data["settings"]
    lines = [
        f"# {data['date']}, {data['seconds']:.0f} s, commit {data['commit']}",
        f"# {data['command']}",
        f"# {machine['cores']} cores of {machine['cpu']} (family/model {machine['cpu_family_model']}), "
        f"{machine['memory']}, Linux {machine['kernel']}, {machine['system']}; "
        f"load {machine['load_at_start']:.1f} before, {machine['load_at_end']:.1f} after",
        f"# {settings['rounds']} rounds in turns, {settings['seconds_per_cell']} s a cell; float, sum; ranks are processes, "
        f"pinned while there is a core for each;{figures.wire_text(data)}",
        "# time: mean of a call, of the slowest rank; median of the rounds. Ratio: median of the rounds' ratios to the "
        "best peer of the cell.",
        "# Bytes: of the vector a rank reduces or broadcasts; of the whole gathered, scattered or exchanged vector; a "
        "ping-pong is a round trip.",
    ]
    for key, version in data["versions"].items():
        lines.append(f"# {key}: {version}")
    for key, reason in data["skipped"].items():
        lines.append(f"# not measured: {key}: {reason}")
    return "\n".join(lines + [noise_line(data)]) + "\n"


def noise_line(data):
    rounds = [round_ for cell in data["cells"] for round_ in cell["rounds"]]
    noisy = sum(not figures.is_quiet(round_) for round_ in rounds)
    return (
        f"# noise: in {noisy} of {len(rounds)} rounds others took over {figures.OTHER_CPU_LIMIT:.0%} of a core, or steal "
        f"was over {figures.STEAL_LIMIT:.0%}; such a round is left out where most of its cell are quiet; ~ marks cells "
        "where they are not"
    )


def verdicts(summaries):
    lines = ["Targets (ratio of time to the best peer)"]
    for verdict in figures.judge(summaries):
        target = verdict.target
        mark = "met   " if verdict.is_met else "missed"
        line = (
            f"  {target.name:<50} geometric mean {verdict.mean:5.2f}  wanted {target.mean:.2f}  {mark}  "
            f"cells above {target.cell:.2f}: {len(verdict.missing)} of {verdict.count}"
        )
        if verdict.floor_mean is not None:
            line += f"  floor's mean {verdict.floor_mean:.2f}"
        if verdict.over_floor is not None:
            line += f"  ours over the floor {verdict.over_floor:.2f}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def cell_line(data, ratio, name, summary, against):
    """Of a list of cells: ours, and what it is held against."""
    cell = summary.cell
    return (
        f"  {ratio:6.2f}  {data['titles'][name]:<20} {cell['collective']:<15}{cell['ranks']} ranks  "
        f"{size_text(cell['bytes']):>7}  {time_text(summary.times[name]):>8} µs, {against} µs{'  ~' if summary.is_noisy else ''}"
    )


def behind(data, summaries):
    found = figures.behind(summaries)
    if not found:
        return "No cell is behind a peer.\n"
    lines = [f"Behind a peer: {len(found)} cells, worst first"]
    for ratio, name, summary in found:
        best = f"{data['titles'][summary.best]} {time_text(summary.times[summary.best])}"
        lines.append(cell_line(data, ratio, name, summary, best))
    return "\n".join(lines) + "\n"


def over_floor(data, summaries):
    if not any(s.floors for s in summaries):
        return ""
    found = figures.far_over_floor(summaries)
    lines = [f"Over {figures.FAR_OVER_FLOOR} of the floor, the transfer alone: {len(found)} cells, worst first"]
    for ratio, name, summary in found:
        floor = summary.floors[name]
        lines.append(cell_line(data, ratio, name, summary, f"{floor.name} ({floor.form}) {time_text(floor.us)}"))
    return "\n".join(lines) + "\n"


def opponents(summaries):
    found = figures.beside_opponents(summaries)
    if not found:
        return ""
    lines = [f"Beside stronger opponents elsewhere ({figures.elsewhere()[0]}): ours here to theirs there, no ratio of one run"]
    for target, pairs in found:
        slower = [
            f"{s.cell['collective']} {s.cell['ranks']} x {size_text(s.cell['bytes'])} {ratio:.2f}" for ratio, s in pairs if ratio > 1
        ]
        mean = figures.geometric_mean([ratio for ratio, _ in pairs])
        line = f"  {target.name:<50} geometric mean {mean:5.2f}  slower: {len(slower)} of {len(pairs)}"
        lines.append(line + (f": {', '.join(slower[:6])}{', …' if len(slower) > 6 else ''}" if slower else ""))
    return "\n".join(lines) + "\n"


def floor_texts(summary, ours):
    """Of each floor: its time and form, its ratio to the best peer, ours to it."""
    texts = []
    for key in ours:
        floor = summary.floors.get(key)
        texts.append(f"{time_text(floor.us)} {floor.form}" if floor else "-")
        for ratio in (floor.to_best, floor.over) if floor else (None, None):
            texts.append("-" if ratio is None else f"{ratio:.2f}")
    return texts


def table(data, collective, ranks, group):
    keys = [key for key in data["titles"] if any(key in s.times for s in group)]
    ours = [key for key in keys if key in figures.OURS]
    floored = [key for key in ours if any(key in s.floors for s in group)]
    names = [f"{key}" for key in keys] + [f"{key}/best" for key in ours]
    for key in floored:
        floor = figures.FLOORS[key][0]
        names += [floor, f"{floor}/best", f"{key}/{floor}"]
    names += ["best peer", "elsewhere"]
    widths = [max(len(name), 9) for name in names[:-1]] + [20]
    lines = [f"{collective}, {ranks} ranks (µs)"]
    lines.append("  " + f"{'size':>7} " + "".join(f"  {name:>{width}}" for name, width in zip(names, widths)))
    for summary in group:
        texts = [time_text(summary.times[key]) if key in summary.times else "-" for key in keys]
        texts += [f"{summary.ratios[key]:.2f}" if key in summary.ratios else "-" for key in ours]
        texts += floor_texts(summary, floored) + [summary.best or "-", figures.opponent_text(summary.cell) or "-"]
        wrong = [key for key, count in summary.cell["wrong"].items() if count]
        marks = ("~" if summary.is_noisy else " ") + (f"  WRONG: {', '.join(wrong)}" if wrong else "")
        columns = "".join(f"  {text:>{width}}" for text, width in zip(texts, widths))
        lines.append(f"  {size_text(summary.cell['bytes']):>7} {columns} {marks}".rstrip())
    for key in ours:
        ratios = [s.ratios[key] for s in group if key in s.ratios]
        if ratios:
            lines.append(f"  {key}: geometric mean {figures.geometric_mean(ratios):.2f}")
    return "\n".join(lines) + "\n"
