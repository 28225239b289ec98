#!/usr/bin/env python3
"""Calls of PyTorch beyond torch_check.py, with whichever libnccl.so.2 is loaded: functional collectives (also compiled), coalescing,
groups of sends, tensor parallel by DTensor, groups by split, a process group that ends and begins again. What each gives is kept,
and compared with what another library gave.

    torchrun --nproc-per-node 2 tests/gpu/torch_calls_check.py --keep nccl/
    LD_PRELOAD=build/cuda/lib/libnccl.so.2 torchrun --nproc-per-node 2 tests/gpu/torch_calls_check.py --keep ours/ --against nccl/

With NCCL_DEBUG=INFO and NCCL_DEBUG_FILE=…%p, --split-words is what the log has to say of a new group. --backend gloo, without GPUs,
tries the check itself, and gives what results have to be where another library cannot: several ranks on one GPU.
"""
import argparse
import os
import pathlib
import socket
import sys

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import nn

COUNT = 3001


class Check:
    def __init__(self, options):
        self.options = options
        self.isOnGpu = options.backend == "nccl"
        local = int(os.environ["LOCAL_RANK"])
        self.device = torch.device("cuda", local % torch.cuda.device_count()) if self.isOnGpu else torch.device("cpu")
        if self.isOnGpu:
            torch.cuda.set_device(self.device)
        self.begin()
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.kept = {}

    def begin(self):
        dist.init_process_group(self.options.backend, device_id=self.device if self.isOnGpu else None)

    def data(self, *shape, seed=0, dtype=torch.float32):
        """Of this rank alone, the same in every run."""
        generator = torch.Generator().manual_seed(1000 * seed + self.rank)
        return torch.randn(*shape, generator=generator).to(dtype).to(self.device)

    def keep(self, name, *tensors):
        for i, tensor in enumerate(tensors):
            whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
            self.kept[f"{name} {i}"] = funcol.wait_tensor(whole).detach().cpu().clone()

    def sum_of(self, make):
        """What a sum over the ranks of make(rank) has to be."""
        own, self.rank = self.rank, 0
        total = 0
        for self.rank in range(self.size):
            total = total + make().double()
        self.rank = own
        return total

    def expect(self, name, got, wanted):
        if not torch.allclose(got.double().cpu(), wanted.double().cpu(), rtol=1e-5, atol=1e-5):
            raise AssertionError(f"{name}: {got.flatten()[:4].tolist()} instead of {wanted.flatten()[:4].tolist()}")


def reductions(check):
    world, data = dist.group.WORLD, check.data
    total = check.sum_of(lambda: data(COUNT))
    check.expect("all_reduce", funcol.all_reduce(data(COUNT), "sum", world), total)
    for op in ("sum", "avg", "max", "min", "product"):
        if op == "avg" and not check.isOnGpu:  # Gloo has none
            check.keep("all_reduce avg", funcol.all_reduce(data(COUNT), "sum", world) / check.size)
            continue
        check.keep(f"all_reduce {op}", funcol.all_reduce(data(COUNT), op, world))
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        check.keep(f"all_reduce {dtype}", funcol.all_reduce(data(COUNT, dtype=dtype), "sum", world))
    for dim in (0, 1):
        whole = data(4 * check.size, 6 * check.size)
        part = funcol.reduce_scatter_tensor(whole, "sum", dim, world)
        wanted = check.sum_of(lambda: data(4 * check.size, 6 * check.size)).chunk(check.size, dim)[check.rank]
        check.expect(f"reduce_scatter_tensor {dim}", part, wanted)
        check.keep(f"reduce_scatter_tensor {dim}", part)
    check.keep("all_reduce_coalesced", *funcol.all_reduce_coalesced([data(i + 1, seed=i) for i in range(20)], "sum", world))
    check.keep("reduce_scatter_tensor_coalesced", *funcol.reduce_scatter_tensor_coalesced(
        [data(check.size * (i + 1), 3, seed=i) for i in range(5)], "sum", [0] * 5, world))
    place = data(COUNT)
    check.keep("all_reduce_inplace", funcol.all_reduce_inplace(place, "sum", world))
    check.keep("reduce_scatter_tensor_inplace", funcol.reduce_scatter_tensor_inplace(data(COUNT), data(COUNT * check.size), "sum", world))


