"""Arrays of any library as pointer, count and type: __array_interface__, __cuda_array_interface__, DLPack, buffers."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, NamedTuple

# By NumPy's type strings; the library is built for little-endian machines.
_TYPES = {"|i1": 0, "|u1": 1, "<i4": 2, "<u4": 3, "<i8": 4, "<u8": 5, "<f2": 6, "<f4": 7, "<f8": 8}
_NAMED_TYPES = {"bfloat16": 9, "float8_e4m3fn": 10, "float8_e5m2": 11}  # of ml_dtypes and torch
_BUFFER_TYPES = {"b": 0, "B": 1, "c": 1, "i": 2, "I": 3, "q": 4, "Q": 5, "l": 4, "L": 5, "e": 6, "f": 7, "d": 8}
_DLPACK_TYPES = {(0, 8): 0, (1, 8): 1, (0, 32): 2, (1, 32): 3, (0, 64): 4, (1, 64): 5,
                 (2, 16): 6, (2, 32): 7, (2, 64): 8, (4, 16): 9}
TYPE_NAMES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16",
              "float8_e4m3", "float8_e5m2")


_char = ctypes.c_char
_address = ctypes.addressof


class View(NamedTuple):
    """What the C interface wants to know of an array."""

    pointer: int
    size: int  # elements
    type: int  # ncclDataType_t
    readonly: bool
    on_gpu: bool
    keep: Any  # holds the memory


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_DL_CPU, _DL_CUDA, _DL_CUDA_HOST, _DL_CUDA_MANAGED = 1, 2, 3, 13


def _product(shape) -> int:
    count = 1
    for each in shape:
        count *= each
    return count


def _is_contiguous(shape, strides, item) -> bool:
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length > 1 and stride != item:
            return False
        item *= length
    return True


def _refuse_layout(what: str, shape, strides) -> ValueError:
    return ValueError(f"{what} is not contiguous (shape {tuple(shape)}, strides {tuple(strides)}): "
                      "pass a copy, as numpy.ascontiguousarray makes one")


def _refuse_type(what: str, seen: Any) -> TypeError:
    return TypeError(f"{what} has elements of type {seen}; wanted one of {', '.join(TYPE_NAMES)}, "
                     "in the machine's byte order")


def _of_interface(what: str, array: Any, interface: dict, on_gpu: bool) -> View:
    kind = _TYPES.get(interface["typestr"])
    if kind is None:
        dtype = getattr(array, "dtype", interface["typestr"])
        name = getattr(dtype, "name", None) or str(dtype).removeprefix("torch.")  # torch.bfloat16 says <V2
        kind = _NAMED_TYPES.get(name)
        if kind is None:
            raise _refuse_type(what, name)
    shape, strides = interface["shape"], interface.get("strides")
    count = _product(shape)
    if strides is not None and count and not _is_contiguous(shape, strides, int(interface["typestr"][2:])):
        raise _refuse_layout(what, shape, strides)
    pointer, readonly = interface["data"]
    return View(pointer or 0, count, kind, readonly, on_gpu, array)


def _of_dlpack(what: str, array: Any) -> View:
    try:
        capsule = array.__dlpack__()
    except (RuntimeError, BufferError, TypeError) as error:
        raise TypeError(f"{what} cannot be exported by DLPack: {error}") from error
    tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    if tensor.device_type not in (_DL_CPU, _DL_CUDA, _DL_CUDA_HOST, _DL_CUDA_MANAGED):
        raise TypeError(f"{what} lies on a device of DLPack's kind {tensor.device_type}; wanted CPU or CUDA memory")
    kind = _DLPACK_TYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if kind is None:
        raise _refuse_type(what, f"DLPack code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes")
    shape = tensor.shape[: tensor.ndim]
    count = _product(shape)
    if tensor.strides and count and not _is_contiguous(shape, tensor.strides[: tensor.ndim], 1):
        raise _refuse_layout(what, shape, tensor.strides[: tensor.ndim])
    on_gpu = tensor.device_type in (_DL_CUDA, _DL_CUDA_MANAGED)
    # The capsule was not consumed: it frees the tensor when it goes.
    return View((tensor.data or 0) + tensor.byte_offset, count, kind, False, on_gpu, (array, capsule))


def _of_buffer(what: str, array: Any) -> View:
    view = memoryview(array)
    kind = _BUFFER_TYPES.get(view.format.lstrip("@="))
    if kind is None:
        raise _refuse_type(what, f"{view.format!r}")
    if not view.c_contiguous:
        raise _refuse_layout(what, view.shape, view.strides)
    if view.readonly:
        raise ValueError(f"{what} is a read-only buffer: pass a bytearray, an array.array or a NumPy array")
    memory = (ctypes.c_char * view.nbytes).from_buffer(view)
    return View(ctypes.addressof(memory), view.nbytes // view.itemsize, kind, False, False, (array, memory))


_USABLE = 0x1 | 0x400  # of numpy.ndarray.flags.num: contiguous in C's order, writable


class _NumPy:
    """NumPy's arrays without their __array_interface__, which takes 3 us to make; the rest takes 1 us in all."""

    ndarray: Any = None  # until NumPy is seen: it need not be installed
    types: dict = {}

    @classmethod
    def look_for(cls) -> None:
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            cls.types = {numpy.dtype(name): kind for name, kind in _TYPES.items()}
            cls.ndarray = numpy.ndarray


def view_of(what: str, array: Any) -> View:
    """`what` names the array in errors."""
    if type(array) is _NumPy.ndarray:
        kind = _NumPy.types.get(array.dtype)
        if kind is not None and array.size and array.flags.num & _USABLE == _USABLE:
            return View(_address(_char.from_buffer(array)), array.size, kind, False, False, array)
    elif _NumPy.ndarray is None:
        _NumPy.look_for()
    interface = getattr(array, "__array_interface__", None)
    if interface is not None:
        return _of_interface(what, array, interface, on_gpu=False)
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        return _of_interface(what, array, interface, on_gpu=True)
    if hasattr(array, "__dlpack__"):
        return _of_dlpack(what, array)
    try:
        return _of_buffer(what, array)
    except TypeError as error:
        if "bytes-like" not in str(error):
            raise
    raise TypeError(f"{what} is a {type(array).__name__}: wanted a NumPy array, or an object with __dlpack__, "
                    "__cuda_array_interface__ or a buffer")
