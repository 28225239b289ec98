#!/usr/bin/env python3
"""The calls of a serving engine such as vLLM, which loads libnccl.so.2 itself: through ctypes, beside PyTorch's own groups, on the
current stream, eagerly and in many CUDA graphs of one memory pool, on buffers that are windows of the communicator. Each element of
each result is checked.

    tests/gpu/vllm_check.py --ranks 2 --lib build/cuda/lib/libnccl.so.2

--device cpu, without GPUs: the same calls on memory of the host, no graphs. Exit code 77: there is no PyTorch.
"""
import argparse
import contextlib
import ctypes
import os
import socket
import subprocess
import sys

try:
    import torch
    import torch.distributed as dist
except ImportError:
    print("skipped: PyTorch is not installed for this Python")
    sys.exit(77)

HIDDEN = 1024  # of a token
BATCHES = (1, 2, 3, 8, 17, 64, 256)
LAYERS = 60  # all-reduces of a graph: more in all graphs than a communicator keeps registered buffers of
TYPES = {torch.float32: 7, torch.float16: 6, torch.bfloat16: 9}
SUM, SYMMETRIC = 0, 1


class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


class Memory:
    """Memory of the library's as an array that PyTorch can share."""

    def __init__(self, address, count):
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "<f4", "data": (address, False), "version": 3}


