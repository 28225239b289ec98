#!/usr/bin/env python3
"""CuPy's two interfaces with whichever libnccl.so.2 is loaded: cupy.cuda.nccl, all of its calls, a communicator a GPU in one thread;
and cupyx.distributed, all of its calls, a process a GPU. --ranks: more than there are GPUs share them.

    LD_PRELOAD=build/cuda/lib/libnccl.so.2 tests/gpu/cupy_check.py
"""
import argparse
import multiprocessing
import socket
import sys

import cupy
import numpy
from cupy.cuda import nccl

COUNT = 100_003
TYPES = {"float16": nccl.NCCL_FLOAT16, "float32": nccl.NCCL_FLOAT32, "float64": nccl.NCCL_FLOAT64, "int8": nccl.NCCL_INT8,
         "uint8": nccl.NCCL_UINT8, "int32": nccl.NCCL_INT32, "uint32": nccl.NCCL_UINT32, "int64": nccl.NCCL_INT64,
         "uint64": nccl.NCCL_UINT64}


def check(what, got, wanted):
    got, wanted = cupy.asnumpy(got), numpy.asarray(wanted)
    if not (got == wanted).all():
        raise AssertionError(f"{what}: {got.ravel()[:4]} instead of {wanted.ravel()[:4]}")


def place_of(rank):
    return rank % cupy.cuda.runtime.getDeviceCount()


