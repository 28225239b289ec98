"""Ranks of test_torch.py: every call of torch.distributed through backend "tutti", checked against what it must give.

`python -m tutti run -n 4 torch_cases.py` runs all cases and prints "PASS name" or "FAIL name: ..." for each, on rank 0.
"""

import datetime
import os
import sys
import time
import traceback

import torch
import torch.distributed as dist

import tutti.torch

TYPES = [torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64, torch.bfloat16]
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
others = [each for each in range(size) if each != rank]


def equal(seen, wanted):
    wanted = torch.as_tensor(wanted, dtype=seen.dtype).expand_as(seen)
    assert torch.equal(seen, wanted), f"seen {seen.flatten()[:8]}, wanted {wanted.flatten()[:8]}"


def of(each, count=5, dtype=torch.float32):
    """What rank `each` contributes."""
    return (torch.arange(count) + 10 * each).to(dtype)


def raises(kind, text, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except kind as error:
        assert text in str(error), f"{text!r} is not in {error}"
        return
    raise AssertionError(f"no {kind.__name__}")


def case_all_reduce_types():
    for dtype in TYPES:
        for count in (0, 1, 7, 5000):
            tensor = torch.full((count,), rank + 1).to(dtype)
            dist.all_reduce(tensor)
            equal(tensor, size * (size + 1) // 2)


def case_all_reduce_operations():
    product = 1
    for each in range(size):
        product *= each + 1
    for op, wanted in ((dist.ReduceOp.PRODUCT, product), (dist.ReduceOp.MIN, 1), (dist.ReduceOp.MAX, size)):
        tensor = torch.full((33,), rank + 1)
        dist.all_reduce(tensor, op=op)
        equal(tensor, wanted)
    tensor = torch.full((33,), float(rank))
    dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
    equal(tensor, (size - 1) / 2)


def case_all_reduce_bits():
    every = [torch.arange(70000, dtype=torch.int32) * (each + 3) for each in range(size)]
    folds = {dist.ReduceOp.BAND: torch.bitwise_and, dist.ReduceOp.BOR: torch.bitwise_or,
             dist.ReduceOp.BXOR: torch.bitwise_xor}
    for op, fold in folds.items():
        tensor, wanted = every[rank].clone(), every[0]
        dist.all_reduce(tensor, op=op)
        for each in every[1:]:
            wanted = fold(wanted, each)
        equal(tensor, wanted)
    raises(Exception, "BAND", dist.all_reduce, torch.ones(3), op=dist.ReduceOp.BAND)


def case_all_reduce_bool_and_short():
    tensor = torch.tensor([rank == 0, False, True])
    dist.all_reduce(tensor)
    assert tensor.tolist() == [True, False, True]
    dist.all_reduce(tensor, op=dist.ReduceOp.PRODUCT)
    assert tensor.tolist() == [True, False, True]
    short = torch.full((9,), rank + 1, dtype=torch.int16)
    dist.all_reduce(short)
    equal(short, size * (size + 1) // 2)


def case_all_reduce_complex():
    tensor = torch.full((4,), complex(rank, 1))
    dist.all_reduce(tensor)
    equal(tensor, complex(size * (size - 1) / 2, size))


def case_not_contiguous():
    whole = torch.zeros(6, 8)
    part = whole[:, ::2]
    part.fill_(rank + 1.0)
    dist.all_reduce(part)
    equal(whole[:, ::2], size * (size + 1) / 2)
    equal(whole[:, 1::2], 0)
    image = torch.full((2, 3, 4, 5), float(rank)).contiguous(memory_format=torch.channels_last)
    dist.broadcast(image, src=size - 1)
    equal(image, size - 1)


def case_requires_grad():
    parameter = torch.nn.Parameter(torch.full((3, 3), float(rank)).t())
    with torch.no_grad():
        dist.all_reduce(parameter)
    equal(parameter.detach(), size * (size - 1) / 2)


def case_broadcast():
    for root in range(size):
        for dtype in (*TYPES, torch.bool, torch.int16, torch.complex64):
            tensor = of(rank, dtype=torch.float32).to(dtype)
            dist.broadcast(tensor, src=root)
            equal(tensor, of(root).to(dtype))


def case_reduce():
    for root in range(size):
        tensor = of(rank)
        dist.reduce(tensor, dst=root)
        equal(tensor, sum(of(each) for each in range(size)) if rank == root else of(rank))
        bits = torch.tensor([rank + 1])
        dist.reduce(bits, dst=root, op=dist.ReduceOp.BXOR)
        wanted = 0
        for each in range(size):
            wanted ^= each + 1
        equal(bits, wanted if rank == root else rank + 1)


def case_all_gather():
    outputs = [torch.empty(5) for _ in range(size)]
    dist.all_gather(outputs, of(rank))
    for each in range(size):
        equal(outputs[each], of(each))
    raises(Exception, "", dist.all_gather, outputs[1:], of(rank))


def case_all_gather_flat():
    gather = getattr(dist, "all_gather_into_tensor", None) or dist._all_gather_base
    output = torch.empty(size * 5)
    gather(output, of(rank))
    equal(output, torch.cat([of(each) for each in range(size)]))


def case_all_gather_coalesced():
    if not hasattr(dist, "all_gather_coalesced"):
        return
    outputs = [[torch.empty(5), torch.empty(2, 3)] for _ in range(size)]
    dist.all_gather_coalesced(outputs, [of(rank), torch.full((2, 3), float(rank))])
    for each in range(size):
        equal(outputs[each][0], of(each))
        equal(outputs[each][1], each)


def case_all_reduce_coalesced():
    tensors = [of(rank), torch.full((2, 3), rank + 1.0)]
    dist.all_reduce_coalesced(tensors)
    equal(tensors[0], sum(of(each) for each in range(size)))
    equal(tensors[1], size * (size + 1) // 2)


def case_gather_scatter():
    for root in range(size):
        outputs = [torch.empty(5) for _ in range(size)] if rank == root else None
        dist.gather(of(rank), outputs, dst=root)
        for each in range(size if rank == root else 0):
            equal(outputs[each], of(each))
        output = torch.empty(5)
        dist.scatter(output, [of(each) for each in range(size)] if rank == root else None, src=root)
        equal(output, of(rank))


def case_reduce_scatter():
    output = torch.empty(4)
    dist.reduce_scatter(output, [torch.full((4,), float(rank + each)) for each in range(size)])
    equal(output, sum(each + rank for each in range(size)))
    flat = getattr(dist, "reduce_scatter_tensor", None) or dist._reduce_scatter_base
    flat(output, torch.arange(4.0 * size) + rank)
    equal(output, (torch.arange(4.0) + 4 * rank) * size + size * (size - 1) / 2)
    bits = torch.empty(2, dtype=torch.int64)
    dist.reduce_scatter(bits, [torch.full((2,), 1 << rank) for _ in range(size)], op=dist.ReduceOp.BOR)
    equal(bits, 2 ** size - 1)


def case_all_to_all():
    output = torch.empty(size * 2)
    dist.all_to_all_single(output, torch.arange(2.0 * size) + 100 * rank)
    equal(output, torch.cat([torch.arange(2.0) + 2 * rank + 100 * each for each in range(size)]))
    outputs = [torch.empty(each + 1) for each in range(size)]
    dist.all_to_all(outputs, [torch.full((rank + 1,), float(10 * rank + each)) for each in range(size)])
    for each in range(size):
        equal(outputs[each], 10 * each + rank)
    raises(Exception, "", dist.all_to_all_single, torch.empty(size + 1), torch.empty(size + 1), [1] * size, [1] * size)


def case_all_to_all_uneven():
    inputs = torch.full((size * (size + 1) // 2,), float(rank))
    output = torch.empty((rank + 1) * size, 1)
    dist.all_to_all_single(output, inputs.view(-1, 1), [rank + 1] * size, [each + 1 for each in range(size)])
    equal(output.flatten(), torch.cat([torch.full((rank + 1,), float(each)) for each in range(size)]))


def case_asynchronous():
    tensors = [torch.full((1000 * (1 + index % 3),), float(rank + index)) for index in range(40)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for index in (39, 0, 20, *range(40)):
        works[index].wait()
        assert works[index].is_completed()
    for index, tensor in enumerate(tensors):
        equal(tensor, size * (size - 1) / 2 + index * size)


def case_polled():
    tensor = torch.ones(10)
    work = dist.all_reduce(tensor, async_op=True)
    until = time.monotonic() + 30
    while not work.is_completed() and time.monotonic() < until:
        time.sleep(0.001)
    assert work.is_success()
    equal(tensor, size)


def case_future():
    tensor = torch.ones(10)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    equal(doubled.wait(), 2 * size)


def case_barrier():
    if rank == 0:
        time.sleep(0.2)
    started = time.monotonic()
    dist.barrier()
    assert rank == 0 or size == 1 or time.monotonic() - started > 0.1 or started > 0


def case_objects():
    everybodys = [None] * size
    dist.all_gather_object(everybodys, {"rank": rank, "text": "x" * (rank * 100)})
    assert [each["rank"] for each in everybodys] == list(range(size))
    things = ["a", {1: 2}] if rank == 0 else [None, None]
    dist.broadcast_object_list(things, src=0)
    assert things == ["a", {1: 2}]
    gathered = [None] * size if rank == 0 else None
    dist.gather_object(rank * rank, gathered, dst=0)
    assert rank or gathered == [each * each for each in range(size)]
    got = [None]
    dist.scatter_object_list(got, [f"for {each}" for each in range(size)] if rank == 0 else None, src=0)
    assert got == [f"for {rank}"]


def case_send_receive():
    for source in range(size):
        for target in range(size):
            if rank == source != target:
                dist.send(of(rank), dst=target)
            elif rank == target != source:
                tensor = torch.empty(5)
                assert dist.recv(tensor, src=source) == source
                equal(tensor, of(source))


def case_send_both_ways():
    count = 1 << 20  # far more than fits between two ranks
    sends = [dist.isend(torch.full((count,), float(10 * rank + each)), each) for each in others]
    tensors = {each: torch.empty(count) for each in others}
    receives = [dist.irecv(tensors[each], each) for each in reversed(others)]
    for work in sends + receives:
        work.wait()
    for each in others:
        equal(tensors[each], 10 * each + rank)


def case_tags():
    right, left = (rank + 1) % size, (rank - 1) % size
    if right == rank:
        return
    sends = [dist.isend(torch.full((3,), float(tag)), right, tag=tag) for tag in (5, 6, 7)]
    for tag in (7, 5, 6):
        tensor = torch.empty(3)
        dist.recv(tensor, left, tag=tag)
        equal(tensor, tag)
    for work in sends:
        work.wait()


def case_any_source():
    if rank == 0:
        seen = []
        for _ in others:
            tensor = torch.empty(2)
            source = dist.recv(tensor)
            equal(tensor, source)
            seen.append(source)
        assert sorted(seen) == others
    else:
        dist.send(torch.full((2,), float(rank)), dst=0)
    dist.barrier()


def case_batch():
    right, left = (rank + 1) % size, (rank - 1) % size
    if right == rank:
        return
    output = torch.empty(5)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, of(rank), right), dist.P2POp(dist.irecv, output, left)]):
        work.wait()
    equal(output, of(left))


def coalesced(device=None):
    """torch's context that makes one of several calls; None where this torch has none."""
    manager = getattr(dist.distributed_c10d, "_coalescing_manager", None)
    backend = dist.group.WORLD._get_backend(torch.device("cpu")) if hasattr(dist.group.WORLD, "_get_backend") else None
    if manager is None or not getattr(backend, "supports_coalescing", False):
        return None
    return manager(dist.group.WORLD, device, async_ops=True)


def case_coalesced_collectives():
    """Several at once, of sizes and layouts that differ, by torch's own coalesced calls."""
    for dtype in (torch.float32, torch.int16):  # the library's own, and one that is folded outside of it
        if (block := coalesced()) is None:
            return
        tensors = [of(rank, dtype=dtype), torch.full((2, 3), rank + 1, dtype=dtype), torch.empty(0, dtype=dtype)]
        with block as together:
            for tensor in tensors:
                dist.all_reduce(tensor)
        together.wait()
        equal(tensors[0], sum(of(each, dtype=dtype) for each in range(size)))
        equal(tensors[1], size * (size + 1) // 2)
        outputs = [torch.empty(size * 5, dtype=dtype), torch.empty(size * 3, 2, dtype=dtype).t()]
        with coalesced() as together:
            dist.all_gather_into_tensor(outputs[0], of(rank, dtype=dtype))
            dist.all_gather_into_tensor(outputs[1], torch.full((2, 3), rank, dtype=dtype))
        together.wait()
        equal(outputs[0], torch.cat([of(each, dtype=dtype) for each in range(size)]))
        equal(outputs[1].flatten(), torch.arange(size).repeat_interleave(6))
        outputs = [torch.empty(3, dtype=dtype), torch.empty(1, 2, dtype=dtype)]
        with coalesced() as together:
            dist.reduce_scatter_tensor(outputs[0], torch.arange(size * 3).to(dtype) + rank)
            dist.reduce_scatter_tensor(outputs[1], torch.ones(size, 2, dtype=dtype))
        together.wait()
        equal(outputs[0], (torch.arange(3) + 3 * rank) * size + size * (size - 1) // 2)
        equal(outputs[1], size)
    world, two = dist.group.WORLD, [torch.empty(size)] * 2
    raises(Exception, "2 outputs for 1 inputs", world.allgather_into_tensor_coalesced, two, [torch.empty(1)])
    raises(Exception, "invalid tensor size", world.reduce_scatter_tensor_coalesced, [torch.empty(2)], [torch.empty(1)])


def case_coalesced_calls_of_any_kind():
    cpu = torch.device("cpu")
    if (block := coalesced(cpu)) is None:
        return
    right, left = (rank + 1) % size, (rank - 1) % size
    if size > 1:
        output = torch.empty(5)
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, of(rank), right), dist.P2POp(dist.irecv, output, left)])
        assert len(works) == 1, works
        works[0].wait()
        equal(output, of(left))
    mine, roots = of(rank), torch.full((3,), float(rank))
    with block as together:
        dist.all_reduce(mine)
        dist.broadcast(roots, src=size - 1)
    together.wait()
    equal(mine, sum(of(each) for each in range(size)))
    equal(roots, size - 1)
    # A block that raised leaves nothing behind, and an end has a beginning.
    try:
        with coalesced(cpu):
            dist.broadcast(roots, src=0)
            raise KeyError
    except KeyError:
        dist.distributed_c10d._world.pg_coalesce_state.clear()
    roots.fill_(float(rank))
    with coalesced(cpu) as together:
        dist.broadcast(roots, src=0)
    together.wait()
    equal(roots, 0)
    raises(RuntimeError, "startCoalescing", dist.group.WORLD._end_coalescing, cpu)


def case_message_size():
    if size < 2 or rank > 1:
        return
    if rank == 0:
        dist.send(torch.ones(3), dst=1)
        dist.send(torch.full((4,), 2.0), dst=1)
    else:
        raises(RuntimeError, "rank 0 sent 12 bytes, the tensor has 20", dist.recv, torch.empty(5), src=0)
        tensor = torch.empty(4)
        dist.recv(tensor, src=0)
        equal(tensor, 2)


def case_groups():
    group = dist.new_group(sorted({0, size - 1}))
    if rank in (0, size - 1):
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=group)
        equal(tensor, len({0, size - 1}))
    dist.barrier()


def case_split_and_merge():
    world = dist.group.WORLD
    if not hasattr(world, "merge_remote_group"):
        return  # older than torch 2.9
    timeout = datetime.timedelta(seconds=40)
    backend = world._get_backend(torch.device("cpu"))
    first = (size + 1) // 2
    lower = world.split_group(list(range(first)), timeout=timeout, group_name="lower")
    assert (lower is not None) == (rank < first)
    if lower is not None:
        assert (lower.rank(), lower.size()) == (rank, first)
        tensor = torch.ones(3)
        lower.allreduce([tensor]).wait()
        equal(tensor, first)
        options = lower._get_backend(torch.device("cpu")).options
        assert (options.group_name, options._timeout) == ("lower", timeout)
    merged = world.merge_remote_group(dist.PrefixStore("merged", dist.distributed_c10d._get_default_store()), size, timeout)
    tensor = torch.ones(3)
    merged.allreduce([tensor]).wait()
    equal(tensor, size)
    before = backend.options._timeout
    world.set_timeout(timeout)
    assert backend.options._timeout == timeout
    world.set_timeout(before)


def case_sparse():
    indices = torch.tensor([[rank, size]])
    tensor = torch.sparse_coo_tensor(indices, torch.tensor([[1.0, 2.0], [3.0, 4.0]]), (size + 1, 2))
    dist.all_reduce(tensor)
    wanted = torch.tensor([[1.0, 2.0]] * size + [[3.0 * size, 4.0 * size]])
    assert torch.equal(tensor.to_dense(), wanted)


def case_monitored_barrier():
    tutti.torch.monitored_barrier(timeout=datetime.timedelta(seconds=30))
    if size < 2:
        return
    group = dist.new_group(list(range(size)))
    if rank == 0:
        raises(RuntimeError, "Rank 1 failed to pass monitoredBarrier in 300 ms", tutti.torch.monitored_barrier, group,
               datetime.timedelta(seconds=0.3))
    elif rank > 1:
        raises(RuntimeError, "successfully reached monitoredBarrier", tutti.torch.monitored_barrier, group,
               datetime.timedelta(seconds=0.3))
    dist.barrier()


def case_refusals():
    raises(Exception, "parse", dist.broadcast, torch.eye(3).to_sparse(), src=0)
    raises(Exception, "wanted", dist.all_gather, [torch.empty(4)] * size, torch.empty(5))
    raises(Exception, "type", dist.all_gather, [torch.empty(4, dtype=torch.int32)] * size, torch.empty(4))
    group = dist.group.WORLD
    if hasattr(group, "_get_backend"):  # torch 1 refuses such tensors itself, and so does the whole group of torch 2
        raises(Exception, "device meta", group._get_backend(torch.device("cpu")).allreduce, [torch.empty(4, device="meta")])
    tensor = torch.ones(1)
    dist.all_reduce(tensor)  # nobody was left behind
    equal(tensor, size)


def case_timeout():
    if size < 2:
        return
    group = dist.new_group(list(range(size)), timeout=datetime.timedelta(seconds=1))
    if rank == 0:
        started = time.monotonic()
        raises(RuntimeError, "Timed out waiting 1000ms", dist.all_reduce, torch.ones(3), group=group)
        assert time.monotonic() - started < 10
        raises(RuntimeError, "Timed out", dist.all_reduce, torch.ones(3), group=group)
        raises(RuntimeError, "Timed out waiting 1000ms", dist.recv, torch.ones(3), 1, group=group)
    dist.barrier()


def case_wait_timeout():
    if size < 2:
        return
    tensor = torch.ones(3)
    if rank == 0:
        work = dist.all_reduce(tensor, async_op=True)
        raises(RuntimeError, "Timed out waiting 100ms", work.wait, datetime.timedelta(seconds=0.1))
        dist.send(torch.ones(1), dst=1)
        work.wait()
    else:
        if rank == 1:
            dist.recv(torch.ones(1), src=0)
        dist.all_reduce(tensor)
    equal(tensor, size)


def case_data_parallel():
    torch.manual_seed(rank)
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 2))
    parallel = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.001)
    torch.manual_seed(7)
    inputs = torch.randn(size, 6, 20)
    for _ in range(3):
        parallel(inputs[rank]).square().mean().backward()
    torch.manual_seed(0)
    alone = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 2))
    for _ in range(3):
        alone(inputs.flatten(0, 1)).square().mean().backward()
    for one, other in zip(model.parameters(), alone.parameters()):
        assert torch.allclose(one.grad, other.grad, atol=1e-6), (one.grad - other.grad).abs().max()


