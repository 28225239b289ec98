#!/usr/bin/env python3
"""Times backend tutti against Gloo under torch.distributed: what DistributedDataParallel's all-reduces cost.

    bench/torch/run.py [--ranks 2,4] [--rounds 15] [--sessions] [--out FILE.md]

The buckets are DistributedDataParallel's own, of ResNet-50's and GPT-2-small's gradients, as torch cuts them. A step starts
the all-reduces of all buckets and waits for all. In one run of the same processes the two backends take turns, the first
turn changing from round to round; a figure is the median over rounds of the slowest rank's time, beside it the least.
--sessions gives each rank a session of its own, as newer versions of torchrun do. Needs torch and the package tutti.
"""

import argparse
import datetime
import json
import os
import socket
import statistics
import subprocess
import sys
import time

SMALL = (4, 4096, 65536, 1 << 20)  # bytes of single all-reduces


def resnet50():
    """Sizes of ResNet-50's parameters in order (He et al., 2015, table 1): 25.6 million."""
    sizes = [64 * 3 * 49, 64, 64]
    width = 64
    for planes, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            sizes += [planes * width, planes, planes, planes * planes * 9, planes, planes, 4 * planes * planes, 4 * planes,
                      4 * planes]
            if block == 0:
                sizes += [4 * planes * width, 4 * planes, 4 * planes]
            width = 4 * planes
    return [*sizes, 1000 * 2048, 1000]


def gpt2_small():
    """Sizes of GPT-2 small's (Radford et al., 2019): 124 million."""
    d = 768
    block = [d, d, 3 * d * d, 3 * d, d * d, d, d, d, 4 * d * d, 4 * d, 4 * d * d, d]
    return [50257 * d, 1024 * d, *(block * 12), d, d]


def buckets(sizes):
    """As DistributedDataParallel cuts float32 gradients: last ones first, 1 MiB, then 25 MiB each."""
    import torch
    import torch.distributed as dist
    shapes = [torch.empty(0).set_(torch.empty(1).storage(), 0, (size,), (0,)) for size in reversed(sizes)]
    answer = dist._compute_bucket_assignment_by_size(shapes, [1 << 20, 25 << 20], [False] * len(shapes))
    indices = answer[0] if isinstance(answer, tuple) else answer
    return [sum(shapes[i].numel() for i in bucket) for bucket in indices]


def step_seconds(tensors, group):
    import torch.distributed as dist
    dist.barrier()
    started = time.perf_counter()
    if len(tensors) == 1:
        dist.all_reduce(tensors[0], group=group)
    else:
        for work in [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]:
            work.wait()
    return time.perf_counter() - started


def rank_main(rounds, match):
    import torch
    import torch.distributed as dist
    import tutti.torch  # noqa: F401
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    groups = {"gloo": dist.group.WORLD, "tutti": dist.new_group(backend="tutti")}
    cases = {f"{size} B": ([size // 4], 20) for size in SMALL}
    cases["ResNet-50"] = (buckets(resnet50()), 1)
    cases["GPT-2 small"] = (buckets(gpt2_small()), 1)
    table = {}
    for name, (counts, repeats) in cases.items():
        if match not in name:
            continue
        tensors = [torch.full((count,), 1e-3) for count in counts]
        times = {backend: [] for backend in groups}
        for turn in range(rounds + 2):
            for backend in sorted(groups, reverse=bool(turn % 2)):
                seconds = min(step_seconds(tensors, groups[backend]) for _ in range(repeats))
                slowest = torch.tensor([seconds], dtype=torch.float64)
                dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
                if turn >= 2:
                    times[backend].append(slowest.item())
        for tensor in tensors:
            tensor.fill_(float(dist.get_rank() + 1))
        dist.all_reduce(tensors[-1], group=groups["tutti"])
        assert tensors[-1][0].item() == dist.get_world_size() * (dist.get_world_size() + 1) / 2
        table[name] = {"buckets": [4 * count for count in counts], **times}
    if dist.get_rank() == 0:
        print(json.dumps({"torch": torch.__version__, "cases": table}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def start(ranks, arguments):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started = [subprocess.Popen(
        [sys.executable, __file__, "--rounds", str(arguments.rounds), "--match", arguments.match], stdout=subprocess.PIPE, text=True,
        start_new_session=arguments.sessions,
        env={**os.environ, "TUTTI_BENCH_RANK": "1", "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks),
             "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "TUTTI_DEVICE": "host"})
        for rank in range(ranks)]
    try:
        outputs = [process.communicate(timeout=1200)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    return json.loads(outputs[0].strip().splitlines()[-1])


def row(ranks, name, case):
    figures = {}
    for backend in ("gloo", "tutti"):
        figures[backend] = (statistics.median(case[backend]) * 1e3, min(case[backend]) * 1e3)
    many = "" if len(case["buckets"]) == 1 else f", {len(case['buckets'])} buckets, {sum(case['buckets']) / 1e6:.0f} MB"
    gloo, tutti = figures["gloo"], figures["tutti"]
    return (f"| {ranks} | {name}{many} | {gloo[0]:.3f} | {tutti[0]:.3f} | {gloo[0] / tutti[0]:.2f} | {gloo[1]:.3f} | "
            f"{tutti[1]:.3f} | {gloo[1] / tutti[1]:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--match", default="", help="rows whose names hold this text")
    parser.add_argument("--sessions", action="store_true", help="a session a rank")
    parser.add_argument("--out", help="writes the table there, too")
    arguments = parser.parse_args()
    if "TUTTI_BENCH_RANK" in os.environ:
        return rank_main(arguments.rounds, arguments.match)
    lines = ["| ranks | what | gloo, ms | tutti, ms | times faster | gloo, least | tutti, least | times faster |",
             "| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    version = ""
    for ranks in map(int, arguments.ranks.split(",")):
        answer = start(ranks, arguments)
        version = answer["torch"]
        lines += [row(ranks, name, case) for name, case in answer["cases"].items()]
    text = f"torch {version}, {os.cpu_count()} CPUs, {datetime.date.today()}\n\n" + "\n".join(lines) + "\n"
    print(text, end="")
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            file.write(text)
    return None


if __name__ == "__main__":
    main()
