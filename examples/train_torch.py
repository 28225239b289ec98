"""Data-parallel training with PyTorch: the usual script. CPU tensors go through backend "tutti"; where there are GPUs, the model
is on them, and their NCCL calls come to the same library.

    make train-torch                                       # four ranks
    python -m tutti run -n 4 examples/train_torch.py       # the same; torchrun --nproc_per_node=4 works, too
"""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tutti.torch  # noqa: F401  registers the backend

STEPS, BATCH = 150, 64


def begin():
    """The process group, and the device of this rank's model."""
    gpus = torch.cuda.device_count()
    if gpus == 0:
        dist.init_process_group("tutti")
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % gpus)
    torch.cuda.set_device(device)
    dist.init_process_group("cpu:tutti,cuda:nccl")
    return device


def main():
    torch.set_num_threads(1)
    device = begin()
    rank, size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)  # the first rank's model goes to all in any case
    model = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)).to(device)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(parallel.parameters(), lr=0.01)
    torch.manual_seed(rank + 1)  # other data on each rank
    first = last = None
    for _ in range(STEPS):
        points = torch.rand(BATCH, 2, device=device) * 4 - 2
        wanted = (points[:, :1] * points[:, 1:]).sin()
        loss = (parallel(points) - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()  # gradients are averaged over the ranks meanwhile
        optimizer.step()
        last = loss.item()
        first = last if first is None else first

    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    everyones = [torch.empty_like(weights) for _ in range(size)]
    dist.all_gather(everyones, weights)
    assert all(torch.equal(each, weights) for each in everyones), "the ranks' models differ"
    losses = torch.tensor([first, last]) / size  # on the CPU, wherever the model is
    dist.all_reduce(losses)
    first, last = losses.tolist()
    assert last < first / 2, f"the model did not learn: loss {first:.3f}, then {last:.3f}"
    if rank == 0:
        print(f"{size} ranks on {device.type}, {STEPS} steps: mean loss {first:.3f}, then {last:.3f}; all have the same model")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
