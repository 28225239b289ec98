"""The communicator: collectives, point-to-point, groups and asynchronous work over arrays."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any, Iterable, Literal

from . import _waiting
from ._arrays import TYPE_NAMES, View, view_of
from ._library import (IN_PROGRESS, NO_COLOR, SHRINK_ABORT, UNIQUE_ID_BYTES, Error, SimInfo, UniqueIdStruct, check,
                       last_error, lib)

Op = Literal["sum", "prod", "max", "min", "avg"]
_OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}
_state = threading.local()


def unique_id() -> bytes:
    """Makes the 128 bytes by which the ranks of a new communicator meet. This process listens from now on.

    They hold a secret: carry them to the other ranks by a channel that others cannot read.
    """
    value = UniqueIdStruct()
    check(lib.ncclGetUniqueId(ctypes.byref(value)))
    return bytes(value)


class Work:
    """Asynchronous operation of a CPU rank. Its arrays belong to it until wait() returns or done() says True."""

    def __init__(self, communicator: Communicator, result: Any, keep: tuple):
        self._communicator = communicator
        self._result = result
        self._keep = keep
        self._event = ctypes.c_void_p()
        check(lib.ncclTuttiEventCreate(ctypes.byref(self._event)), communicator.rank)
        check(lib.ncclTuttiEventRecord(self._event, communicator._stream), communicator.rank)

    def done(self) -> bool:
        """Whether the operation has ended, well or not. Never waits."""
        return not self._event or lib.ncclTuttiEventQuery(self._event) != IN_PROGRESS

    def wait(self) -> Any:
        """Waits for the end and returns the array with the result; raises Error when the operation failed."""
        if self._event:
            communicator = self._communicator
            check(_waiting.call((communicator,), lib.ncclTuttiEventSynchronize, self._event), communicator.rank)
            self._release()
            communicator.check()
        return self._result

    def _release(self) -> None:
        event, self._event = self._event, ctypes.c_void_p()
        lib.ncclTuttiEventDestroy(event)
        self._keep = ()

    def __del__(self) -> None:
        if getattr(self, "_event", None) and os.getpid() == self._communicator._process:
            # The arrays go with this object: not before the library is through with them.
            lib.ncclTuttiEventSynchronize(self._event)
            lib.ncclTuttiEventDestroy(self._event)


class group:
    """Everything called in the block, on any communicators, is done as one when it ends.

    Sends and receives in a group may stand in any order; outside, one may wait for the other. When the block raises,
    nothing of the group is done.
    """

    def __enter__(self) -> group:
        check(lib.ncclGroupStart())
        self._outer = getattr(_state, "group", None)
        self._keep: list = []
        self._communicators: dict = {}
        _state.group = self
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        _state.group = self._outer
        if kind is not None:
            lib.ncclGroupSimulateEnd(ctypes.byref(SimInfo.initial()))  # ends it without doing anything
            return
        communicators = tuple(self._communicators.values())
        code = _waiting.call(communicators, lib.ncclGroupEnd)
        if self._outer is not None:  # the outermost group does the work
            self._outer._keep.extend(self._keep)
            self._outer._communicators.update(self._communicators)
        if code != 0:
            raise Error(code, communicators[0].rank if len(communicators) == 1 else None, last_error())

    def _add(self, communicator: Communicator, keep: tuple) -> None:
        self._keep.append(keep)
        self._communicators[id(communicator)] = communicator


class Communicator:
    """One rank's membership of a communicator of `size` ranks, of which this is `rank` (0 .. size - 1).

    All ranks construct theirs with the bytes that one of them got from unique_id(), or all call from_environment().
    Waits until all have come; raises Error after TUTTI_TIMEOUT_MS (10 s).

    Arrays are NumPy arrays, objects with __cuda_array_interface__ or __dlpack__ (torch, CuPy, JAX), or writable
    buffers; contiguous, with elements of type int8 uint8 int32 uint32 int64 uint64 float16 float32 float64 bfloat16 or
    an 8-bit float. Counts below are elements of whole arrays: their shapes do not matter. The result is written into
    the array given for it, which is also what the methods return.

    On CPU ranks a method returns when its work is done; with async_op=True at once, with a Work. On GPU ranks it
    enqueues on `stream`: an integer, or an object with .cuda_stream (torch) or .ptr (CuPy); None is the default one.

    Waiting calls hold no GIL. Ctrl-C during one aborts the communicator and raises KeyboardInterrupt. Ranks of one
    process may be threads. A process made by fork cannot use its parent's communicators.
    """

    def __init__(self, size: int, rank: int, id: bytes):
        if len(id) != UNIQUE_ID_BYTES:
            raise ValueError(f"id has {len(id)} bytes, wanted the {UNIQUE_ID_BYTES} that unique_id() returned")
        handle = ctypes.c_void_p()
        value = UniqueIdStruct.from_buffer_copy(id)
        check(_waiting.call((), lib.ncclCommInitRank, ctypes.byref(handle), size, value, rank), rank)
        self._adopt(handle)

    def _adopt(self, handle: ctypes.c_void_p) -> None:
        rank, size = ctypes.c_int(), ctypes.c_int()
        check(lib.ncclCommUserRank(handle, ctypes.byref(rank)))
        check(lib.ncclCommCount(handle, ctypes.byref(size)))
        self.rank: int = rank.value
        self.size: int = size.value
        self._handle: int | None = handle.value
        self._process = os.getpid()
        self._stream: ctypes.c_void_p | None = None
        self._ended = ""
        _waiting.remember(self)

    @classmethod
    def _of(cls, handle: ctypes.c_void_p) -> Communicator:
        self = cls.__new__(cls)
        self._adopt(handle)
        return self

    @classmethod
    def from_environment(cls, timeout: float = 60.0) -> Communicator:
        """Of all ranks that `python -m tutti run`, torchrun or another launcher with its variables has started.

        Reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; rank 0 hands the id out at that address, so the port must
        be free, and the network between the hosts one that others cannot listen to. timeout: seconds.
        """
        from ._meeting import exchange_id
        rank, size, id = exchange_id(timeout)
        return cls(size, rank, id)

    def __repr__(self) -> str:
        return f"<tutti.Communicator rank {self.rank} of {self.size}{', ' + self._ended if self._ended else ''}>"

    # ---- collectives ----

    def all_reduce(self, array: Any, out: Any = None, op: Op = "sum", *, async_op: bool = False,
                   stream: Any = None) -> Any:
        """out[i] = op over all ranks' array[i], on every rank. array, out: n elements; out None: in place."""
        source, target = self._pair(array, out)
        return self._run(lib.ncclAllReduce, (source, target), array if out is None else out, async_op, stream,
                         source.pointer, target.pointer, source.size, source.type, self._op(op))

    def reduce(self, array: Any, out: Any = None, op: Op = "sum", root: int = 0, *, async_op: bool = False,
               stream: Any = None) -> Any:
        """As all_reduce, but only root's out is written. out None: in place on root; elsewhere it is not used."""
        if self.rank == root:
            source, target = self._pair(array, out)
        else:
            source = target = self._view("array", array)
        return self._run(lib.ncclReduce, (source, target), array if out is None else out, async_op, stream,
                         source.pointer, target.pointer, source.size, source.type, self._op(op), root)

    def broadcast(self, array: Any, root: int = 0, *, async_op: bool = False, stream: Any = None) -> Any:
        """Every rank's array becomes root's. array: n elements."""
        view = self._view("array", array, writes=self.rank != root)
        return self._run(lib.ncclBroadcast, (view,), array, async_op, stream,
                         view.pointer, view.pointer, view.size, view.type, root)

    def all_gather(self, array: Any, out: Any, *, async_op: bool = False, stream: Any = None) -> Any:
        """out = rank 0's array, then rank 1's, ... array: n elements; out: size * n."""
        source, target = self._pair(array, out, out_factor=self.size)
        return self._run(lib.ncclAllGather, (source, target), out, async_op, stream,
                         source.pointer, target.pointer, source.size, source.type)

    def reduce_scatter(self, array: Any, out: Any, op: Op = "sum", *, async_op: bool = False,
                       stream: Any = None) -> Any:
        """out = this rank's n elements of the ranks' reduced arrays. array: size * n elements; out: n."""
        source, target = self._pair(array, out, in_factor=self.size)
        return self._run(lib.ncclReduceScatter, (source, target), out, async_op, stream,
                         source.pointer, target.pointer, target.size, source.type, self._op(op))

    def all_to_all(self, array: Any, out: Any, *, async_op: bool = False, stream: Any = None) -> Any:
        """The n elements at array[r * n] go to rank r's out[this rank * n]. array, out: size * n elements."""
        source, target = self._pair(array, out)
        if source.size % self.size:
            raise ValueError(f"array has {source.size} elements: wanted a multiple of the {self.size} ranks")
        return self._run(lib.ncclAlltoAll, (source, target), out, async_op, stream,
                         source.pointer, target.pointer, source.size // self.size, source.type)

    def gather(self, array: Any, out: Any = None, root: int = 0, *, async_op: bool = False, stream: Any = None) -> Any:
        """root's out = rank 0's array, then rank 1's, ... array: n elements; out: size * n, on root only."""
        if self.rank == root:
            source, target = self._pair(array, self._wanted("out", out), out_factor=self.size)
        else:
            source = target = self._view("array", array)
        return self._run(lib.ncclGather, (source, target), out, async_op, stream,
                         source.pointer, target.pointer, source.size, source.type, root)

    def scatter(self, array: Any, out: Any, root: int = 0, *, async_op: bool = False, stream: Any = None) -> Any:
        """out = this rank's n elements of root's array. array: size * n elements, on root only; out: n."""
        if self.rank == root:
            source, target = self._pair(self._wanted("array", array), out, in_factor=self.size)
        else:
            source = target = self._view("out", out, writes=True)
        return self._run(lib.ncclScatter, (source, target), out, async_op, stream,
                         source.pointer, target.pointer, target.size, target.type, root)

    def send(self, array: Any, peer: int, *, async_op: bool = False, stream: Any = None) -> Any:
        """Sends n elements to rank peer, which receives as many. May wait until it does."""
        view = self._view("array", array)
        return self._run(lib.ncclSend, (view,), array, async_op, stream, view.pointer, view.size, view.type, peer)

    def recv(self, array: Any, peer: int, *, async_op: bool = False, stream: Any = None) -> Any:
        """Receives n elements from rank peer into array."""
        view = self._view("array", array, writes=True)
        return self._run(lib.ncclRecv, (view,), array, async_op, stream, view.pointer, view.size, view.type, peer)

    def barrier(self) -> None:
        """Returns when all ranks have called it. CPU ranks only."""
        self.all_reduce(bytearray(1), op="max")

    # ---- children and end ----

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """A communicator of the ranks with this rank's color, ordered by key, then rank. color None: joins none.

        Collective over this communicator.
        """
        child = ctypes.c_void_p()
        self._call(lib.ncclCommSplit, self._usable(), NO_COLOR if color is None else color, key,
                   ctypes.byref(child), None)
        return Communicator._of(child) if child else None

    def shrink(self, excluded: Iterable[int], *, after_fault: bool = False) -> Communicator:
        """A communicator without the excluded ranks, which may be dead. Called by the others, with the same list.

        after_fault: ends first what this communicator is doing.
        """
        ranks = list(excluded)
        child = ctypes.c_void_p()
        self._call(lib.ncclCommShrink, self._usable(), (ctypes.c_int * len(ranks))(*ranks), len(ranks),
                   ctypes.byref(child), None, SHRINK_ABORT if after_fault else 0)
        return Communicator._of(child)

    def check(self) -> None:
        """Raises Error if an asynchronous operation has failed. Never waits."""
        state = ctypes.c_int()
        check(lib.ncclCommGetAsyncError(self._usable(), ctypes.byref(state)), self.rank)
        if state.value not in (0, IN_PROGRESS):
            raise Error(state.value, self.rank, last_error(self._handle))

    def destroy(self) -> None:
        """Waits for what was called, says goodbye to the peers, and frees. Collective. Twice is once."""
        self._end("destroyed", lib.ncclCommDestroy)

    def abort(self) -> None:
        """Ends at once whatever this communicator does, in other threads, too, and frees. Local; peers get an error."""
        self._end("aborted", lib.ncclCommAbort)

    def _end(self, how: str, function: Any) -> None:
        handle, self._handle = self._handle, None
        if handle is None or os.getpid() != self._process:
            return
        self._ended = how
        code = _waiting.call((), function, handle)
        stream, self._stream = self._stream, None
        if stream is not None:
            lib.ncclTuttiStreamDestroy(stream)
        check(code, self.rank)

    def _end_at_exit(self) -> None:
        if self._handle is not None and os.getpid() == self._process:
            handle, self._handle = self._handle, None
            lib.ncclCommAbort(handle)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        # An exception here must not wait for ranks that do not know of it: they get an error instead.
        if kind is None:
            self.destroy()
        else:
            self.abort()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self._end_at_exit()

    # ---- what they share ----

    def _usable(self) -> int:
        if self._handle is None:
            raise Error(5, self.rank, f"this communicator was {self._ended}")
        if os.getpid() != self._process:
            raise Error(5, self.rank, f"this communicator was made in process {self._process}, and process "
                                      f"{os.getpid()} is a fork of it: make communicators after the fork")
        return self._handle

    def _call(self, function: Any, *arguments: Any) -> None:
        check(_waiting.call((self,), function, *arguments), self.rank)

    @staticmethod
    def _op(op: str) -> int:
        try:
            return _OPS[op]
        except KeyError:
            raise ValueError(f"op is {op!r}, wanted one of {', '.join(_OPS)}") from None

    def _wanted(self, what: str, array: Any) -> Any:
        if array is None:
            raise TypeError(f"rank {self.rank} is the root: {what} is wanted here")
        return array

    def _view(self, what: str, array: Any, writes: bool = False) -> View:
        view = view_of(what, array)
        if writes and view.readonly:
            raise ValueError(f"{what} is read-only, and would be written to")
        return view

    def _pair(self, array: Any, out: Any, in_factor: int = 1, out_factor: int = 1) -> tuple:
        source = self._view("array", array, writes=out is None)
        if out is None:
            return source, source
        target = self._view("out", out, writes=True)
        if source.type != target.type:
            raise TypeError(f"array has elements of type {TYPE_NAMES[source.type]}, out of {TYPE_NAMES[target.type]}: "
                            "wanted the same")
        if source.on_gpu != target.on_gpu:
            raise TypeError("one of array and out is in GPU memory, the other in host memory")
        if source.size * out_factor != target.size * in_factor:
            wanted = f"{source.size * out_factor}" if in_factor == 1 else f"{source.size} / {in_factor}"
            raise ValueError(f"array has {source.size} elements and out {target.size}: with {self.size} ranks out "
                             f"must have {wanted}")
        return source, target

    def _run(self, function: Any, views: tuple, result: Any, async_op: bool, stream: Any, *arguments: Any) -> Any:
        handle = self._usable()
        open_group = getattr(_state, "group", None)
        if views[0].on_gpu:
            if not _has_gpu():
                raise TypeError("the arrays are in GPU memory, but this is a CPU rank (no GPU, or TUTTI_DEVICE=host)")
            if async_op:
                raise ValueError("async_op is for CPU ranks: on GPUs every call is asynchronous, in its stream's order")
            where: Any = _stream_number(stream)
        elif async_op:
            if open_group is not None:
                raise ValueError("async_op in a group: the work is done when the group ends")
            where = self._own_stream()
        else:
            where = None
        if open_group is not None:
            check(function(*arguments, handle, where), self.rank)
            open_group._add(self, views)
            return result
        if async_op:
            check(function(*arguments, handle, where), self.rank)
            return Work(self, result, views)
        code = _waiting.call((self,), function, *arguments, handle, where)
        if code != 0:
            raise Error(code, self.rank, last_error())
        return result

    def _own_stream(self) -> ctypes.c_void_p:
        if self._stream is None:
            stream = ctypes.c_void_p()
            check(lib.ncclTuttiStreamCreate(ctypes.byref(stream)), self.rank)
            self._stream = stream
        return self._stream


def _stream_number(stream: Any) -> int | None:
    if stream is None or isinstance(stream, int):
        return stream
    for attribute in ("cuda_stream", "ptr"):
        number = getattr(stream, attribute, None)
        if number is not None:
            return number
    raise TypeError(f"stream is a {type(stream).__name__}: wanted an integer, or an object with .cuda_stream or .ptr")


def _has_gpu() -> bool:
    if os.environ.get("TUTTI_DEVICE", "").lower() == "host":
        return False
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True