def case_fully_sharded():
    if int(torch.__version__.split(".", maxsplit=1)[0]) < 2:
        return  # torch 1 shards on GPUs alone
    from torch.distributed.fsdp import FullyShardedDataParallel
    torch.manual_seed(0)
    model = FullyShardedDataParallel(torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 2)),
                                     device_id=torch.device("cpu"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(7)
    inputs = torch.randn(size, 6, 20)
    losses = []
    for _ in range(4):
        loss = model(inputs[rank]).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def main():
    if sys.argv[2:]:
        dist.init_process_group(sys.argv[2])
    else:
        dist.init_process_group("tutti")
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    for name, case in list(globals().items()):
        if not name.startswith("case_") or wanted not in name:
            continue
        error = ""
        started = time.monotonic()
        try:
            case()
        except Exception:
            error = traceback.format_exc()
        errors = [None] * size
        dist.all_gather_object(errors, error)
        failed = "; ".join(f"rank {each}: {text}" for each, text in enumerate(errors) if text)
        if rank == 0:
            print(f"FAIL {name}: {failed!r}" if failed else f"PASS {name} {time.monotonic() - started:.3f} s", flush=True)
        if failed:
            break  # a rank that stopped in the middle is out of step with the others
    dist.destroy_process_group()
    print(f"END {rank}", flush=True)


if __name__ == "__main__":
    main()
