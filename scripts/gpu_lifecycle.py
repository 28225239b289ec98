#!/usr/bin/env python3
"""What a communicator of GPU ranks costs besides its transfers: start, end, first call, memory, the host's side of a call.
A process a rank; libraries in turn; the slowest rank's figures. The first library's stand beside what it is to keep to, and
one that does not is an error.

    scripts/gpu_lifecycle.py --lib build/cuda/lib/libnccl.so.2 --lib /path/to/nccl/lib/libnccl.so.2 --ranks 2 \\
        --enqueue build/cuda/bin/gpu_enqueue
"""
import argparse
import ctypes
import json
import os
import resource
import subprocess
import sys
import time

FLOAT, SUM = 7, 0
CALLS, GROUP, IDLE_SECONDS = 200, 50, 2
# At most; for 2 and for 4 ranks. Python's own calls cost some microseconds, so those count that a C++ program makes.
TARGETS = {"init_cold_us": 250_000, "init_warm_us": 50_000, "first_all_reduce_us": 2_000, "memory_used_mb": 32, "destroy_us": 10_000,
           "idle_cpu_percent": 0.5, "enqueue_cpp_us": 3, "group_of_50_cpp_us": 100}


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


class Gpu:
    """The driver: this process's context, a stream, memory."""

    def __init__(self, rank):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        count, device = ctypes.c_int(), ctypes.c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGetCount", ctypes.byref(count))
        self.call("cuDeviceGet", ctypes.byref(device), rank % count.value)
        context, self.stream = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.call("cuStreamCreate", ctypes.byref(self.stream), 1)

    def call(self, name, *arguments):
        result = getattr(self.cuda, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name}: {result}")

    def allocate(self, size):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return ctypes.c_void_p(address.value)

    def synchronize(self):
        self.call("cuStreamSynchronize", self.stream)

    def used_mb(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return (total.value - free.value) / 2**20


class Rank:
    def __init__(self, library, rank, count):
        self.gpu = Gpu(rank)
        self.nccl = ctypes.CDLL(library)
        self.nccl.ncclGetLastError.restype = ctypes.c_char_p
        self.rank, self.count = rank, count
        self.comm = None
        self.figures = {}

    def timed(self, name, work, per=1):
        began = time.perf_counter()
        work()
        self.figures[name] = (time.perf_counter() - began) / per * 1e6

    def call(self, name, *arguments):
        if getattr(self.nccl, name)(*arguments) != 0:
            raise RuntimeError(f"{name}: {self.nccl.ncclGetLastError(None).decode()}")

    def meet(self):
        """All ranks: through a line each way with the parent."""
        print(json.dumps("here"), flush=True)
        return json.loads(sys.stdin.readline())

    def start(self, name):
        """A communicator, timed without the exchange of the id."""
        mine = UniqueId()
        if self.rank == 0:
            self.call("ncclGetUniqueId", ctypes.byref(mine))
        print(json.dumps(list(bytes(mine))), flush=True)
        unique = UniqueId.from_buffer_copy(bytes(json.loads(sys.stdin.readline())))
        comm = ctypes.c_void_p()
        self.timed(name, lambda: self.call("ncclCommInitRank", ctypes.byref(comm), self.count, unique, self.rank))
        self.comm = comm

    def reduce(self, buffer, count=256):
        self.call("ncclAllReduce", buffer, buffer, ctypes.c_size_t(count), FLOAT, SUM, self.comm, self.gpu.stream)

    def group(self, buffer):
        self.call("ncclGroupStart")
        for _ in range(GROUP):
            self.reduce(buffer)
        self.call("ncclGroupEnd")

    def use_everything(self, buffer, count):
        size, n = ctypes.c_size_t, self.count
        stream, comm = self.gpu.stream, self.comm
        self.call("ncclAllReduce", buffer, buffer, size(count), FLOAT, SUM, comm, stream)
        self.call("ncclReduceScatter", buffer, buffer, size(count // n), FLOAT, SUM, comm, stream)
        self.call("ncclAllGather", buffer, buffer, size(count // n), FLOAT, comm, stream)
        self.call("ncclBroadcast", buffer, buffer, size(count), FLOAT, 0, comm, stream)
        self.call("ncclReduce", buffer, buffer, size(count), FLOAT, SUM, 0, comm, stream)
        self.call("ncclGroupStart")
        for peer in range(n):
            self.call("ncclSend", buffer, size(count // n), FLOAT, peer, comm, stream)
            self.call("ncclRecv", ctypes.c_void_p(buffer.value + 4 * count), size(count // n), FLOAT, peer, comm,
                      stream)
        self.call("ncclGroupEnd")
        self.gpu.synchronize()

    def run(self):
        gpu = self.gpu
        count = 16 << 20
        buffer = gpu.allocate(8 * count)
        self.meet()
        before = gpu.used_mb()
        self.start("init_cold_us")
        self.figures["memory_init_mb"] = gpu.used_mb() - before
        self.meet()
        self.timed("first_all_reduce_us", lambda: (self.reduce(buffer), gpu.synchronize()))
        self.meet()
        for size in (1024, 1 << 20, count):
            self.use_everything(buffer, size)
        self.figures["memory_used_mb"] = gpu.used_mb() - before
        enqueue, group = [], []
        for _ in range(10):
            self.meet()
            self.timed("enqueue_us", lambda: [self.reduce(buffer) for _ in range(CALLS)], CALLS)
            enqueue.append(self.figures["enqueue_us"])
            gpu.synchronize()
            self.meet()
            self.timed("group_of_50_us", lambda: (self.group(buffer), gpu.synchronize()))
            group.append(self.figures["group_of_50_us"])
        self.figures["enqueue_us"], self.figures["group_of_50_us"] = min(enqueue), min(group)
        self.meet()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        time.sleep(IDLE_SECONDS)
        after = resource.getrusage(resource.RUSAGE_SELF)
        spent = after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime
        self.figures["idle_cpu_percent"] = spent / IDLE_SECONDS * 100
        self.meet()
        first = self.comm
        self.start("init_warm_us")
        self.meet()
        self.timed("destroy_us", lambda: self.call("ncclCommDestroy", self.comm))
        self.meet()
        self.call("ncclCommDestroy", first)
        print(json.dumps(self.figures), flush=True)


def lead(library, ranks):
    """Answers each round of lines with the first rank's; returns the worst of all figures."""
    environment = {**os.environ, "CUDA_DEVICE_MAX_CONNECTIONS": "32"}
    children = [subprocess.Popen([sys.executable, __file__, "--rank", str(rank), "--ranks", str(ranks), "--lib", library],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
                for rank in range(ranks)]
    while True:
        answers = []
        for child in children:
            line = child.stdout.readline()
            while line and line[0] not in '["{':
                line = child.stdout.readline()  # what a library prints
            answers.append(json.loads(line) if line else None)
        if None in answers:
            raise SystemExit(f"{library}: a rank ended early")
        if isinstance(answers[0], dict):
            for child in children:
                child.wait()
            return {name: max(answer[name] for answer in answers) for name in answers[0]}
        for child in children:
            child.stdin.write(json.dumps(answers[0]) + "\n")
            child.stdin.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", action="append", required=True, help="a libnccl.so.2; may be given several times")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2, help="runs of each library, in turn; the least counts")
    parser.add_argument("--enqueue", help="the program that times calls from C++")
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        Rank(options.lib[0], options.rank, options.ranks).run()
        return
    best = {library: {} for library in options.lib}
    for _ in range(options.rounds):
        for library in options.lib:
            for name, value in lead(library, options.ranks).items():
                best[library][name] = min(value, best[library].get(name, value))
    if options.enqueue:
        told = subprocess.run([options.enqueue, str(options.ranks), *options.lib], capture_output=True, text=True, timeout=90,
                              env={**os.environ, "CUDA_DEVICE_MAX_CONNECTIONS": "32"}, check=True).stdout
        for library, line in zip(options.lib, [line for line in told.splitlines() if line.startswith("{")]):
            best[library].update(json.loads(line))
    missed = 0
    for name, value in best[options.lib[0]].items():
        target = TARGETS.get(name)
        missed += target is not None and value > target
        print(f"{name:22}" + "".join(f"{best[library][name]:12.1f}" for library in options.lib)
              + (f"   at most {target}{': FAIL' if value > target else ''}" if target is not None else ""))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(list(best.values()), file)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
