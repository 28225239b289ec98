#!/usr/bin/env python3
"""What PyTorch's NCCL backend does with whichever libnccl.so.2 is loaded: collectives against known results, then a
small model trained with DDP, also with gradients compressed to fp16 and bf16, and with FSDP2, its losses written down for a comparison
between libraries.

    LD_PRELOAD=build/release/lib/libnccl.so.2 torchrun --nproc-per-node 2 tests/gpu/torch_check.py --losses ours.json
    torchrun --nproc-per-node 2 tests/gpu/torch_check.py --losses nccl.json --against ours.json

--alone N writes the losses that N ranks have to get, by one process that does all their work: where no library may put N ranks.
"""
import argparse
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn


KINDS = ("ddp", "ddp_fp16", "ddp_bf16", "fsdp")


def library():
    with open("/proc/self/maps") as maps:
        return sorted({line.split()[-1] for line in maps if "libnccl.so" in line})


def expect(what, got, wanted):
    if not torch.equal(got.cpu(), wanted.cpu()):
        raise AssertionError(f"{what}: {got.flatten()[:4].tolist()} instead of {wanted.flatten()[:4].tolist()}")


def check_reductions(rank, size, device):
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64, torch.uint8):
        for count in (1, 1000, 3_000_001):
            places = torch.arange(count) % 7  # no two neighbours alike, and no power of two repeats them
            data = (places + rank).to(dtype).to(device)
            dist.all_reduce(data)
            expect(f"all_reduce {dtype} {count}", data, (places * size + size * (size - 1) // 2).to(dtype))
    total = size * (size + 1) // 2
    for op, wanted in ((dist.ReduceOp.MAX, size), (dist.ReduceOp.MIN, 1), (dist.ReduceOp.AVG, total / size)):
        data = torch.full((777,), float(rank + 1), device=device)
        dist.all_reduce(data, op=op)
        expect(f"all_reduce {op}", data, torch.full((777,), wanted))


def check_moves(rank, size, device):
    ranks = torch.arange(size, dtype=torch.float32)
    for count in (5, 70_003):
        whole = torch.arange(count * size, dtype=torch.float32)
        parts = whole.chunk(size)
        own = parts[rank].to(device)
        gathered = torch.empty(count * size, device=device)
        dist.all_gather_into_tensor(gathered, own)
        expect(f"all_gather {count}", gathered, whole)
        scattered = torch.empty(count, device=device)
        dist.reduce_scatter_tensor(scattered, gathered.clone())
        expect(f"reduce_scatter {count}", scattered, parts[rank] * size)
        dist.broadcast(own, src=size - 1)
        expect(f"broadcast {count}", own, parts[-1])
    exchanged = torch.empty(size, device=device)
    dist.all_to_all_single(exchanged, torch.full((size,), float(rank), device=device))
    expect("all_to_all", exchanged, ranks)
    received = torch.empty(100_000, device=device)
    ramp = torch.arange(100_000, dtype=torch.float32)
    sent = (ramp + rank).to(device)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, (rank + 1) % size),
                                        dist.P2POp(dist.irecv, received, (rank - 1) % size)]):
        work.wait()
    expect("send and receive", received, ramp + (rank - 1) % size)
    parts = [torch.full((10 + i,), 1.0, device=device) for i in range(20)]
    dist.all_reduce_coalesced(parts) if hasattr(dist, "all_reduce_coalesced") else [dist.all_reduce(p) for p in parts]
    for part in parts:
        expect("coalesced", part, torch.full_like(part, float(size)))
    group = dist.new_group(list(range(size)))
    data = torch.ones(1000, device=device)
    dist.all_reduce(data, group=group)
    expect("all_reduce in a new group", data, torch.full((1000,), float(size)))


def check_graph(size, device):
    data = torch.ones(5000, device=device)
    out = torch.zeros(5000, device=device)
    dist.all_reduce(out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out.copy_(data)
        dist.all_reduce(out)
    for value in (1.0, 3.0):
        data.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        expect("all_reduce in a graph", out, torch.full((5000,), value * size))


def train(ranks, device, wrap, steps=8):
    """What these ranks do, of which a process is one, or all of them."""
    torch.manual_seed(7)
    model = nn.Sequential(nn.Embedding(512, 256),
                          nn.TransformerEncoderLayer(256, 4, 512, dropout=0.0, batch_first=True),
                          nn.Linear(256, 512)).to(device)
    model = wrap(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generators = [torch.Generator().manual_seed(100 + rank) for rank in ranks]
    losses = []
    began = 0.0
    for step in range(steps):
        if step == 2:
            torch.cuda.synchronize()
            began = time.perf_counter()
        tokens = torch.cat([torch.randint(0, 512, (8, 64), generator=generator) for generator in generators]).to(device)
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        if dist.is_initialized():
            dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        losses.append(mean.item())
    torch.cuda.synchronize()
    return losses, (time.perf_counter() - began) / (steps - 2) * 1e3


def train_alone(count, path):
    losses, _ = train(range(count), torch.device("cuda", 0), lambda model: model)
    with open(path, "w") as file:
        json.dump({kind: losses for kind in KINDS}, file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--losses", help="write the losses to this file")
    parser.add_argument("--against", help="losses of another run, equal within rounding")
    parser.add_argument("--hosts", action="store_true", help="each rank plays a host of its own")
    parser.add_argument("--alone", type=int, metavar="N", help="one process: write what N ranks have to get")
    options = parser.parse_args()
    if options.alone:
        return train_alone(options.alone, options.losses)
    if options.hosts:
        os.environ["NCCL_HOSTID"] = f"check-host-{os.environ['RANK']}"
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local % torch.cuda.device_count())
    torch.cuda.set_device(device)
    torch.zeros(1, device=device)
    before = torch.cuda.mem_get_info(device)[0]
    began = time.perf_counter()
    dist.init_process_group("nccl", device_id=device)
    dist.barrier()
    setup = time.perf_counter() - began
    rank, size = dist.get_rank(), dist.get_world_size()
    check_reductions(rank, size, device)
    check_moves(rank, size, device)
    check_graph(size, device)
    torch.cuda.empty_cache()
    taken = before - torch.cuda.mem_get_info(device)[0]
    result = {"library": library(), "setup_seconds": setup, "device_bytes": taken}
    result["ddp"], result["ddp_step_ms"] = train(
        [rank], device, lambda model: nn.parallel.DistributedDataParallel(model, device_ids=[device.index]))
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.distributed.fsdp import fully_shard

    def compressed(hook):
        def wrap(model):
            model = nn.parallel.DistributedDataParallel(model, device_ids=[device.index])
            model.register_comm_hook(None, hook)
            return model
        return wrap

    result["ddp_fp16"], _ = train([rank], device, compressed(default_hooks.fp16_compress_hook))
    result["ddp_bf16"], _ = train([rank], device, compressed(default_hooks.bf16_compress_hook))
    result["fsdp"], result["fsdp_step_ms"] = train([rank], device, fully_shard)
    wrong = 0
    if rank == 0:
        print(json.dumps(result))
        if options.losses:
            with open(options.losses, "w") as file:
                json.dump(result, file)
        if options.against:
            with open(options.against) as file:
                other = json.load(file)
            for kind in KINDS:
                worst = max(abs(a - b) / abs(b) for a, b in zip(result[kind], other[kind]))
                print(f"{kind}: losses differ by {worst:.2e} at most")
                # Of compressed gradients each sum is rounded.
                wrong |= worst > (1e-3 if "16" in kind else 1e-4)
    dist.destroy_process_group()
    sys.exit(wrong)


if __name__ == "__main__":
    main()
