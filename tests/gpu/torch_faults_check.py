#!/usr/bin/env python3
"""PyTorch ranks, a process a GPU, of which the last does not come, or dies: the others' watchdog ends them within the time-out, and
says why; where calls wait themselves (TORCH_NCCL_BLOCKING_WAIT), they raise, and the process goes on with a new group.

    LD_PRELOAD=build/cuda/lib/libnccl.so.2 tests/gpu/torch_faults_check.py

missing: the watchdog's time-out. killed: the communicator's own error, which names the rank that died, ends them long before it.
waiting: the call's own time-out, then an abort, and a group of the others.
"""
import datetime
import os
import re
import signal
import socket
import subprocess
import sys
import time

RANKS = 2
TIMEOUT = 8  # seconds, of PyTorch's group
DEATH = 6  # in which a death has to be known
MARGIN = 25  # for PyTorch's own way to its end
WORDS = {"missing": r"[Ww]atchdog caught collective operation timeout", "killed": r"rank 1 \(.*\) died|rank 1 .* died"}


def run_rank(case, rank, port, next_port):
    import torch
    import torch.distributed as dist
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(RANKS))
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device, timeout=datetime.timedelta(seconds=TIMEOUT))
    data = torch.ones(1 << 20, device=device)
    for _ in range(20):
        dist.all_reduce(data)
    torch.cuda.synchronize()
    print("away", flush=True)
    if rank == RANKS - 1:
        if case == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(TIMEOUT + MARGIN)  # the parent ends it
        return
    began = time.monotonic()
    try:
        work = dist.all_reduce(data, async_op=case == "waiting")
        if work is not None:
            work.wait()
        torch.cuda.synchronize()
    except (RuntimeError, dist.DistError) as error:
        if case != "waiting":
            raise
        print(f"raised after {time.monotonic() - began:.1f} s: {str(error).splitlines()[0][:200]}", flush=True)
    else:
        print("FAIL: the call of a rank that is alone came to its end", flush=True)
        sys.exit(7)
    dist.distributed_c10d._abort_process_group()
    os.environ.update(MASTER_PORT=str(next_port), RANK="0", WORLD_SIZE=str(RANKS - 1))
    dist.init_process_group("nccl", device_id=device, timeout=datetime.timedelta(seconds=TIMEOUT))
    data = torch.full((1000,), 3.0, device=device)
    dist.all_reduce(data)
    right = bool((data.cpu() == 3.0 * (RANKS - 1)).all())
    dist.destroy_process_group()
    print("went on" if right else "FAIL: wrong sum of the new group", flush=True)
    sys.exit(0 if right else 7)


def free_ports(count):
    with_sockets = [socket.socket() for _ in range(count)]
    for each in with_sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in with_sockets]
    for each in with_sockets:
        each.close()
    return ports


def judge(case, code, output, took):
    """What is wrong with the survivor; None: nothing."""
    if case == "waiting":
        raised = re.search(r"raised after ([\d.]+) s", output)
        if code != 0 or raised is None or "went on" not in output:
            return f"exit {code}: {output}"
        return None if float(raised[1]) < TIMEOUT + 5 else f"raised after {raised[1]} s"
    if code == 0 or code == 7:
        return f"exit {code}: it did not end by its watchdog: {output}"
    if not re.search(WORDS[case], output):
        return f"exit {code}, without the words '{WORDS[case]}': {output}"
    bound = (DEATH if case == "killed" else TIMEOUT) + MARGIN
    return None if took < bound else f"ended after {took:.1f} s"


def attempt(case):
    ports = free_ports(2)
    # PyTorch's monitor waits for dumps of other ranks, which never come; its watchdog for four times as long as a dump may take.
    environment = {**os.environ, "TORCH_NCCL_ENABLE_MONITORING": "0", "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
                   "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "1000", "NCCL_DEBUG": "WARN"}
    environment.pop("TUTTI_GPU_WAIT_MS", None)  # which would end the call before PyTorch does
    if case == "waiting":
        environment["TORCH_NCCL_BLOCKING_WAIT"] = "1"
    ranks = [subprocess.Popen([sys.executable, __file__, case, str(rank), *map(str, ports)], env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(RANKS)]
    while (line := ranks[-1].stdout.readline()) and line.strip() != "away":
        pass
    began = time.monotonic()
    try:
        output = ranks[0].communicate(timeout=TIMEOUT + MARGIN + 10)[0]
        problem = judge(case, ranks[0].returncode, output, time.monotonic() - began)
    except subprocess.TimeoutExpired:
        ranks[0].kill()
        problem = f"the survivor did not end: {ranks[0].communicate()[0]}"
    print(f"{case}: {problem or 'right'} ({time.monotonic() - began:.1f} s)", flush=True)
    for rank in ranks:
        rank.kill()
        rank.communicate()
    return problem is not None


def main():
    if len(sys.argv) == 5:
        run_rank(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
        return 0
    failures = sum(attempt(case) for case in sys.argv[1:] or ("killed", "missing", "waiting"))
    if failures:
        print(f"FAILED: {failures}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
