#!/usr/bin/env python3
"""A GPU rank, a process of its own among others, is killed (SIGKILL), stopped or late amid calls. The others' kernels end, their
communicators say who it was, and their GPUs serve what the survivors make next: a communicator by ncclCommShrink, and one
by a new id, on which they all-reduce and look at each element.

    tests/gpu/death_check.py BUILD RANKS WHAT

WHAT: killed, amid all-reduces; queued, amid all-reduces that the others enqueue without a pause, until the driver holds them up;
engines, amid all-gathers into windows, which go by copy engines; replays, amid replays of a graph;
stopped (SIGSTOP) for longer than TUTTI_TIMEOUT_MS, and the others give it up; paused for less than that, late (alive, and calls
late): waited for, and all is right.
"""
import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import time

SECONDS = {"stopped": 4}  # in which a survivor has to know, beyond what the watch takes
PATIENCE = 6
SLACK_MB = 64  # of a GPU's memory
COUNT = 1 << 20
GATHERED = 16 << 20
SYMMETRIC, SHRINK_ABORT, THREAD_LOCAL = 1, 1, 1
INT, FLOAT, SUM, REMOTE_ERROR = 2, 7, 0, 6
TIMEOUT_MS = {"stopped": 1000, "paused": 4000, "late": 1000}
AWAY = {"stopped": 5.0, "paused": 1.0, "late": 3.0}  # seconds


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def make_id(library):
    unique = UniqueId()
    if library.ncclGetUniqueId(ctypes.byref(unique)) != 0:
        raise RuntimeError("ncclGetUniqueId")
    return unique


