#!/usr/bin/env python3
"""A GPU rank is killed (SIGKILL) amid all-reduces: every other rank's kernel ends, its communicator says which rank
died, and its GPU serves a new communicator. With `engines`: amid all-gathers into windows, which go by copy engines.

    tests/gpu/death_check.py BUILD [RANKS] [engines]
"""
import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import time

SECONDS = 10  # in which a survivor has to know
COUNT = 1 << 20
GATHERED = 16 << 20
SYMMETRIC = 1  # NCCL_WIN_COLL_SYMMETRIC
FLOAT, SUM, REMOTE_ERROR = 7, 0, 6


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


class Rank:
    """A rank of this process's own: its GPU's context, a stream and a buffer."""

    def __init__(self, build, rank):
        self.nccl = ctypes.CDLL(str(pathlib.Path(build, "lib/libnccl.so.2")))
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.nccl.ncclGetLastError.restype = ctypes.c_char_p
        count, device = ctypes.c_int(), ctypes.c_int()
        self.driver("cuInit", 0)
        self.driver("cuDeviceGetCount", ctypes.byref(count))
        self.driver("cuDeviceGet", ctypes.byref(device), rank % count.value)
        self.rank, self.window = rank, None
        self.context, self.stream, self.buffer = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.driver("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.driver("cuCtxSetCurrent", self.context)
        self.driver("cuStreamCreate", ctypes.byref(self.stream), 1)
        self.driver("cuMemAlloc_v2", ctypes.byref(self.buffer), ctypes.c_size_t(4 * COUNT))
        self.driver("cuMemsetD32_v2", self.buffer, ctypes.c_uint(0), ctypes.c_size_t(COUNT))

    def driver(self, name, *arguments):
        result = getattr(self.cuda, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name}: {result}")

    def call(self, name, *arguments):
        return getattr(self.nccl, name)(*arguments)

    def error(self):
        return self.call("ncclGetLastError", None).decode()

    def join(self, number, unique, rank):
        comm = ctypes.c_void_p()
        result = self.nccl.ncclCommInitRank(ctypes.byref(comm), number, unique, rank)
        if result != 0:
            raise RuntimeError(f"ncclCommInitRank: {result}: {self.error()}")
        return comm

    def open_window(self, comm):
        """From here on reduce() gathers, in place, 64 MB of each rank of two."""
        self.window, handle = ctypes.c_void_p(), ctypes.c_void_p()
        size = ctypes.c_size_t(8 * GATHERED)
        if self.call("ncclMemAlloc", ctypes.byref(self.window), size) != 0 or \
                self.call("ncclCommWindowRegister", comm, self.window, size, ctypes.byref(handle), SYMMETRIC) != 0:
            raise RuntimeError(self.error())

    def reduce(self, comm):
        if self.window is not None:
            own = ctypes.c_void_p(self.window.value + self.rank * 4 * GATHERED)
            return self.call("ncclAllGather", own, self.window, ctypes.c_size_t(GATHERED), FLOAT, comm, self.stream)
        return self.call("ncclAllReduce", self.buffer, self.buffer, ctypes.c_size_t(COUNT), FLOAT, SUM, comm,
                         self.stream)


def survive(rank, comm):
    """The first error that this rank meets, and when."""
    while True:
        result = ctypes.c_int()
        rank.call("ncclCommGetAsyncError", comm, ctypes.byref(result))
        if result.value != 0:
            return result.value, time.time()
        result = rank.reduce(comm)
        if result != 0:
            return result, time.time()
        time.sleep(0.001)


def run_rank(build, number, count, id_text, has_window):
    rank = Rank(build, number)
    unique = UniqueId()
    ctypes.memmove(ctypes.byref(unique), bytes.fromhex(id_text), 128)
    comm = rank.join(count, unique, number)
    if has_window:
        rank.open_window(comm)
    for _ in range(50):
        if rank.reduce(comm) != 0:
            raise RuntimeError(rank.error())
    rank.driver("cuStreamSynchronize", rank.stream)
    if number == count - 1:
        for _ in range(20):
            rank.reduce(comm)
        print(time.time(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    code, when = survive(rank, comm)
    rank.reduce(comm)
    text = rank.error()
    if rank.call("ncclCommAbort", comm) != 0:
        raise RuntimeError(f"ncclCommAbort: {rank.error()}")
    rank.driver("cuStreamSynchronize", rank.stream)
    rank.call("ncclGetUniqueId", ctypes.byref(unique))
    rank.window = None
    again = rank.join(1, unique, 0)
    if rank.reduce(again) != 0:
        raise RuntimeError(f"a new communicator: {rank.error()}")
    rank.driver("cuStreamSynchronize", rank.stream)
    rank.call("ncclCommDestroy", again)
    print(when, code, text.replace("\n", " "), flush=True)


def main():
    if len(sys.argv) == 6:
        run_rank(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5] == "engines")
        return 0
    build = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    # The root lives in this process, which takes part in nothing else.
    library = ctypes.CDLL(str(pathlib.Path(build, "lib/libnccl.so.2")))
    unique = UniqueId()
    library.ncclGetUniqueId(ctypes.byref(unique))
    ranks = [subprocess.Popen([sys.executable, __file__, build, str(rank), str(count), bytes(unique).hex(),
                               "engines" if "engines" in sys.argv else "kernels"],
                              stdout=subprocess.PIPE, text=True) for rank in range(count)]
    outputs = [rank.communicate(timeout=50)[0] for rank in ranks]
    died = float(outputs[-1])
    wrong = 0 if ranks[-1].returncode == -signal.SIGKILL else 1
    for number, output in enumerate(outputs[:-1]):
        if ranks[number].returncode != 0:
            print(f"rank {number} ended with {ranks[number].returncode}")
            wrong += 1
            continue
        when, code, text = output.split(" ", 2)
        print(f"rank {number}: error {code} after {float(when) - died:.2f} s: {text.strip()}")
        isRight = int(code) == REMOTE_ERROR and f"rank {count - 1}" in text and float(when) - died < SECONDS
        wrong += not isRight
    if wrong:
        print(f"FAILED: {wrong} ranks did not learn that rank {count - 1} died")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
