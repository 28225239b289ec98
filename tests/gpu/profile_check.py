#!/usr/bin/env python3
"""What profilers are told of GPU ranks whose calls are kernels: by a trace and by the tests' plug-in, in `tutti perf`.

    tests/gpu/profile_check.py BUILD [RANKS]

Each call has one run, which lies within it, whatever carries it; long calls run as long as perf says that they take; calls of
graphs have none; and without a profiler calls take what they took. Prints what stamps cost.
"""
import collections
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

LONG, SHORT = 64 << 20, 1 << 10
CALLS = 40
SECONDS = 120
# A run is a call's kernel and no more, perf's time has the stamps' in it, and both differ from call to call.
LEAST, MOST = 0.5, 1.3
KERNEL_CHANNEL, STOPPED = 64, 22
# What is traced: the operation, perf's options, settings.
WAYS = {"one call": ("all_reduce", [], {}), "copy engines": ("alltoall", ["-R", "2"], {"NCCL_CTA_POLICY": "2"}),
        "transfers": ("sendrecv", [], {}), "groups": ("all_reduce", ["-m", "8"], {})}
PROFILERS = ("TUTTI_TRACE_DIR", "NCCL_PROFILER_PLUGIN", "FAKE_PROFILER_FILE")


def perf(build, ranks, size, settings, *options, operation="all_reduce"):
    """The microseconds of a call, as perf says."""
    environment = {name: value for name, value in os.environ.items() if name not in PROFILERS}
    command = [build / "bin/tutti", "perf", operation, "-n", str(ranks), "-b", str(size), "-e", str(size), "-c", "0",
               "-J", "-", "-w", "5", *options]
    done = subprocess.run(command, env={**environment, **settings}, text=True, capture_output=True, timeout=SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"exit {done.returncode}: {(done.stdout + done.stderr)[-800:]}")
    table = json.loads(done.stdout[done.stdout.index("{"):])
    return min(table["results"][0][place]["time_us"] for place in ("out_of_place", "in_place"))


def bars_of(path):
    trace = json.loads(path.read_text())
    bars = collections.defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            bars[event["cat"]].append(event)
    # Those of one thread follow each other.
    return (trace["otherData"], *(sorted(bars[kind], key=lambda bar: (bar["tid"], bar["ts"])) for kind in ("call", "run")))


def look(path, took):
    """What is wrong with one rank's trace of calls that each have a run."""
    facts, calls, runs = bars_of(path)
    if facts["dropped_events"] != 0 or len(runs) != len(calls) or len(calls) < 2 * CALLS:
        return f"{len(runs)} runs of {len(calls)} calls, {facts['dropped_events']} dropped"
    if not all(call["args"]["ended"] for call in calls):
        return "calls without an end"
    outside = [run for run, call in zip(runs, calls)
               if run["ts"] < call["ts"] - 0.01 or run["ts"] + run["dur"] > call["ts"] + call["dur"] + 0.01]
    if outside:
        return f"{len(outside)} runs lie outside their calls"
    longest = max(call["args"]["bytes"] for call in calls)
    ran = statistics.median(run["dur"] for run, call in zip(runs, calls) if call["args"]["bytes"] == longest)
    print(f"{path.name}: {len(calls)} calls, of the longest a run takes {ran:.1f} us, perf {took or 0:.1f} us", flush=True)
    if took is not None and not LEAST <= ran / took <= MOST:
        return f"runs of {LONG >> 20} MB take {ran:.1f} us, perf says {took:.1f}"
    return None


def check_trace(build, ranks, way):
    operation, options, settings = WAYS[way]
    with tempfile.TemporaryDirectory() as folder:
        took = perf(build, ranks, LONG, {**settings, "TUTTI_TRACE_DIR": folder}, "--iters", str(CALLS), *options,
                    operation=operation)
        paths = sorted(pathlib.Path(folder).glob("trace-*.json"))
        if len(paths) != ranks:
            return f"{len(paths)} traces of {ranks} ranks"
        for path in paths:
            if failure := look(path, None if way == "groups" else took):
                return f"{path.name}: {failure}"
    return None


def check_graphs(build, ranks):
    with tempfile.TemporaryDirectory() as folder:
        perf(build, ranks, SHORT, {"TUTTI_TRACE_DIR": folder}, "--iters", str(CALLS), "-G", "5")
        for path in pathlib.Path(folder).glob("trace-*.json"):
            _, calls, runs = bars_of(path)
            if len(calls) < CALLS or len(calls) - len(runs) < CALLS or not all(call["args"]["ended"] for call in calls):
                return f"{path.name}: {len(runs)} runs of {len(calls)} calls, {CALLS} or more of which are captured"
    return None


def check_plugin(build, ranks):
    plugin = build / "lib/libnccl-profiler-fake5.so"
    with tempfile.TemporaryDirectory() as folder:
        told = pathlib.Path(folder, "told")
        perf(build, ranks, SHORT, {"NCCL_PROFILER_PLUGIN": str(plugin), "FAKE_PROFILER_FILE": str(told)}, "--iters",
             str(CALLS))
        for rank in range(ranks):
            lines = [line.split() for line in pathlib.Path(f"{told}.{rank}").read_text().splitlines()]
            runs = {line[1] for line in lines if line[0] == "start" and line[3] == str(KERNEL_CHANNEL)}
            timed = {line[1] for line in lines if line[0] == "state" and line[3] == str(STOPPED) and int(line[5]) > 0}
            begun = collections.Counter(line[1] for line in lines if line[0] == "start")
            ended = collections.Counter(line[1] for line in lines if line[0] == "stop")
            strange = [line for line in lines if line[0] in ("late", "twice")]
            if len(runs) < 2 * CALLS or runs != timed or begun != ended or strange or lines[-1] != ["finalize"]:
                return (f"rank {rank}: {len(runs)} runs, {len(timed)} with a time, {len(begun)} events, {len(ended)} ended, "
                        f"{len(strange)} strange lines")
    return None


def check_cost(build, ranks):
    """Times differ by some percent from run to run, so only what is far off is an error."""
    failure = None
    for size in (SHORT, LONG):
        rounds = collections.defaultdict(list)
        for _ in range(3):
            with tempfile.TemporaryDirectory() as folder:
                for name, settings in (("none", {}), ("off", {"NCCL_PROFILER_PLUGIN": "none"}),
                                       ("traced", {"TUTTI_TRACE_DIR": folder})):
                    rounds[name].append(perf(build, ranks, size, settings, "--min-time", "0.02"))
        none, off, traced = (min(rounds[name]) for name in ("none", "off", "traced"))
        print(f"{size} bytes: {none:.2f} us, profilers off {off:.2f} ({off / none:.3f}), traced {traced:.2f} "
              f"({traced / none:.3f})", flush=True)
        if off > 1.25 * none:
            failure = f"{size} bytes without a profiler take {off:.2f} us and {none:.2f}"
    return failure


def main():
    build = pathlib.Path(sys.argv[1])
    ranks = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    failures = 0
    checks = {f"trace of {way}": functools.partial(check_trace, way=way) for way in WAYS}
    for name, check in {**checks, "trace of graphs": check_graphs, "plug-in": check_plugin, "cost": check_cost}.items():
        try:
            failure = check(build, ranks)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            failure = str(error)
        failures += failure is not None
        print(f"{name}: {failure or 'right'}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