class Rank:
    """A rank of this process's own: its GPU's context, a stream and a buffer."""

    def __init__(self, build, rank, count):
        self.nccl = ctypes.CDLL(str(pathlib.Path(build, "lib/libnccl.so.2")))
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.nccl.ncclGetLastError.restype = ctypes.c_char_p
        gpus, device = ctypes.c_int(), ctypes.c_int()
        self.driver("cuInit", 0)
        self.driver("cuDeviceGetCount", ctypes.byref(gpus))
        self.driver("cuDeviceGet", ctypes.byref(device), rank % gpus.value)
        self.rank, self.count, self.window, self.graph = rank, count, None, None
        self.context, self.stream, self.buffer = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.driver("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.driver("cuCtxSetCurrent", self.context)
        self.driver("cuStreamCreate", ctypes.byref(self.stream), 1)
        self.driver("cuMemAlloc_v2", ctypes.byref(self.buffer), ctypes.c_size_t(4 * COUNT))
        self.driver("cuMemsetD8Async", self.buffer, ctypes.c_ubyte(0), ctypes.c_size_t(4 * COUNT), self.stream)
        self.synchronize()

    def driver(self, name, *arguments):
        result = getattr(self.cuda, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name}: {result}")

    def synchronize(self):
        self.driver("cuStreamSynchronize", self.stream)

    def call(self, name, *arguments):
        return getattr(self.nccl, name)(*arguments)

    def must(self, name, *arguments):
        if (result := self.call(name, *arguments)) != 0:
            raise RuntimeError(f"{name}: {result}: {self.error()}")

    def error(self):
        return self.call("ncclGetLastError", None).decode()

    def join(self, number, unique, rank):
        comm = ctypes.c_void_p()
        self.must("ncclCommInitRank", ctypes.byref(comm), number, unique, rank)
        return comm

    def prepare(self, what, comm):
        """From here on act() does what the case is about."""
        if what == "engines":  # gathers, in place, into a window
            self.window, handle = ctypes.c_void_p(), ctypes.c_void_p()
            size = ctypes.c_size_t(4 * self.count * GATHERED)
            self.must("ncclMemAlloc", ctypes.byref(self.window), size)
            self.must("ncclCommWindowRegister", comm, self.window, size, ctypes.byref(handle), SYMMETRIC)
        if what == "replays":
            graph, self.graph = ctypes.c_void_p(), ctypes.c_void_p()
            self.driver("cuStreamBeginCapture_v2", self.stream, THREAD_LOCAL)
            for _ in range(4):
                self.must("ncclAllReduce", self.buffer, self.buffer, ctypes.c_size_t(COUNT), FLOAT, SUM, comm, self.stream)
            self.driver("cuStreamEndCapture", self.stream, ctypes.byref(graph))
            self.driver("cuGraphInstantiateWithFlags", ctypes.byref(self.graph), graph, ctypes.c_ulonglong(0))

    def act(self, comm):
        if self.graph is not None:
            # One at a time: a full queue of launches would hold the host, which is to look for errors.
            self.driver("cuGraphLaunch", self.graph, self.stream)
            self.synchronize()
            return 0
        if self.window is not None:
            own = ctypes.c_void_p(self.window.value + self.rank * 4 * GATHERED)
            return self.call("ncclAllGather", own, self.window, ctypes.c_size_t(GATHERED), FLOAT, comm, self.stream)
        return self.call("ncclAllReduce", self.buffer, self.buffer, ctypes.c_size_t(COUNT), FLOAT, SUM, comm, self.stream)

    def sum_is_right(self, comm, rank, number):
        """Of rank + 1, in each element, with a count that nothing divides."""
        odd = COUNT - 3
        mine = (ctypes.c_int32 * odd)(*([rank + 1] * odd))
        got = (ctypes.c_int32 * odd)()
        size = ctypes.c_size_t(4 * odd)
        self.driver("cuMemcpyAsync", self.buffer, ctypes.cast(mine, ctypes.c_void_p), size, self.stream)
        self.synchronize()
        self.must("ncclAllReduce", self.buffer, self.buffer, ctypes.c_size_t(odd), INT, SUM, comm, self.stream)
        self.synchronize()
        self.driver("cuMemcpyAsync", ctypes.cast(got, ctypes.c_void_p), self.buffer, size, self.stream)
        self.synchronize()
        wanted = number * (number + 1) // 2
        if set(got) != {wanted}:
            raise RuntimeError(f"rank {rank} of {number} has {sorted(set(got))[:4]} instead of {wanted}")


def survive(rank, comm, pause):
    """The first error that this rank meets, and when."""
    while True:
        result = ctypes.c_int()
        rank.call("ncclCommGetAsyncError", comm, ctypes.byref(result))
        if result.value != 0:
            return result.value, time.time()
        result = rank.act(comm)
        if result != 0:
            return result, time.time()
        time.sleep(pause)


def say(*words):
    print(*words, flush=True)


def go_on(rank, comm, victim, unique):
    """What the survivors make: by shrinking, and by another id."""
    others = rank.count - 1
    index = rank.rank if rank.rank < victim else rank.rank - 1
    excluded = (ctypes.c_int * 1)(victim)
    smaller = ctypes.c_void_p()
    rank.must("ncclCommShrink", comm, excluded, 1, ctypes.byref(smaller), None, SHRINK_ABORT)
    rank.must("ncclCommAbort", comm)
    rank.synchronize()
    rank.sum_is_right(smaller, index, others)
    rank.must("ncclCommDestroy", smaller)
    again = rank.join(others, unique, index)
    rank.sum_is_right(again, index, others)
    rank.must("ncclCommDestroy", again)


def leave_and_come_back(rank, comm, what):
    """The victim's part."""
    if what in ("paused", "late"):
        say("away", time.time())
        if what == "late":
            time.sleep(AWAY[what])
        else:
            os.kill(os.getpid(), signal.SIGSTOP)  # the parent wakes us
        return
    if what != "stopped":
        for _ in range(1 if what == "replays" else 20):
            rank.act(comm)
    say("away", time.time())
    os.kill(os.getpid(), signal.SIGSTOP if what == "stopped" else signal.SIGKILL)
    say("back")
    os._exit(0)


def run_rank(build, number, count, what, ids):
    rank = Rank(build, number, count)
    uniques = [UniqueId.from_buffer_copy(bytes.fromhex(text)) for text in ids]
    victim = count - 1
    comm = rank.join(count, uniques[0], number)
    rank.prepare(what, comm)
    for _ in range(50):
        if rank.act(comm) != 0:
            raise RuntimeError(rank.error())
    rank.synchronize()
    if number == victim:
        leave_and_come_back(rank, comm, what)
    if what in ("paused", "late"):
        for _ in range(20):
            if rank.act(comm) != 0:
                raise RuntimeError(rank.error())
        rank.synchronize()
        rank.sum_is_right(comm, number, count)
        rank.must("ncclCommDestroy", comm)
        say("right")
        return
    code, when = survive(rank, comm, 0 if what == "queued" else 0.001)
    # What an error of replays is, a call tells.
    rank.call("ncclAllReduce", rank.buffer, rank.buffer, ctypes.c_size_t(1), FLOAT, SUM, comm, rank.stream)
    text = rank.error()
    go_on(rank, comm, victim, uniques[1])
    say("error", when, code, text.replace("\n", " "))


def ask_smi(query):
    """Numbers that nvidia-smi gives; none where there is none."""
    try:
        told = subprocess.run(["nvidia-smi", query, "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [int(word) for word in told.stdout.split() if word.isdigit()]


def used_memory():
    return ask_smi("--query-gpu=memory.used")  # MB, by GPU


def is_clean(victim, before):
    """Whether nvidia-smi knows the dead process no longer, and all ranks' memory has been given back. In a container it may know
    no process; memory it always knows."""
    is_listed = victim in ask_smi("--query-compute-apps=pid")
    end = time.monotonic() + PATIENCE
    while (after := used_memory()) and any(a > b + SLACK_MB for a, b in zip(after, before)) and time.monotonic() < end:
        time.sleep(0.2)
    is_back = all(a <= b + SLACK_MB for a, b in zip(after, before))
    print(f"nvidia-smi: {'lists the dead process' if is_listed else 'no dead process'}, {before} MB before, {after} after")
    return is_back and not is_listed


def start(build, count, what, ids):
    environment = dict(os.environ)
    if what == "engines" and count > 2:
        environment["NCCL_CTA_POLICY"] = "2"
    if what in TIMEOUT_MS:
        environment["TUTTI_TIMEOUT_MS"] = str(TIMEOUT_MS[what])
    return [subprocess.Popen([sys.executable, __file__, build, str(count), what, str(rank), *ids],
                             stdout=subprocess.PIPE, text=True, env=environment) for rank in range(count)]


def judge(output, code, victim, died, what):
    """What is wrong with a survivor's end; None: nothing."""
    lines = [line for line in output.splitlines() if line.startswith(("error ", "right"))]
    if code != 0 or not lines:
        return f"ended with {code}: {output[-300:]}"
    if what in ("paused", "late"):
        return None if lines[-1] == "right" else f"said {lines[-1]}"
    _, when, error, text = lines[-1].split(" ", 3)
    took = float(when) - died
    words = "alive, stopped" if what == "stopped" else "died"
    print(f"  error {error} after {took:.2f} s: {text.strip()}")
    if int(error) != REMOTE_ERROR or f"rank {victim}" not in text or words not in text:
        return f"was not told that rank {victim} {words}"
    return None if took < SECONDS.get(what, PATIENCE) else f"was told after {took:.1f} s"


def main():
    build, count, what, *rest = sys.argv[1:]
    count = int(count)
    if rest:
        run_rank(build, int(rest[0]), count, what, rest[1:])
        return 0
    # The root lives in this process, which takes part in nothing else.
    library = ctypes.CDLL(str(pathlib.Path(build, "lib/libnccl.so.2")))
    ids = [bytes(make_id(library)).hex() for _ in range(2)]
    before = used_memory()
    ranks = start(build, count, what, ids)
    victim = ranks[-1]
    said = victim.stdout.readline()
    while said and not said.startswith("away "):
        said = victim.stdout.readline()
    if not said:
        print("FAILED: the victim ended before its time")
        return 1
    if what in ("stopped", "paused"):
        time.sleep(AWAY[what])
        victim.send_signal(signal.SIGCONT)
    outputs = [rank.communicate(timeout=60)[0] for rank in ranks]
    wrong = 0
    if what not in TIMEOUT_MS:
        wrong += victim.returncode != -signal.SIGKILL
        wrong += not is_clean(victim.pid, before)
    for number, output in enumerate(outputs if what in ("paused", "late") else outputs[:-1]):
        problem = judge(output, ranks[number].returncode, count - 1, float(said.split()[1]), what)
        print(f"rank {number}: {problem or 'right'}")
        wrong += problem is not None
    if wrong:
        print(f"FAILED: {wrong} of {count} ranks, {what}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
