"""Data-parallel training with PyTorch: the usual script, with backend "tutti" for CPU tensors.

    make train-torch                                         # four ranks on CPUs
    python -m tutti run -n 4 examples/train_torch.py         # the same; torchrun --nproc_per_node=4 works, too
    python -m tutti run -n 2 examples/train_torch.py --gpus  # a GPU each, whose NCCL calls come here
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if "--gpus" not in sys.argv:
    import tutti.torch  # noqa: F401  registers the backend

STEPS, BATCH = 150, 64


def main():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    if "--gpus" in sys.argv:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl")
    else:
        device = torch.device("cpu")
        dist.init_process_group("tutti")

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
    assert last < first / 2, f"the model did not learn: loss {first:.3f}, then {last:.3f}"
    if rank == 0:
        print(f"{size} ranks, {STEPS} steps: loss {first:.3f}, then {last:.3f}; all have the same model")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
