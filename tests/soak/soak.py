#!/usr/bin/env python3
"""Plays seeds for some time: random collectives, groups, splits, deaths and delays (see plan.h), every element checked.

    soak.py --rank-program build/release/bin/soak_rank --minutes 10     seeds from --seed on
    soak.py --rank-program ... --seed 17 --at-most 1 --verbose          one seed again

The plan of a seed is a pure function of it, so a failing seed replays; its moments do not, so try it more than once.
Exits 1 when a seed failed: a wrong element, an unexpected result, a hang or a leak.
"""

import argparse
import collections
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

HANG_SECONDS = 30  # a round takes a few; faults end within TUTTI_TIMEOUT_MS
# A round of 15 ranks' one-shot all-reduce of 1 MiB took more than 30 s under ThreadSanitizer, on 2 CPUs that compilers had too
# (seed 5099); faults end within TUTTI_TIMEOUT_MS there, too.
SANITIZED_HANG_SECONDS = 10 * HANG_SECONDS
GROWTH_KIB = 8 * 1024  # of what a process holds, from the third to the last of equal rounds


class Process:
    """One process of a seed; its lines are read by a thread of their own."""

    def __init__(self, run, number, environment):
        self.run = run
        self.number = number
        self.lines = []
        self.child = subprocess.Popen(
            [run.program, str(run.seed), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.child.stdout:
            self.lines.append(line)
            word = line.split(" ", 1)[0].strip()
            if word == "freeze":
                # By a thread: what comes meanwhile is of other processes.
                self.thaw(int(line.split()[1]))
            elif word in ("ready", "id", "round", "FAIL"):
                self.run.hear(self, line)

    def state(self):
        try:
            return pathlib.Path(f"/proc/{self.child.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return "X"

    def thaw(self, microseconds):
        deadline = time.monotonic() + 20
        while self.state() not in "TXZ" and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(microseconds / 1e6)
        self.child.send_signal(signal.SIGCONT)

    def end(self):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        self.reader.join()
        self.child.stdin.close()
        self.child.stdout.close()


class Run:
    """One seed."""

    def __init__(self, program, seed, verbose):
        self.program = program
        self.seed = seed
        self.verbose = verbose
        self.plan = json.loads(subprocess.run([program, str(seed)], capture_output=True, check=True, text=True).stdout)
        self.changed = threading.Condition()
        self.ready = 0
        self.ids = {}
        self.rounds = collections.defaultdict(list)  # what each process held after each round
        self.failure = None
        self.processes = []

    def hear(self, process, line):
        with self.changed:
            if line.startswith("FAIL"):
                self.failure = self.failure or line.strip()
            elif line.startswith("ready"):
                self.ready += 1
            elif line.startswith("id "):
                _, number, text = line.split()
                self.ids[int(number)] = text
            else:
                _, _, text = line.split(" ", 2)
                self.rounds[process.number].append(json.loads(text))
            self.changed.notify_all()

    def wait(self, what, is_done):
        """Until it is, or something failed."""
        deadline = time.monotonic() + self.patience()
        with self.changed:
            while not is_done() and self.failure is None:
                if time.monotonic() > deadline:
                    self.failure = f"FAIL seed {self.seed} HANG: {what}\n{self.stacks()}"
                    break
                self.changed.wait(0.5)
                for process in self.processes:
                    code = process.child.poll()
                    if code not in (None, 0) and process.number != self.victim() and not process.reader.is_alive():
                        self.failure = self.failure or f"FAIL seed {self.seed}: process {process.number} ended with {code}"
        return self.failure is None

    def patience(self):
        return SANITIZED_HANG_SECONDS if self.plan["sanitized"] else HANG_SECONDS

    def victim(self):
        return self.plan["rounds"][-1].get("victim", -1)

    def stacks(self):
        """Where each thread of each process waits, as far as the kernel tells."""
        text = ""
        for process in self.processes:
            text += f"process {process.number} pid {process.child.pid} state {process.state()}\n"
            for task in sorted(pathlib.Path(f"/proc/{process.child.pid}/task").glob("*")):
                try:
                    text += f"  {task.name} {(task / 'comm').read_text().strip()} in {(task / 'wchan').read_text()}\n"
                except OSError:
                    continue
        tutti = pathlib.Path(self.program).with_name("tutti")
        if tutti.exists():
            for process in self.processes:
                why = subprocess.run(
                    [tutti, "why", str(process.child.pid)], capture_output=True, text=True, timeout=20, check=False
                )
                text += why.stdout + why.stderr
        return text

    def play(self):
        # One arena: what many threads keep in arenas of their own looks like a leak until all have grown.
        environment = dict(os.environ, NCCL_DEBUG="WARN", MALLOC_ARENA_MAX="1", **self.plan["environment"])
        try:
            for number in range(self.plan["processes"]):
                self.processes.append(Process(self, number, environment))
            if self.wait("start", lambda: self.ready == len(self.processes)):
                self.tell_all("go")
            for number, entry in enumerate(self.plan["rounds"]):
                if not self.play_round(number, entry):
                    break
            else:
                self.check_ends()
        finally:
            for process in self.processes:
                process.end()
        if self.failure is None:
            self.check_growth()
        return self.failure is None

    def tell_all(self, line):
        for process in self.processes:
            process.child.stdin.write(line + "\n")
            process.child.stdin.flush()

    def play_round(self, number, entry):
        if not self.wait(f"ids of round {number}", lambda: len(self.ids) == entry["ids"]):
            return False
        line = "ids " + " ".join(self.ids[i] for i in range(entry["ids"]))
        self.ids = {}
        self.tell_all(line)
        rest = [p.number for p in self.processes if p.number != entry.get("victim", -1)]
        return self.wait(f"round {number}", lambda: all(len(self.rounds[p]) > number for p in rest))

    def check_ends(self):
        """Each process ends by itself, and nothing that it started is left."""
        for process in self.processes:
            if process.number == self.victim():
                continue
            try:
                code = process.child.wait(timeout=self.patience())
            except subprocess.TimeoutExpired:
                self.failure = f"FAIL seed {self.seed} HANG: process {process.number} does not end\n{self.stacks()}"
                return
            if code != 0:
                self.failure = f"FAIL seed {self.seed}: process {process.number} ended with {code}"

    def check_growth(self):
        if not self.plan["repeats"]:
            return
        for number, rounds in self.rounds.items():
            growth = rounds[-1]["memory_kib"] - rounds[2]["memory_kib"]
            if growth > GROWTH_KIB:
                sizes = [entry["memory_kib"] for entry in rounds]
                self.failure = f"FAIL seed {self.seed} LEAK: process {number} grew over equal rounds: {sizes} KiB"

    def show(self):
        print(self.failure)
        for process in self.processes:
            print(f"---- process {process.number}")
            print("".join(process.lines if self.verbose else process.lines[-15:]), end="")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rank-program", required=True)
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1, help="the first")
    parser.add_argument("--at-most", type=int, default=10**9, help="how many seeds")
    parser.add_argument("--keep-going", action="store_true", help="play on after a failure")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


def main():
    options = arguments()
    end = time.monotonic() + options.minutes * 60 + options.seconds
    counts = collections.Counter()
    failed = []
    for seed in range(options.seed, options.seed + options.at_most):
        if counts["seeds"] and time.monotonic() > end and options.minutes + options.seconds > 0:
            break
        run = Run(options.rank_program, seed, options.verbose)
        start = time.monotonic()
        is_good = run.play()
        counts["seeds"] += 1
        counts["processes"] += run.plan["processes"]
        counts["ranks"] += run.plan["ranks"]
        for entry in run.plan["rounds"]:
            counts["rounds"] += 1
            counts["calls"] += entry["calls"]
            for action in entry["actions"]:
                counts[action.split()[0].rstrip(";")] += 1 if not action.startswith("calls") else 0
        if options.verbose or not is_good:
            print(f"seed {seed}: {run.plan['ranks']} ranks in {run.plan['processes']} processes, {time.monotonic() - start:.1f} s")
        if not is_good:
            failed.append(seed)
            run.show()
            print(f"again: {sys.executable} {sys.argv[0]} --rank-program {options.rank_program} --seed {seed} --at-most 1 --verbose")
            sys.stdout.flush()
            if not options.keep_going:
                break
    print(", ".join(f"{number} {name}" for name, number in counts.items() if number))
    print(f"failed seeds: {failed}" if failed else "no failure")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
