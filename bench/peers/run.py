#!/usr/bin/env python3
"""Times collectives of CPU ranks: tutti against the other libraries of this machine, in turns.

All programs are started at once and sleep; for each cell (collective, ranks, size) each one is measured in each round,
A B C A B C ..., so that whatever else the machine does meets all of them. A time is the mean of a call over the
iterations, of the slowest rank; a ratio is the median, over the rounds, of ours to the best peer's in the same round.
Prints a table, and writes the raw figures as JSON and a page as HTML. With --floor, processes that do nothing but the
transfer (bare.h) are measured beside the libraries: what no library could beat. With --tcp, all libraries take TCP on
loopback, as if each rank were on a host of its own.

Exit codes: 0 measured; 1 a wrong result; 2 usage; 3 our library is missing or has failed; 130 interrupted, with what
was measured until then.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import time

import figures
import page
import report
from jobs import ALL_PEERS, BARE, ROOT, SETTINGS, Failed, Job, find_peers, machine_ticks, ticks_of

KIB, MIB = 1 << 10, 1 << 20
FULL = [8, 64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB]
QUICK = [8, 256, 4 * KIB, 64 * KIB, MIB, 16 * MIB]
CROWDED_SMALLEST = 256  # with more than two ranks
CROWDED_LARGEST = 64 * MIB
PATIENCE_SECONDS = 120
EXAMPLES = """examples:
  bench/peers/run.py --quick
  bench/peers/run.py --quick --tcp
  bench/peers/run.py --ranks 2 --collectives allreduce --rounds 9
  bench/peers/run.py --peers openmpi,tutti --sizes 8,1K,1M --json - > figures.json"""


def parse_size(text):
    units = {"K": KIB, "M": MIB, "G": 1 << 30}
    number, unit = (text[:-1], units[text[-1].upper()]) if text[-1:].upper() in units else (text, 1)
    size = int(number) * unit
    if size <= 0 or size % 4:
        raise argparse.ArgumentTypeError(f"size {text} is not a positive multiple of 4 bytes")
    return size


def list_of(kind, known=None):
    def parse(text):
        values = [kind(word) for word in text.split(",")]
        unknown = [str(value) for value in values if known and value not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: known are {', '.join(known)}")
        return values

    return parse


def parse_arguments(words):
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="six sizes, 3 rounds, 0.05 s a cell: minutes")
    add("--tcp", action="store_true", help="two ranks as two hosts, by TCP on loopback, instead of the host's memory")
    add("--peers", type=list_of(str, ALL_PEERS + SETTINGS + BARE), help="default: " + ",".join(ALL_PEERS))
    add("--settings", action="store_true", help="other settings of the peers beside them: " + ",".join(SETTINGS))
    add("--floor", action="store_true", help="the transfer alone beside them, in all its forms: " + ",".join(BARE))
    add("--ranks", type=list_of(int), help="default: 2,4,8; with --tcp 2")
    add("--collectives", type=list_of(str, figures.COLLECTIVES), default=figures.COLLECTIVES)
    add("--sizes", type=list_of(parse_size), help="bytes, with K or M; default: 8 to 256M, fewer with --quick")
    add("--rounds", type=int, help="default: 5, or 3 with --quick")
    add("--seconds", type=float, help="to fill for each cell and round; default: 0.2, or 0.05 with --quick")
    add("--library", type=pathlib.Path, default=ROOT / "build/release/lib", help="folder of libnccl.so.2")
    add("--work", type=pathlib.Path, default=ROOT / "build/peers", help="where programs are built")
    add("--json", metavar="FILE", help="raw figures; -: to standard output, instead of the table")
    add("--html", metavar="FILE", help="the page")
    add("--text", metavar="FILE", help="the table, besides standard output")
    options = parser.parse_args(words)
    options.peers = options.peers or [key for key in ALL_PEERS if not (options.tcp and key == "tutti-shared")]
    options.ranks = options.ranks or ([2] if options.tcp else [2, 4, 8])
    if options.tcp and (options.floor or set(options.peers) & set(BARE)):
        parser.error("the floor is of the host's memory, not of TCP")
    if options.tcp and (options.settings or set(options.peers) & set(SETTINGS)):
        parser.error("the settings are of the host's memory, not of TCP")
    if options.settings:
        options.peers = options.peers + [key for key in SETTINGS if key not in options.peers]
    if options.floor:
        options.peers = options.peers + [key for key in BARE if key not in options.peers]
    options.rounds = options.rounds or (3 if options.quick else 5)
    options.seconds = options.seconds or (0.05 if options.quick else 0.2)
    if options.rounds < 1 or options.seconds <= 0 or not all(1 < count <= 64 for count in options.ranks):
        parser.error("--rounds and --seconds must be positive, --ranks from 2 to 64")
    return options


def wire_of(options):
    return figures.TCP if options.tcp else figures.MEMORY


def sizes_for(options, ranks):
    if options.sizes:
        return [size for size in options.sizes if size >= 4 * ranks]
    if ranks == 2:
        return QUICK + [64 * MIB] if options.quick else FULL
    return [size for size in (QUICK if options.quick else FULL) if CROWDED_SMALLEST <= size <= CROWDED_LARGEST]


class Progress:
    """A line on a terminal's standard error that the next one replaces; nothing elsewhere."""

    def __init__(self):
        self.is_shown = sys.stderr.isatty()

    def show(self, text):
        if self.is_shown:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def clear(self):
        self.show("")


