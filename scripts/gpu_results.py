#!/usr/bin/env python3
"""Gathers what a run of scripts/gpu_check.sh is worth keeping for: of its folder of logs a folder of results, which can be
committed below docs/results as it is: no logs, no paths, no names of hosts.

    scripts/gpu_results.py build/cuda/gpu_check build/cuda/gpu_check/results --build build/cuda

Writes summary.json (machine, GPUs, driver, versions, settings, each part and step with seconds and verdict, each time with
NCCL's and the ratio where NCCL was there), index.html (the same to read, with the picture), and copies times.csv, times.svg,
kernels.csv, kernels.svg. Takes what there is: a part that failed or was never begun leaves a gap, no error.
"""
import argparse
import csv
import datetime
import html
import importlib.metadata
import json
import math
import os
import pathlib
import platform
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEPT = ("times.csv", "times.svg", "kernels.csv", "kernels.svg")
SETTINGS = re.compile(r"^(NCCL|TUTTI|CUDA|TORCH_NCCL)_")
# Names of places on the machine, and of its network.
PRIVATE = re.compile(r"/|^(NCCL_SOCKET_IFNAME|NCCL_HOSTID|NCCL_COMM_ID)=")
TIMED_OUT = (124, 137)
STYLE = ("body{font:14px system-ui,sans-serif;margin:24px;max-width:1100px}table{border-collapse:collapse;margin:8px 0 20px}"
         "td,th{border:1px solid #ccc;padding:2px 8px;text-align:right}td:first-child,th:first-child{text-align:left}"
         ".failed{color:#b5302b}.skipped{color:#777}svg{max-width:100%;height:auto}")


# ---- what there is

def read_text(path):
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def read_json(path):
    """None where it is missing, or was being written when the run ended."""
    try:
        return json.loads(read_text(path))
    except ValueError:
        return None