def moves(check):
    world, data, size = dist.group.WORLD, check.data, check.size
    check.keep("broadcast", funcol.broadcast(data(COUNT), size - 1, world))
    for dim in (0, 1):
        check.keep(f"all_gather_tensor {dim}", funcol.all_gather_tensor(data(5, 7), dim, world))
    check.keep("all_gather_into_tensor_coalesced", *funcol.all_gather_into_tensor_coalesced(
        [data(i + 1, 3, seed=i) for i in range(5)], world))
    check.keep("all_to_all_single", funcol.all_to_all_single(data(size * 11), None, None, world))
    # Rank r sends r + peer + 1 rows to each peer.
    rows = [check.rank + peer + 1 for peer in range(size)]
    check.keep("all_to_all_single, uneven", funcol.all_to_all_single(data(sum(rows), 3), rows, rows, world))
    check.keep("permute_tensor", funcol.permute_tensor(data(COUNT), [(r + 1) % size for r in range(size)], world))
    check.keep("all_gather_tensor_inplace", funcol.all_gather_tensor_inplace(data(size * 5), data(5), world))
    check.keep("all_to_all_inplace", funcol.all_to_all_inplace(data(size * 5), data(size * 5, seed=1), group=world))
    check.keep("all_gather_inplace", *funcol.all_gather_inplace([data(5) for _ in range(size)], data(5, seed=1), world))


def gradients(check):
    world, data, size = dist.group.WORLD, check.data, check.size
    for name, call in (("all_gather", lambda x: funcol.all_gather_tensor_autograd(x, 0, world)),
                       ("reduce_scatter", lambda x: funcol.reduce_scatter_tensor_autograd(x, "sum", 0, world)),
                       ("all_to_all", lambda x: funcol.all_to_all_single_autograd(x, [2] * size, [2] * size, world))):
        x = data(2 * size, 5).requires_grad_()
        y = call(x)
        (y * y).sum().backward()
        check.keep(f"{name} autograd", y, x.grad)

    def compiled(x):
        y = funcol.all_reduce(x * 2, "sum", world)
        z = funcol.all_gather_tensor(y + 1, 0, world)
        return funcol.reduce_scatter_tensor(z, "sum", 0, world).relu()

    torch._dynamo.reset()
    check.keep("compiled", torch.compile(compiled, fullgraph=True, backend="aot_eager")(data(4 * size, 3)))
    check.expect("compiled", check.kept["compiled 0"], compiled(data(4 * size, 3)))


