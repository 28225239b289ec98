#!/usr/bin/env python3
"""What profilers are told of GPU ranks whose calls are kernels: by a trace and by the tests' plug-in, in `tutti perf`.

    tests/gpu/profile_check.py BUILD [RANKS]

Each call has one run, which lies within it; long calls run as long as perf says that they take; and without a profiler calls
take what they took. Prints what stamps cost.
"""
import collections
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
LEAST, MOST = 0.6, 1.15
KERNEL_CHANNEL, STOPPED = 64, 22
PROFILERS = ("TUTTI_TRACE_DIR", "NCCL_PROFILER_PLUGIN", "FAKE_PROFILER_FILE")


def perf(build, ranks, size, settings, *options):
    """The microseconds of a call, as perf says."""
    environment = {name: value for name, value in os.environ.items() if name not in PROFILERS}
    command = [build / "bin/tutti", "perf", "all_reduce", "-n", str(ranks), "-b", str(size), "-e", str(size), "-c", "0",
               "-J", "-", *(options or ("--iters", str(CALLS), "-w", "5"))]
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
    return trace["otherData"], bars["call"], bars["run"]


def check_trace(build, ranks):
    with tempfile.TemporaryDirectory() as folder:
        took = perf(build, ranks, LONG, {"TUTTI_TRACE_DIR": folder})
        paths = sorted(pathlib.Path(folder).glob("trace-*.json"))
        if len(paths) != ranks:
            return f"{len(paths)} traces of {ranks} ranks"
        for path in paths:
            facts, calls, runs = bars_of(path)
            if facts["dropped_events"] != 0 or len(runs) != len(calls) or len(calls) < 2 * CALLS:
                return f"{path.name}: {len(runs)} runs of {len(calls)} calls, {facts['dropped_events']} dropped"
            if not all(call["args"]["ended"] for call in calls):
                return f"{path.name}: calls without an end"
            outside = [run for run, call in zip(runs, calls)
                       if run["ts"] < call["ts"] - 0.01 or run["ts"] + run["dur"] > call["ts"] + call["dur"] + 0.01]
            if outside:
                return f"{path.name}: {len(outside)} runs lie outside their calls"
            ran = statistics.median(run["dur"] for run, call in zip(runs, calls) if call["args"]["bytes"] == LONG)
            print(f"{path.name}: {len(calls)} calls, runs of {LONG >> 20} MB {ran:.1f} us, perf {took:.1f} us", flush=True)
            if not LEAST <= ran / took <= MOST:
                return f"{path.name}: runs of {LONG >> 20} MB take {ran:.1f} us, perf says {took:.1f}"
    return None


def check_plugin(build, ranks):
    plugin = build / "lib/libnccl-profiler-fake5.so"
    with tempfile.TemporaryDirectory() as folder:
        told = pathlib.Path(folder, "told")
        perf(build, ranks, SHORT, {"NCCL_PROFILER_PLUGIN": str(plugin), "FAKE_PROFILER_FILE": str(told)})
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
    for name, check in (("traces", check_trace), ("plug-in", check_plugin), ("cost", check_cost)):
        try:
            failure = check(build, ranks)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            failure = str(error)
        failures += failure is not None
        print(f"{name}: {failure or 'right'}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