class OneThread:
    """All ranks' communicators, driven by this thread."""

    def __init__(self, count):
        self.count = count
        self.comms = nccl.NcclCommunicator.initAll([place_of(rank) for rank in range(count)])
        self.streams = []
        for rank in range(self.count):
            with cupy.cuda.Device(place_of(rank)):
                self.streams.append(cupy.cuda.Stream(non_blocking=True))

    def arrays(self, value, factor=1, dtype="float32"):
        """One a rank, of value(rank)."""
        made = []
        for rank in range(self.count):
            with cupy.cuda.Device(place_of(rank)):
                made.append(cupy.full(COUNT * factor, value(rank), dtype=dtype))
                cupy.cuda.Device(place_of(rank)).synchronize()
        return made

    def each(self, call):
        nccl.groupStart()
        for rank in range(self.count):
            with cupy.cuda.Device(place_of(rank)):
                call(rank, self.comms[rank], self.streams[rank].ptr)
        nccl.groupEnd()
        for rank in range(self.count):
            with cupy.cuda.Device(place_of(rank)):
                self.streams[rank].synchronize()
                self.comms[rank].check_async_error()

    def reductions(self):
        n = self.count
        for name, dtype in TYPES.items():
            for op, wanted in ((nccl.NCCL_SUM, n * (n + 1) // 2), (nccl.NCCL_MAX, n), (nccl.NCCL_MIN, 1),
                               (nccl.NCCL_PROD, int(numpy.prod(range(1, n + 1))))):
                own, all_of = self.arrays(lambda rank: rank + 1, dtype=name), self.arrays(lambda rank: 0, dtype=name)
                self.each(lambda rank, comm, stream, a=own, b=all_of: comm.allReduce(
                    a[rank].data.ptr, b[rank].data.ptr, COUNT, dtype, op, stream))
                for target in all_of:
                    check(f"allReduce {name}", target, wanted)
        own, target = self.arrays(lambda rank: rank + 1), self.arrays(lambda rank: 0)
        self.each(lambda rank, comm, stream: comm.reduce(own[rank].data.ptr, target[rank].data.ptr, COUNT, nccl.NCCL_FLOAT32,
                                                        nccl.NCCL_SUM, n - 1, stream))
        check("reduce", target[n - 1], n * (n + 1) / 2)
        whole = self.arrays(lambda rank: rank + 1, factor=n)
        self.each(lambda rank, comm, stream: comm.reduceScatter(whole[rank].data.ptr, target[rank].data.ptr, COUNT,
                                                               nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream))
        for part in target:
            check("reduceScatter", part, n * (n + 1) / 2)

    def moves(self):
        n = self.count
        own, whole = self.arrays(lambda rank: rank + 1), self.arrays(lambda rank: 0, factor=n)
        self.each(lambda rank, comm, stream: comm.allGather(own[rank].data.ptr, whole[rank].data.ptr, COUNT, nccl.NCCL_FLOAT32, stream))
        for target in whole:
            check("allGather", target, numpy.repeat(numpy.arange(1, n + 1, dtype="float32"), COUNT))
        target = self.arrays(lambda rank: 0)
        self.each(lambda rank, comm, stream: comm.broadcast(own[rank].data.ptr, target[rank].data.ptr, COUNT, nccl.NCCL_FLOAT32, 0, stream))
        for part in target:
            check("broadcast", part, 1)

        def ring(rank, comm, stream):
            comm.send(own[rank].data.ptr, COUNT, nccl.NCCL_FLOAT32, (rank + 1) % n, stream)
            comm.recv(target[rank].data.ptr, COUNT, nccl.NCCL_FLOAT32, (rank - 1) % n, stream)

        self.each(ring)
        for rank in range(n):
            check("send and recv", target[rank], (rank - 1) % n + 1)
        self.each(lambda rank, comm, stream: comm.bcast(own[rank].data.ptr, COUNT, nccl.NCCL_FLOAT32, n - 1, stream))
        for source in own:
            check("bcast", source, n)

    def ends(self):
        for rank, comm in enumerate(self.comms):
            if (comm.size(), comm.rank_id(), comm.device_id()) != (self.count, rank, place_of(rank)):
                raise AssertionError(f"rank {rank} is {comm.rank_id()} of {comm.size()} on {comm.device_id()}")
        for comm in nccl.NcclCommunicator.initAll([place_of(rank) for rank in range(self.count)]):
            comm.abort()
        for comm in self.comms:
            comm.destroy()


def check_split(comm, rank, count):
    """By twos, in falling order of rank, with and without a config."""
    for config in (None, nccl.NcclConfig(split_share=1)):
        part = comm.commSplit(rank // 2, -rank, config)
        size = min(2, count - rank // 2 * 2)
        place = size - 1 - rank % 2
        if (part.size(), part.rank_id()) != (size, place):
            raise AssertionError(f"commSplit: {part.rank_id()} of {part.size()} instead of {place} of {size}")
        data = cupy.ones(COUNT, dtype="float32")
        part.allReduce(data.data.ptr, data.data.ptr, COUNT, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, 0)
        check("allReduce of a split", data, size)
        part.destroy()


def check_process(rank, count, port):
    """cupyx.distributed, this process's rank."""
    # Its store is a process that is started from a method: it cannot be handed over.
    multiprocessing.set_start_method("fork", force=True)
    from cupyx import distributed
    from cupyx.scipy import sparse
    cupy.cuda.Device(place_of(rank)).use()
    group = distributed.init_process_group(count, rank, port=port)
    total = count * (count + 1) // 2
    for dtype in ("float32", "float64", "float16", "int32", "int64", "complex64"):
        own, got = cupy.full(COUNT, rank + 1, dtype=dtype), cupy.zeros(COUNT, dtype=dtype)
        group.all_reduce(own, got)
        check(f"all_reduce {dtype}", got, total)
    for op, wanted in (("max", count), ("min", 1), ("prod", numpy.prod(range(1, count + 1)))):
        own, got = cupy.full(COUNT, rank + 1, dtype="float32"), cupy.zeros(COUNT, dtype="float32")
        group.all_reduce(own, got, op)
        check(f"all_reduce {op}", got, wanted)
    whole = cupy.zeros((count, COUNT), dtype="float32")
    ramp = cupy.arange(1, count + 1, dtype="float32").reshape(count, 1)
    group.reduce(own, got, root=count - 1)
    if rank == count - 1:
        check("reduce", got, total)
    group.all_gather(own, whole, COUNT)
    check("all_gather", whole, cupy.asnumpy(ramp + cupy.zeros_like(whole)))
    group.reduce_scatter(cupy.full((count, COUNT), rank + 1, dtype="float32"), got, COUNT)
    check("reduce_scatter", got, total)
    group.scatter(cupy.ascontiguousarray(ramp + cupy.zeros_like(whole)), got, root=0)
    check("scatter", got, rank + 1)
    whole.fill(0)
    group.gather(own, whole, root=0)
    if rank == 0:
        check("gather", whole, cupy.asnumpy(ramp + cupy.zeros_like(whole)))
    exchanged = cupy.zeros_like(whole)
    group.all_to_all(cupy.ascontiguousarray(ramp * 10 + rank + cupy.zeros_like(whole)), exchanged)
    check("all_to_all", exchanged, cupy.asnumpy(cupy.full_like(exchanged, (rank + 1) * 10) + ramp - 1))
    if rank % 2 == 0 and rank + 1 < count:
        group.send(own, rank + 1)
        group.recv(got, rank + 1)
        check("recv", got, rank + 2)
    elif rank % 2:
        group.recv(got, rank - 1)
        check("recv", got, rank)
        group.send(own, rank - 1)
    if rank ^ 1 < count:
        group.send_recv(own, got, rank ^ 1)
        check("send_recv", got, (rank ^ 1) + 1)
    group.broadcast(own, root=count - 1)
    check("broadcast", own, count)
    # Sparse arrays: shapes and parts, exchanged by calls of their own.
    matrix = sparse.csr_matrix(cupy.eye(100, dtype="float32") * (rank + 1))
    result = sparse.csr_matrix(cupy.zeros((100, 100), dtype="float32"))
    group.all_reduce(matrix, result)
    check("all_reduce of sparse arrays", result.todense(), cupy.asnumpy(cupy.eye(100) * total))
    check_split(group._comm, rank, count)
    cupy.cuda.Device(place_of(rank)).synchronize()
    group.barrier()
    group.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=cupy.cuda.runtime.getDeviceCount())
    one = OneThread(parser.parse_args().ranks)
    one.reductions()
    one.moves()
    one.ends()
    print(f"cupy.cuda.nccl {nccl.get_version()}: {one.count} ranks, all calls are right")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spawn = multiprocessing.get_context("spawn")
    ranks = [spawn.Process(target=check_process, args=(rank, one.count, port)) for rank in range(one.count)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(timeout=45)
    codes = [rank.exitcode for rank in ranks]
    for rank in ranks:
        if rank.exitcode is None:
            rank.kill()
    print(f"cupyx.distributed: {'all calls are right' if not any(codes) and None not in codes else f'FAIL: exit codes {codes}'}")
    return 0 if all(code == 0 for code in codes) else 1


if __name__ == "__main__":
    sys.exit(main())
