"""libnccl.so.2 by its C interface: found beside this package, loaded by its path, called without the GIL."""

from __future__ import annotations

import ctypes
import os
import pathlib
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_void_p

_HERE = pathlib.Path(__file__).parent.absolute()
UNIQUE_ID_BYTES = 128
NO_COLOR = -1
SHRINK_ABORT = 1
IN_PROGRESS = 7

RESULT_NAMES = ("ncclSuccess", "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError",
                "ncclInvalidArgument", "ncclInvalidUsage", "ncclRemoteError", "ncclInProgress")


class UniqueIdStruct(ctypes.Structure):
    """Passed by value, as the C interface has it."""

    _fields_ = [("internal", ctypes.c_char * UNIQUE_ID_BYTES)]


class SimInfo(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint),
                ("estimated_time", ctypes.c_float)]

    @classmethod
    def initial(cls) -> SimInfo:
        return cls(ctypes.sizeof(cls), 0x74685283, 22809, -1.0)


_COMM = c_void_p
_BUFFER = c_void_p
_STREAM = c_void_p
_SIGNATURES = {
    "ncclGetVersion": (POINTER(c_int),),
    "ncclGetUniqueId": (POINTER(UniqueIdStruct),),
    "ncclCommInitRank": (POINTER(_COMM), c_int, UniqueIdStruct, c_int),
    "ncclCommSplit": (_COMM, c_int, c_int, POINTER(_COMM), c_void_p),
    "ncclCommShrink": (_COMM, POINTER(c_int), c_int, POINTER(_COMM), c_void_p, c_int),
    "ncclCommDestroy": (_COMM,),
    "ncclCommAbort": (_COMM,),
    "ncclCommGetAsyncError": (_COMM, POINTER(c_int)),
    "ncclCommCount": (_COMM, POINTER(c_int)),
    "ncclCommUserRank": (_COMM, POINTER(c_int)),
    "ncclCommCuDevice": (_COMM, POINTER(c_int)),
    "ncclAllReduce": (_BUFFER, _BUFFER, c_size_t, c_int, c_int, _COMM, _STREAM),
    "ncclReduce": (_BUFFER, _BUFFER, c_size_t, c_int, c_int, c_int, _COMM, _STREAM),
    "ncclReduceScatter": (_BUFFER, _BUFFER, c_size_t, c_int, c_int, _COMM, _STREAM),
    "ncclAllGather": (_BUFFER, _BUFFER, c_size_t, c_int, _COMM, _STREAM),
    "ncclBroadcast": (_BUFFER, _BUFFER, c_size_t, c_int, c_int, _COMM, _STREAM),
    "ncclAlltoAll": (_BUFFER, _BUFFER, c_size_t, c_int, _COMM, _STREAM),
    "ncclGather": (_BUFFER, _BUFFER, c_size_t, c_int, c_int, _COMM, _STREAM),
    "ncclScatter": (_BUFFER, _BUFFER, c_size_t, c_int, c_int, _COMM, _STREAM),
    "ncclSend": (_BUFFER, c_size_t, c_int, c_int, _COMM, _STREAM),
    "ncclRecv": (_BUFFER, c_size_t, c_int, c_int, _COMM, _STREAM),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
    "ncclGroupSimulateEnd": (POINTER(SimInfo),),
    "ncclTuttiStreamCreate": (POINTER(_STREAM),),
    "ncclTuttiStreamDestroy": (_STREAM,),
    "ncclTuttiStreamSynchronize": (_STREAM,),
    "ncclTuttiEventCreate": (POINTER(c_void_p),),
    "ncclTuttiEventDestroy": (c_void_p,),
    "ncclTuttiEventRecord": (c_void_p, _STREAM),
    "ncclTuttiEventSynchronize": (c_void_p,),
    "ncclTuttiEventQuery": (c_void_p,),
}


def library_path() -> pathlib.Path:
    """The libnccl.so.2 that this package uses: its own copy, or else the one of /usr/lib/tutti."""
    candidates = (_HERE / "lib/libnccl.so.2", pathlib.Path("/usr/lib/tutti/lib/libnccl.so.2"))
    for candidate in candidates:
        if candidate.exists():
            return candidate
    raise ImportError("no libnccl.so.2 of tutti: looked for " + " and ".join(map(str, candidates)))


def command_path() -> pathlib.Path:
    """The tutti command that came with the library."""
    path = library_path().parent.parent / "bin/tutti"
    if not path.exists():
        raise FileNotFoundError(f"the tutti command is not installed: looked for {path}")
    return path


def _load() -> ctypes.CDLL:
    # By its path, and without offering its names to others: NVIDIA's library of that name may be loaded, too.
    library = ctypes.CDLL(os.fspath(library_path()), mode=os.RTLD_LOCAL | os.RTLD_NOW)
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = c_int
    library.ncclGetLastError.argtypes = (_COMM,)
    library.ncclGetLastError.restype = c_char_p
    return library


lib = _load()


class Error(RuntimeError):
    """A call that failed.

    code: the result's name, such as "ncclRemoteError"; rank: this rank, None where there is no communicator;
    reason: the library's text, which names the peer, what was seen, what was wanted and the setting that changes it.
    """

    def __init__(self, code: int, rank: int | None, reason: str):
        self.code = RESULT_NAMES[code] if 0 <= code < len(RESULT_NAMES) else f"result {code}"
        self.rank = rank
        self.reason = reason
        where = "" if rank is None else f"rank {rank}: "
        super().__init__(f"{where}{reason} [{self.code}]")


def last_error(comm: int | None = None) -> str:
    return (lib.ncclGetLastError(comm) or b"").decode("utf-8", "replace")


def check(code: int, rank: int | None = None) -> None:
    if code != 0:
        raise Error(code, rank, last_error())
