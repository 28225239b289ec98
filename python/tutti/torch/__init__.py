"""Backend "tutti" of torch.distributed: collectives of CPU tensors.

    import torch.distributed as dist
    import tutti.torch
    dist.init_process_group("tutti")                  # or "cpu:tutti,cuda:nccl" (torch 2.1 and later)

Everything of torch.distributed then works as with Gloo: asynchronous work and futures, object collectives,
send and receive with tags and from any rank, groups, time-outs, DistributedDataParallel, FSDP, torchrun.
A rank that dies ends its peers' calls with a RuntimeError that names it. Ctrl-C ends a call that waits.

The backend is C++ that is made for one version of torch: `python -m tutti.torch` compiles it ahead (needs a C++20
compiler), otherwise the import does, once, into ~/.cache/tutti or TUTTI_TORCH_CACHE.
"""

from __future__ import annotations

import atexit
import datetime
import inspect
from typing import Any

import torch
import torch.distributed as dist

from .. import _waiting
from .._library import library_path
from ._build import load

_C = load()
_library = _C.open(str(library_path()))
_warden = _C.Warden()
ProcessGroupTutti = _C.ProcessGroupTutti
__all__ = ["ProcessGroupTutti", "create", "monitored_barrier"]


def create(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any:
    """A process group as torch.distributed makes it. Waits until all ranks have come, for `timeout` at most."""
    _waiting.watch_also(_warden.interrupt)
    return _C.create(_library, _warden, store, rank, size, timeout)


def monitored_barrier(group: Any = None, timeout: datetime.timedelta | None = None, wait_all_ranks: bool = False) -> None:
    """torch.distributed.monitored_barrier, which torch itself offers for Gloo alone. `group`: of this backend.

    Rank 0 raises RuntimeError with the rank that did not come in time, or, with wait_all_ranks, with all of them; the
    others raise, too.
    """
    options = dist.BarrierOptions()
    if timeout is not None:
        options.timeout = timeout
    if group is None:
        group = dist.distributed_c10d._get_default_group()
    backend = group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group
    if timeout is None:
        backend.monitored_barrier(wait_all_ranks=wait_all_ranks)
    else:
        backend.monitored_barrier(timeout, wait_all_ranks)


def _register() -> None:
    arguments = {}
    if "devices" in inspect.signature(dist.Backend.register_backend).parameters:
        arguments["devices"] = ["cpu"]
    dist.Backend.register_backend("tutti", create, **arguments)


_register()
atexit.register(_warden.leave)