class Noise:
    """What others took of the machine while the body ran, in cores: `other_cpu` and `steal`."""

    def __init__(self, jobs):
        self.jobs = jobs

    def own_ticks(self):
        return ticks_of(os.getpid()) + sum(job.cpu_ticks() for job in self.jobs)

    def __enter__(self):
        self.start = time.monotonic()
        self.own = self.own_ticks()
        self.busy, self.stolen = machine_ticks()
        return self

    def __exit__(self, *_):
        busy, stolen = machine_ticks()
        ticks = max(time.monotonic() - self.start, 1e-3) * os.sysconf("SC_CLK_TCK")
        others = busy - self.busy - (self.own_ticks() - self.own)
        # Each side of the difference is rounded to ticks: one more or less is nothing.
        self.other_cpu = round(max(0.0, others - 1) / ticks, 4)
        self.steal = round(max(0, stolen - self.stolen) / ticks, 4)


class Campaign:
    """One run: the cells as they come, and which peers are still in it."""

    def __init__(self, options, peers, skipped):
        self.options = options
        self.peers = peers
        self.skipped = dict(skipped)
        self.versions = {}
        self.cells = []
        self.progress = Progress()

    def drop(self, jobs, key, ranks, reason):
        """It may hang and take a core: it ends now."""
        self.skipped[f"{key}, {ranks} ranks"] = str(reason)
        jobs.pop(key).end(patience=0)

    def run(self):
        for ranks in self.options.ranks:
            with contextlib.ExitStack() as stack:
                jobs = {}
                for key, peer in self.peers.items():
                    self.progress.show(f"{ranks} ranks: starting {peer.title}")
                    job = stack.enter_context(Job(peer, ranks))
                    jobs[key] = job
                    try:
                        self.versions[key] = job.start()
                    except Failed as reason:
                        self.drop(jobs, key, ranks, reason)
                for collective in self.options.collectives:
                    if collective != "pingpong" or ranks == 2:
                        for size in sizes_for(self.options, ranks):
                            self.measure_cell(jobs, collective, ranks, size)
        self.progress.clear()

    def measure_cell(self, jobs, collective, ranks, size):
        cell = {"collective": collective, "ranks": ranks, "bytes": size}
        cell |= {"wire": wire_of(self.options), "iterations": {}, "wrong": {}, "rounds": []}
        for number in range(self.options.rounds):
            where = f"{ranks} ranks, {collective}, {figures.size_text(size)}, round {number + 1}"
            self.progress.show(f"{where} of {self.options.rounds}")
            cell["rounds"].append(self.measure_round(jobs, cell, number))
        self.cells.append(cell)

    def measure_round(self, jobs, cell, number):
        """Each peer once; who begins changes from round to round."""
        times, fastest = {}, {}
        keys = list(jobs)
        first = number % len(keys) if keys else 0
        with Noise(list(jobs.values())) as noise:
            for key in keys[first:] + keys[:first]:
                try:
                    timing = jobs[key].measure(
                        cell["collective"], cell["bytes"], cell["iterations"].get(key, 0), self.options.seconds,
                        PATIENCE_SECONDS,
                    )  # fmt: skip
                except Failed as reason:
                    what = f"{cell['collective']}, {figures.size_text(cell['bytes'])}: {reason}"
                    self.drop(jobs, key, cell["ranks"], what)
                    continue
                if timing is None:
                    continue
                times[key], fastest[key] = timing.us, timing.fastest_us
                cell["iterations"][key] = timing.iterations
                cell["wrong"][key] = cell["wrong"].get(key, 0) + timing.wrong
        return {"us": times, "fastest_us": fastest, "other_cpu": noise.other_cpu, "steal": noise.steal}