class Engine:
    """A communicator as the engine has it."""

    def __init__(self, path, device):
        self.rank, self.size, self.device = dist.get_rank(), dist.get_world_size(), device
        self.isOnGpu = device.type == "cuda"
        self.library = ctypes.CDLL(path)
        self.library.ncclGetErrorString.restype = self.library.ncclGetLastError.restype = ctypes.c_char_p
        version = ctypes.c_int()
        self.call("ncclGetVersion", ctypes.byref(version))
        name = Id()
        if self.rank == 0:
            self.call("ncclGetUniqueId", ctypes.byref(name))
        carried = torch.ByteTensor(list(bytes(name)))
        dist.broadcast(carried, 0)
        name = Id.from_buffer_copy(bytes(carried.tolist()))
        self.comm = ctypes.c_void_p()
        self.call("ncclCommInitRank", ctypes.byref(self.comm), ctypes.c_int(self.size), name, ctypes.c_int(self.rank))
        self.all_reduce(torch.zeros(1, device=device))  # the first call connects
        self.synchronize()
        if self.rank == 0:
            print(f"version {version.value}, {self.size} ranks on {device.type}", flush=True)

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            raise AssertionError(f"{name}: {self.library.ncclGetErrorString(code).decode()}: {self.library.ncclGetLastError(None).decode()}")

    @property
    def stream(self):
        return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream if self.isOnGpu else 0)

    def synchronize(self):
        if self.isOnGpu:
            torch.cuda.current_stream().synchronize()

    def all_reduce(self, data, out=None):
        out = torch.empty_like(data) if out is None else out
        self.call("ncclAllReduce", pointer(data), pointer(out), ctypes.c_size_t(data.numel()), TYPES[data.dtype], SUM, self.comm, self.stream)
        return out

    def all_gather(self, data):
        out = data.new_empty((self.size * data.shape[0], *data.shape[1:]))
        self.call("ncclAllGather", pointer(data), pointer(out), ctypes.c_size_t(data.numel()), TYPES[data.dtype], self.comm, self.stream)
        return out

    def reduce_scatter(self, data):
        out = data.new_empty((data.shape[0] // self.size, *data.shape[1:]))
        self.call("ncclReduceScatter", pointer(data), pointer(out), ctypes.c_size_t(out.numel()), TYPES[data.dtype], SUM, self.comm, self.stream)
        return out

    @contextlib.contextmanager
    def group(self):
        self.call("ncclGroupStart")
        yield
        self.call("ncclGroupEnd")

    def all_gather_uneven(self, data, lengths):
        """Parts of unequal length: a group of broadcasts."""
        out = data.new_empty((sum(lengths), *data.shape[1:]))
        with self.group():
            for root, part in enumerate(out.split(lengths)):
                self.call("ncclBroadcast", pointer(data), pointer(part), ctypes.c_size_t(part.numel()), TYPES[data.dtype], root, self.comm, self.stream)
        return out

    def reduce_scatter_uneven(self, data, lengths):
        out = data.new_empty((lengths[self.rank], *data.shape[1:]))
        with self.group():
            for root, part in enumerate(data.split(lengths)):
                self.call("ncclReduce", pointer(part), pointer(out), ctypes.c_size_t(part.numel()), TYPES[data.dtype], SUM, root, self.comm, self.stream)
        return out

    def pass_on(self, data):
        """To the next stage of a pipeline, from the one before."""
        out = torch.empty_like(data)
        count, kind = ctypes.c_size_t(data.numel()), TYPES[data.dtype]
        with self.group():
            self.call("ncclSend", pointer(data), count, kind, (self.rank + 1) % self.size, self.comm, self.stream)
            self.call("ncclRecv", pointer(out), count, kind, (self.rank - 1) % self.size, self.comm, self.stream)
        return out


def data_of(rank, shape, seed, dtype, device):
    """Small whole numbers, whose sums every type holds exactly."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return torch.randint(-8, 9, shape, generator=generator).to(dtype).to(device)


def sum_of(engine, shape, seed, dtype):
    return sum(data_of(rank, shape, seed, torch.float32, engine.device) for rank in range(engine.size)).to(dtype)


def expect(what, got, wanted):
    if not torch.equal(got, wanted):
        wrong = (got != wanted).nonzero()
        raise AssertionError(f"{what}: {len(wrong)} of {got.numel()} elements are wrong, the first at {wrong[0].tolist()}")


def check_eager(engine):
    for seed, dtype in enumerate(TYPES):
        for batch in BATCHES:
            shape = (batch * engine.size, HIDDEN)
            own = data_of(engine.rank, shape, seed, dtype, engine.device)
            all_data = [data_of(rank, shape, seed, dtype, engine.device) for rank in range(engine.size)]
            total = sum_of(engine, shape, seed, dtype)
            what = f"{batch} tokens of {dtype}"
            expect(f"all-reduce, {what}", engine.all_reduce(own), total)
            expect(f"all-gather, {what}", engine.all_gather(own), torch.cat(all_data))
            expect(f"reduce-scatter, {what}", engine.reduce_scatter(own), total.chunk(engine.size)[engine.rank])
            expect(f"pipeline, {what}", engine.pass_on(own), all_data[engine.rank - 1])
            lengths = [batch + 2 * rank for rank in range(engine.size)]
            parts = [data_of(rank, (lengths[rank], HIDDEN), seed, dtype, engine.device) for rank in range(engine.size)]
            expect(f"uneven all-gather, {what}", engine.all_gather_uneven(parts[engine.rank], lengths), torch.cat(parts))
            whole = (sum(lengths), HIDDEN)
            expect(f"uneven reduce-scatter, {what}",
                   engine.reduce_scatter_uneven(data_of(engine.rank, whole, seed, dtype, engine.device), lengths),
                   sum_of(engine, whole, seed, dtype).split(lengths)[engine.rank])  # fmt: skip


def check_graphs(engine):
    """A graph a batch size, the longest first, all in one pool; a layer halves what the sum of equal ranks gives, so values stay."""
    pool, captured = None, []
    for batch in reversed(BATCHES):
        given = torch.zeros(batch, HIDDEN, dtype=torch.bfloat16, device=engine.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            value = given
            for _ in range(LAYERS):
                value = engine.all_reduce(value) / engine.size
        pool = graph.pool()
        captured.append((batch, graph, given, value))
    for turn in range(3):
        for batch, graph, given, value in captured:
            own = data_of(0, (batch, HIDDEN), turn, torch.bfloat16, engine.device)  # the same on all ranks
            given.copy_(own)
            graph.replay()
            expect(f"graph of {batch} tokens, turn {turn}", value, own)
        expect("all-reduce between graphs", engine.all_reduce(own), own * engine.size)


def check_windows(engine):
    """Buffers of the library's that are windows, as the engine's pool for graphs has them."""
    count = 4 * max(BATCHES) * HIDDEN
    address, window = ctypes.c_void_p(), ctypes.c_void_p()
    engine.call("ncclMemAlloc", ctypes.byref(address), ctypes.c_size_t(4 * count))
    engine.call("ncclCommWindowRegister", engine.comm, address, ctypes.c_size_t(4 * count), ctypes.byref(window), SYMMETRIC)
    if engine.isOnGpu:
        whole = torch.as_tensor(Memory(address.value, count), device=engine.device)
    else:
        whole = torch.frombuffer((ctypes.c_char * (4 * count)).from_address(address.value), dtype=torch.float32)
    half = count // 2
    for seed, batch in enumerate(BATCHES):
        shape = (batch, HIDDEN)
        given, out = (part[: batch * HIDDEN].view(shape) for part in (whole[:half], whole[half:]))
        given.copy_(data_of(engine.rank, shape, seed, torch.float32, engine.device))
        engine.synchronize()
        expect(f"all-reduce of a window, {batch} tokens", engine.all_reduce(given, out), sum_of(engine, shape, seed, torch.float32))
    if engine.isOnGpu:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(LAYERS):
                engine.all_reduce(given, out)
        out.fill_(-1)
        graph.replay()
        expect("graph on a window", out, sum_of(engine, shape, seed, torch.float32))
        torch.cuda.synchronize()
        del graph
    del whole, given, out
    engine.call("ncclCommWindowDeregister", engine.comm, window)
    engine.call("ncclMemFree", address)


def run(path, device):
    dist.init_process_group("gloo")
    if device == "cuda":
        place = torch.device("cuda", dist.get_rank() % torch.cuda.device_count())
        torch.cuda.set_device(place)
    else:
        place = torch.device("cpu")
    engine = Engine(path, place)
    check_eager(engine)
    check_windows(engine)
    if engine.isOnGpu:
        check_graphs(engine)
        torch.cuda.synchronize()
    engine.call("ncclCommDestroy", engine.comm)
    dist.destroy_process_group()
    if engine.rank == 0:
        print("right", flush=True)


def lead(ranks):
    """Starts this program once a rank; the exit code is the first that is not 0."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    children = [subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, **place, "RANK": str(rank)}) for rank in range(ranks)]
    codes = [child.wait() for child in children]
    return next((code for code in codes if code != 0), 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", required=True, help="the libnccl.so.2 to load")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    if "RANK" not in os.environ:
        sys.exit(lead(options.ranks))
    run(options.lib, options.device)


if __name__ == "__main__":
    main()
