"""A bfloat16 array as ml_dtypes makes them: NumPy knows the type only as two bytes; the dtype has the name."""

import types

import numpy


class bfloat16:
    dtype = types.SimpleNamespace(name="bfloat16")

    def __init__(self, values):
        self._bits = (values.view("uint32") >> 16).astype("uint16")
        self.__array_interface__ = {**self._bits.__array_interface__, "typestr": "<V2"}

    def as_float32(self):
        return (self._bits.astype("uint32") << 16).view("float32")
