#!/usr/bin/env python3
"""A rank of `tutti perf` is killed (SIGKILL) while the other puts calls on its stream faster than they run: the other
says which rank died and ends by itself, with exit code 3, though the stream is full of calls on buffers that go.

    tests/gpu/killed_check.py BUILD [TRIES]
"""
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import hosts_check  # noqa: E402

SECONDS = 20  # of which the survivor's watch may take 10
WORK_SECONDS = 0.6  # of CPU time: the ranks have met, and call
ENDED_BY_ERROR = 3


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def attempt(command, number):
    """What went wrong, or nothing."""
    port = 20000 + (os.getpid() + number) % 20000
    survivor, victim = [subprocess.Popen(command, env={**os.environ, **hosts_check.seat(rank, 2, port)}, text=True,
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(2)]  # fmt: skip
    end = time.monotonic() + SECONDS
    while survivor.poll() is None and cpu_seconds(survivor.pid) < WORK_SECONDS and time.monotonic() < end:
        time.sleep(0.02)
    victim.kill()
    victim.communicate()
    try:
        output = survivor.communicate(timeout=SECONDS)[0]
    except subprocess.TimeoutExpired:
        survivor.kill()
        return f"did not end in {SECONDS} s: {survivor.communicate()[0][-400:]}"
    if survivor.returncode != ENDED_BY_ERROR or "rank 1" not in output:
        return f"exit {survivor.returncode}: {output[-400:]}"
    return None


def main():
    build, *rest = sys.argv[1:]
    command = [pathlib.Path(build, "bin/tutti"), "perf", "all_reduce", "-b", "1M", "-e", "1M", "--iters", "100000000", "-c", "0"]
    failures = 0
    for number in range(int(rest[0]) if rest else 3):
        failure = attempt(command, number)
        failures += failure is not None
        print(f"try {number}: {failure or 'right'}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