def first_match(path, prefix):
    with contextlib.suppress(FileNotFoundError):
        for line in pathlib.Path(path).read_text().splitlines():
            if line.startswith(prefix):
                return line.split(":" if ":" in line else "=", 1)[1].strip().strip('"')
    return "unknown"


def commit():
    if shutil.which("git") is None:
        return "unknown"
    done = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def describe_machine():
    return {
        "cpu": first_match("/proc/cpuinfo", "model name"),
        "cpu_family_model": f"{first_match('/proc/cpuinfo', 'cpu family')}/{first_match('/proc/cpuinfo', 'model	')}",
        "cores": len(os.sched_getaffinity(0)),
        "memory": first_match("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "system": first_match("/etc/os-release", "PRETTY_NAME"),
        "load_at_start": os.getloadavg()[0],
    }


def write(path, text):
    if path == "-":
        sys.stdout.write(text)
    elif path:
        pathlib.Path(path).write_text(text)


def main(words):
    options = parse_arguments(words)
    machine, source = describe_machine(), commit()
    peers, skipped = find_peers(options.peers, options.work.resolve(), options.library.resolve(), options.tcp)
    if "tutti" in skipped:
        print(f"run.py: {skipped['tutti']}", file=sys.stderr)
        return 3
    started = datetime.datetime.now().astimezone()
    campaign = Campaign(options, peers, skipped)
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell has set the first to be ignored
        signal.signal(number, signal.default_int_handler)
    try:
        campaign.run()
    except KeyboardInterrupt:
        campaign.skipped["the rest"] = "interrupted"
    data = {
        "schema": 1,
        "date": started.isoformat(timespec="seconds"),
        "seconds": round((datetime.datetime.now().astimezone() - started).total_seconds(), 1),
        "command": "bench/peers/run.py " + " ".join(words),
        "commit": source,
        "machine": machine | {"load_at_end": os.getloadavg()[0]},
        "settings": {"rounds": options.rounds, "seconds_per_cell": options.seconds, "wire": wire_of(options)},
        "titles": {key: peer.title for key, peer in peers.items()},
        "versions": campaign.versions,
        "skipped": campaign.skipped,
        "cells": campaign.cells,
        "targets": figures.describe_verdicts([figures.summarize(cell) for cell in campaign.cells]),
    }
    text = report.render(data)
    if options.json != "-":
        sys.stdout.write(text)
    write(options.text, text)
    write(options.json, json.dumps(data, indent=1) + "\n")
    write(options.html, page.render(data))
    if "the rest" in campaign.skipped:
        return 130
    if any(key.startswith("tutti") for key in campaign.skipped):
        return 3
    return 1 if any(sum(cell["wrong"].values()) for cell in campaign.cells) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
