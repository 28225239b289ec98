#!/usr/bin/env python3
"""How long a training step takes with NCCL and with another library, in turns: a transformer of 840 million parameters in bfloat16 under
DDP and under FSDP2, a process a GPU, so large that the GPUs are busy rather than the host. Fails where the median with the other library
is longer by more than --noise.

    tests/gpu/torch_steps_check.py --lib build/cuda/lib/libnccl.so.2 --ranks 4 --own NCCL_CTA_POLICY=1
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

WARMUP = 6


def train(kind, device, steps):
    import torch
    from torch import nn
    from torch.distributed.fsdp import fully_shard
    torch.manual_seed(7)
    layer = nn.TransformerEncoderLayer(2048, 16, 8192, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.Embedding(8192, 2048), nn.TransformerEncoder(layer, 16, enable_nested_tensor=False),
                          nn.Linear(2048, 8192)).to(device=device, dtype=torch.bfloat16)
    if kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model, device_ids=[device.index])
    else:
        for each in model[1].layers:
            fully_shard(each)
        fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    tokens = torch.randint(0, 8192, (8, 1024), device=device)
    times = []
    for step in range(WARMUP + steps):
        torch.cuda.synchronize()
        began = time.perf_counter()
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        if step >= WARMUP:
            times.append((time.perf_counter() - began) * 1e3)
    return times


def run_rank(path, steps):
    import torch
    import torch.distributed as dist
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    with open("/proc/self/maps") as maps:
        libraries = sorted({line.split()[-1] for line in maps if "libnccl.so" in line})
    told = {kind: train(kind, device, steps) for kind in ("ddp", "fsdp")}
    # A step ends when the slowest rank's does.
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, told)
    if dist.get_rank() == 0:
        worst = {kind: [max(times) for times in zip(*(one[kind] for one in every))] for kind in told}
        with open(path, "w") as file:
            json.dump({"libraries": libraries, **worst}, file)
    dist.destroy_process_group()


def measure(options, library):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "steps.json")
        environment = dict(os.environ)
        if library:
            environment |= {"LD_PRELOAD": library, **dict(each.split("=", 1) for each in options.own)}
        done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(options.ranks),
                               __file__, "--write", path, "--steps", str(options.steps)], env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{library or 'NCCL'}: exit {done.returncode}: {done.stderr[-1500:]}")
        with open(path) as file:
            told = json.load(file)
    if library and not any(os.path.samefile(library, each) for each in told["libraries"]):
        raise SystemExit(f"PyTorch loaded {told['libraries']} instead of {library}")
    return told


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", help="the other libnccl.so.2")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--own", action="append", default=[], metavar="NAME=VALUE", help="a variable of the other library's ranks only")
    parser.add_argument("--steps", type=int, default=20, help="of a turn")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--noise", type=float, default=0.05)
    parser.add_argument("--write", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        run_rank(options.write, options.steps)
        return 0
    times = {name: {"ddp": [], "fsdp": []} for name in ("nccl", "tutti")}
    for _ in range(options.turns):
        for name, library in (("nccl", None), ("tutti", options.lib)):
            told = measure(options, library)
            for kind in ("ddp", "fsdp"):
                times[name][kind] += told[kind]
                print(f"  {name}, {kind}: {statistics.median(told[kind]):.2f} ms", flush=True)
    slower = 0
    for kind in ("ddp", "fsdp"):
        theirs, ours = statistics.median(times["nccl"][kind]), statistics.median(times["tutti"][kind])
        isSlower = ours > theirs * (1 + options.noise)
        slower += isSlower
        print(f"{kind}: a step takes {ours:.2f} ms, with NCCL {theirs:.2f} ({theirs / ours:.3f}), medians of "
              f"{len(times['nccl'][kind])}{': FAIL, slower' if isSlower else ''}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
