#!/usr/bin/env python3
"""GPU ranks of several hosts, played on one by NCCL_HOSTID: collectives through `tutti perf`, a process a rank, every
result checked.

    tests/gpu/hosts_check.py BUILD [RANKS [HOSTS [OPERATION,...]]] [-- options of tutti perf, in place of the sizes]

With --lib among those the tables are printed.
"""
import os
import pathlib
import subprocess
import sys

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "gather", "scatter",
              "sendrecv")
SECONDS = 60
# More than a slot of staging memory at the end, and counts that divide by nothing.
SIZES = ["-b", "1", "-e", "12M", "-f", "2053", "--min-time", "0.0001", "-w", "1"]


def seat(rank, ranks, port):
    """What tells a process its rank."""
    return {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def run(command, ranks, hosts, settings=None):
    """The first rank's output, and what went wrong, if anything; a setting of None is none."""
    settings = {**os.environ, **(settings or {})}
    settings = {name: value for name, value in settings.items() if value is not None}
    processes = []
    for rank in range(ranks):
        environment = {**seat(rank, ranks, 20000 + os.getpid() % 20000),
                       "NCCL_HOSTID": f"check-host-{rank * hosts // ranks}"}
        processes.append(subprocess.Popen(command, env={**settings, **environment}, text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    outputs, failure = [], None
    for rank, process in enumerate(processes):
        try:
            outputs.append(process.communicate(timeout=SECONDS)[0])
        except subprocess.TimeoutExpired:
            process.kill()
            outputs.append(process.communicate()[0])
            failure = failure or f"rank {rank} did not end in {SECONDS} s: {outputs[-1][-800:]}"
        if process.returncode != 0:
            failure = failure or f"rank {rank}: exit {process.returncode}: {outputs[-1][-800:]}"
    if failure is None and "Out of bounds values : 0 OK" not in outputs[0]:
        failure = outputs[0][-800:]
    return outputs[0], failure


def main():
    own, _, further = " ".join(sys.argv[1:]).partition(" -- ")
    build, *rest = own.split()
    ranks, hosts = [int(text) for text in rest[:2]] + [4, 2][len(rest[:2]):]
    operations = rest[2].split(",") if len(rest) > 2 else OPERATIONS
    tutti = pathlib.Path(build, "bin/tutti")
    options = further.split() or SIZES
    failures = 0
    for operation in operations:
        table, failure = run([tutti, "perf", operation, *options], ranks, hosts)
        failures += failure is not None
        if "--lib" in options:
            print(table, flush=True)
        print(f"{operation}: {failure or 'right'}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