def coalescing(check):
    data, size = check.data, check.size
    many = [data(100 * (i + 1), seed=i) for i in range(10)]
    with dist._coalescing_manager(device=check.device if check.isOnGpu else None, async_ops=True) as manager:
        for tensor in many:
            dist.all_reduce(tensor)
    manager.wait()
    check.keep("coalesced all_reduce", *many)
    inputs, outputs = [data(50 + i, seed=i) for i in range(6)], [data(size * (50 + i)) for i in range(6)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for source, target in zip(inputs, outputs):
            dist.all_gather_into_tensor(target, source)
    manager.wait()
    check.keep("coalesced all_gather_into_tensor", *outputs)
    with dist._coalescing_manager(async_ops=True) as manager:
        for source, target in zip(outputs, inputs):
            dist.reduce_scatter_tensor(target, source)
    manager.wait()
    check.keep("coalesced reduce_scatter_tensor", *inputs)


def transfers(check):
    """Both neighbours at once, several lengths, and some to oneself's next only."""
    data, size, rank = check.data, check.size, check.rank
    right, left = (rank + 1) % size, (rank - 1) % size
    work, received = [], []
    for i, count in enumerate((1, 999, 250_000)):
        received += [torch.empty(count, device=check.device), torch.empty(count, device=check.device)]
        work += [dist.P2POp(dist.isend, data(count, seed=2 * i), right, tag=2 * i),
                 dist.P2POp(dist.irecv, received[-2], left, tag=2 * i),
                 dist.P2POp(dist.isend, data(count, seed=2 * i + 1), left, tag=2 * i + 1),
                 dist.P2POp(dist.irecv, received[-1], right, tag=2 * i + 1)]
    for request in dist.batch_isend_irecv(work):
        request.wait()
    check.keep("batch_isend_irecv", *received)


def tensor_parallel(check):
    """A block whose first layer is split by columns and second by rows, with the sequence split outside: forward and gradients,
    against the same block in one piece."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                                   parallelize_module)

    def build():
        torch.manual_seed(5)
        return nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).to(check.device)

    mesh = init_device_mesh(check.device.type, (check.size,))
    plain, model = build(), build()
    model = parallelize_module(model, mesh, {
        "0": SequenceParallel(sequence_dim=0),
        "1": PrepareModuleInput(input_layouts=Shard(0), desired_input_layouts=Replicate()),
    })
    model = parallelize_module(model, mesh, {"1": ColwiseParallel(), "3": RowwiseParallel()})
    torch.manual_seed(6)
    x = torch.randn(8 * check.size, 64).to(check.device)
    wanted = plain(x)
    (wanted * wanted).mean().backward()
    got = model(x.chunk(check.size)[check.rank].clone())
    (got * got).mean().backward()
    check.expect("tensor parallel", got, wanted)
    check.keep("tensor parallel", got)
    for (name, ours), theirs in zip(model.named_parameters(), plain.parameters()):
        gradient = ours.grad.full_tensor()
        check.expect(f"gradient of {name}", gradient, theirs.grad)
        check.keep(f"gradient of {name}", gradient)


def groups(check):
    """Pairs, halves and single ranks; a group of which some are no members."""
    size, rank = check.size, check.rank
    lists = [[list(range(size))], [[r] for r in range(size)], [list(range(size))[::2], list(range(size))[1::2]]]
    for number, members in enumerate(lists):
        members = [ranks for ranks in members if ranks]  # one rank has no second half
        made = [dist.new_group(ranks) for ranks in members]
        for ranks, group in zip(members, made):
            if rank in ranks:
                data = check.data(COUNT, seed=number)
                dist.all_reduce(data, group=group)
                check.keep(f"group {number}", data)
    parts, _ = dist.new_subgroups(group_size=1)
    data = check.data(COUNT)
    dist.all_reduce(data, group=parts)
    check.keep("subgroup", data)


def said_of_split(check):
    """Whether this process's log has the words."""
    words = check.options.split_words
    path = os.environ["NCCL_DEBUG_FILE"].replace("%p", str(os.getpid()))
    if words not in pathlib.Path(path).read_text():
        raise AssertionError(f"{path} does not say '{words}': new groups were not made by a split")


def next_port():
    """One that is free where rank 0 is."""
    with socket.socket() as free:
        free.bind(("", 0))
        told = [free.getsockname()[1]]
    dist.broadcast_object_list(told, src=0)
    return told[0]


def again(check):
    """The process group ends and begins again, twice."""
    for turn in range(2):
        port = next_port()
        dist.destroy_process_group()
        os.environ["MASTER_PORT"] = str(port)
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
        check.begin()
        data = check.data(COUNT, seed=turn)
        dist.all_reduce(data)
        check.keep(f"begun again {turn}", data)


def compare(check, folder):
    other = torch.load(pathlib.Path(folder, f"rank{check.rank}.pt"))
    if other.keys() != check.kept.keys():
        raise AssertionError(f"results differ in their names: {sorted(other.keys() ^ check.kept.keys())}")
    worst = 0.0
    for name, wanted in other.items():
        got = check.kept[name]
        loose = wanted.dtype in (torch.float16, torch.bfloat16)
        torch.testing.assert_close(got, wanted, rtol=2e-2 if loose else 1e-5, atol=2e-2 if loose else 1e-5, msg=lambda text, n=name: f"{n}: {text}")
        worst = max(worst, (got.double() - wanted.double()).abs().max().item())
    print(f"rank {check.rank}: {len(other)} results equal the other library's; they differ by {worst:.1e} at most")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", help="a folder for the results")
    parser.add_argument("--against", help="the folder of another run")
    parser.add_argument("--split-words", help="in the log where a group is made by a split")
    parser.add_argument("--backend", default="nccl")
    options = parser.parse_args()
    check = Check(options)
    for part in (reductions, moves, gradients, coalescing, transfers, tensor_parallel, groups):
        part(check)
        if check.rank == 0:
            print(f"{part.__name__}: done", flush=True)
    if options.split_words:
        said_of_split(check)
    again(check)
    if options.keep:
        pathlib.Path(options.keep).mkdir(parents=True, exist_ok=True)
        torch.save(check.kept, pathlib.Path(options.keep, f"rank{check.rank}.pt"))
    if options.against:
        compare(check, options.against)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