def lines_of(path):
    """Objects, one a line; a line that was cut off is left out."""
    found = []
    for line in read_text(path).splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def output_of(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def first_match(path, name):
    for line in read_text(pathlib.Path(path)).splitlines():
        if line.startswith(name):
            return re.split("[:=]", line, maxsplit=1)[-1].strip().strip('"')
    return "unknown"


def describe_machine():
    return {"cpu": first_match("/proc/cpuinfo", "model name"), "cpus": len(os.sched_getaffinity(0)),
            "memory": first_match("/proc/meminfo", "MemTotal"), "kernel": platform.release(),
            "system": first_match("/etc/os-release", "PRETTY_NAME")}


def describe_gpus(logs):
    """One entry a kind of GPU, as nvidia-smi tells them."""
    gpus = {}
    for row in csv.reader(read_text(logs / "gpus.csv").splitlines(), skipinitialspace=True):
        if len(row) == 4:
            gpus[tuple(row)] = gpus.get(tuple(row), 0) + 1
    return [{"count": count, "name": name, "memory": memory, "compute_capability": capability, "driver": driver}
            for (name, memory, capability, driver), count in gpus.items()]


def cached(build, name):
    """Of CMake's cache."""
    return first_match(build / "CMakeCache.txt", name + ":").rsplit("=", 1)[-1]


def package_version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def nccl_name(code):
    """22809: 2.28.9."""
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"


def describe_versions(build, benches):
    nvcc = re.search(r"V[\d.]+", output_of(cached(build, "CUDAToolkit_NVCC_EXECUTABLE"), "--version"))
    told = json.loads(output_of(str(build / "bin/tutti"), "version", "--json") or "{}")
    peer = next((bench["versions"]["peer_nccl_library"] for bench in benches
                 if "peer_nccl_library" in bench["versions"]), None)
    found = {"tutti": told.get("tutti"), "nccl_interface": told.get("nccl_interface"), "compiler": told.get("compiler"),
             "nccl": nccl_name(peer) if peer else None, "nvcc": nvcc[0] if nvcc else None,
             "architectures": cached(build, "TUTTI_GPU_ARCHITECTURES"), "torch": package_version("torch"),
             "cupy": next(filter(None, map(package_version, ("cupy", "cupy-cuda13x", "cupy-cuda12x"))), None)}
    return {name: value for name, value in found.items() if value not in (None, "unknown")}


def settings():
    return {name: value for name, value in sorted(os.environ.items())
            if SETTINGS.match(name) and not PRIVATE.search(f"{name}={value}")}


def describe_step(told):
    step = {"part": told.get("part", ""), "step": told["step"]}
    if "skipped" in told:
        return step | {"verdict": "skipped", "why": told["skipped"]}
    step |= {"verdict": "failed" if told["exit"] else "passed", "seconds": told["ms"] / 1000}
    if told["exit"]:
        step["why"] = "no end within its time" if told["exit"] in TIMED_OUT else f"exit code {told['exit']}"
    return step


def describe_parts(steps, asked):
    """Those asked for of which no step is known did not run."""
    parts = {}
    for name in dict.fromkeys([step["part"] for step in steps] + asked):
        own = [step for step in steps if step["part"] == name]
        count = {verdict: sum(step["verdict"] == verdict for step in own) for verdict in ("passed", "failed", "skipped")}
        verdict = next((kind for kind in ("failed", "passed", "skipped") if count[kind]), "not run")
        parts[name] = {"verdict": verdict, **count, "seconds": round(sum(step.get("seconds", 0) for step in own), 3)}
    return parts


def kernel_cells(logs):
    """Of gpu_kernels_bench: graphs and eager launches."""
    cells = []
    for line in lines_of(logs / "kernels.json"):
        for mode, ours, theirs in (("graph", "graph", "nccl_graph"), ("eager", "eager", "nccl_eager")):
            if line[ours] <= 0:
                continue
            cell = {"collective": line["op"], "ranks": line["ranks"], "mode": mode, "bytes": line["bytes"], "us": line[ours]}
            if line[theirs] > 0:
                cell |= {"nccl_us": line[theirs], "ratio": round(line[theirs] / line[ours], 4)}
            cells.append(cell)
    return cells


def mean_ratios(cells):
    """Of each number of ranks, mode and collective the geometric mean, the lowest, and how many."""
    rows = {}
    for cell in cells:
        if "ratio" in cell:
            rows.setdefault((cell["ranks"], cell["mode"], cell["collective"]), []).append(cell["ratio"])
    return [{"ranks": ranks, "mode": mode, "collective": collective, "cells": len(ratios), "lowest": min(ratios),
             "mean": round(math.exp(sum(map(math.log, ratios)) / len(ratios)), 4)}
            for (ranks, mode, collective), ratios in rows.items()]


def describe_suites(logs):
    """PyTorch's own tests with each library: how many of each outcome."""
    suites = {}
    for library in ("nccl", "tutti"):
        outcomes = read_json(logs / f"suite-{library}.json")
        if outcomes:
            kinds = [told[0] for told in outcomes.values()]
            suites[library] = {kind: kinds.count(kind) for kind in sorted(set(kinds))}
    return suites


def describe_lifecycles(logs):
    found = {}
    for path in sorted(logs.glob("lifecycle-*.json")):
        figures = read_json(path)
        if figures:
            found[path.stem.split("-")[1]] = dict(zip(("tutti", "nccl"), figures))
    return found


def summarise(options):
    benches = [bench for bench in map(read_json, sorted(options.logs.glob("times-*.json"))) if bench]
    steps = [describe_step(told) for told in lines_of(options.logs / "steps.json")]
    cells = [cell for bench in benches for cell in bench["cells"]]
    kernels = kernel_cells(options.logs)
    commit = output_of("git", "-C", str(ROOT), "describe", "--always", "--dirty")
    return {
        "schema": 1, "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": " ".join(["scripts/gpu_check.sh BUILD LOGS", *options.parts]), "seconds": options.seconds,
        "commit": commit or "unknown", "machine": describe_machine(), "gpus": describe_gpus(options.logs),
        "versions": describe_versions(options.build, benches), "settings": settings(),
        "parts": describe_parts(steps, options.parts), "steps": steps,
        "bench_failures": [failure for bench in benches for failure in bench["failures"]],
        "ratios": mean_ratios(cells), "cells": cells, "kernels": kernels, "lifecycle": describe_lifecycles(options.logs),
        "torch_suite": describe_suites(options.logs)}


# ---- the page

def table(head, rows):
    text = "<table><tr>" + "".join(f"<th>{html.escape(str(cell))}</th>" for cell in head) + "</tr>\n"
    for kind, row in rows:
        text += f'<tr class="{kind}">' + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>\n"
    return text + "</table>\n"


def size_text(size):
    for unit, name in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size >= unit:
            return f"{size / unit:.4g}{name}"
    return str(size)


def cell_tables(cells):
    """A table for each number of ranks and mode: microseconds, and the ratio in brackets."""
    groups = {}
    for cell in cells:
        groups.setdefault((cell["ranks"], cell["mode"]), {}).setdefault(cell["collective"], {})[cell["bytes"]] = cell
    text = ""
    for (ranks, mode), lines in groups.items():
        sizes = sorted({size for line in lines.values() for size in line})
        rows = []
        for collective, line in lines.items():
            shown = [f"{line[size]['us']:.4g}" + (f" ({line[size]['ratio']:.2f})" if "ratio" in line[size] else "")
                     if size in line else "" for size in sizes]
            rows.append(("", [collective, *shown]))
        text += f"<h3>{ranks} ranks, {html.escape(mode)}</h3>\n" + table(["", *map(size_text, sizes)], rows)
    return text


def page(summary, folder):
    gpus = ", ".join(f"{gpu['count']} {gpu['name']} ({gpu['memory']}, driver {gpu['driver']})" for gpu in summary["gpus"])
    machine = summary["machine"]
    facts = [("GPUs", gpus or "unknown"), ("machine", f"{machine['cpus']} CPUs of {machine['cpu']}, {machine['memory']}, {machine['system']}"),
             ("versions", ", ".join(f"{name} {value}" for name, value in summary["versions"].items())),
             ("commit", summary["commit"]), ("command", summary["command"]), ("seconds", summary["seconds"]),
             ("settings", " ".join(f"{name}={value}" for name, value in summary["settings"].items()) or "none")]
    text = "".join(f"<p><b>{name}</b>: {html.escape(str(value))}</p>\n" for name, value in facts)
    text += "<h2>Parts</h2>\n" + table(["part", "verdict", "passed", "failed", "skipped", "seconds"], [
        (part["verdict"], [name, part["verdict"], part["passed"], part["failed"], part["skipped"], part["seconds"]])
        for name, part in summary["parts"].items()])
    told = [step for step in summary["steps"] if step["verdict"] != "passed"]
    if told:
        text += "<h2>Steps that failed or were skipped</h2>\n" + table(["step", "part", "verdict", "why"], [
            (step["verdict"], [step["step"], step["part"], step["verdict"], step["why"]]) for step in told])
    for title, name in (("cells", "times"), ("kernels", "kernels")):
        if summary[title]:
            text += f"<h2>{'The library' if title == 'cells' else 'Kernels alone'}: microseconds (NCCL's over ours)</h2>\n"
            text += read_text(folder / f"{name}.svg") + cell_tables(summary[title])
    for ranks, libraries in summary["lifecycle"].items():
        text += f"<h2>Life of a communicator of {ranks} ranks</h2>\n" + table(["", *libraries], [
            ("", [name, *(f"{figures.get(name, math.nan):.1f}" for figures in libraries.values())]) for name in libraries["tutti"]])
    if summary["torch_suite"]:
        text += "<h2>PyTorch's own tests</h2>\n" + table(["library", "outcomes"], [
            ("", [library, ", ".join(f"{count} {kind}" for kind, count in kinds.items())])
            for library, kinds in summary["torch_suite"].items()])
    title = f"GPU ranks, {summary['date'][:10]}"
    return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style></head>\n'
            f"<body><h1>{title}</h1>\n{text}</body></html>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", type=pathlib.Path, help="the folder of logs")
    parser.add_argument("folder", type=pathlib.Path, help="the folder of results")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/cuda"))
    parser.add_argument("--seconds", type=float, default=0, help="that the run took")
    parser.add_argument("--parts", type=str.split, default=[], help="those asked for, in one text")
    options = parser.parse_args()
    summary = summarise(options)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        (options.folder / name).unlink(missing_ok=True)  # of an earlier run
        if (options.logs / name).exists():
            shutil.copyfile(options.logs / name, options.folder / name)
    (options.folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    (options.folder / "index.html").write_text(page(summary, options.folder), encoding="utf-8")
    failed = sum(step["verdict"] == "failed" for step in summary["steps"])
    print(f"results: {options.folder}: {len(summary['steps'])} steps, {failed} failed, "
          f"{len(summary['cells']) + len(summary['kernels'])} times, {sum('ratio' in cell for cell in summary['cells'])} beside NCCL")


if __name__ == "__main__":
    main()
