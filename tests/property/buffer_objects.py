"""Buffers of the standard library."""

from __future__ import annotations

import array
import ctypes
import mmap
import sys
from functools import partial
from typing import Any

from .objects import Object, Objects, made, sent

FORMATS = "bBhHiIlLqQfdnN"


class Buffer:
    """A class of Python with the buffer protocol, by PEP 688."""

    def __init__(self, memory: bytes | bytearray) -> None:
        """Keep the memory."""
        self.memory = memory

    def __buffer__(self, flags: int) -> memoryview[Any]:
        """Return the memory as float32."""
        return memoryview(self.memory).cast("f")


def stdlib() -> Objects:
    """Yield buffers of every kind and format."""
    yield from sent("bytes", "bytes-")
    yield from sent("array.array", "array-")
    yield from sent("ctypes", "ctypes-")
    yield from sent("memoryview", "memoryview-")
    for code in FORMATS:
        yield Object(
            f"cast-{code}",
            partial(lambda code: memoryview(bytearray(48)).cast(code), code),
        )
        yield Object(
            f"read-only-cast-{code}",
            partial(lambda code: memoryview(bytes(48)).cast(code), code),
        )
    text: Any = "w" if sys.version_info >= (3, 13) else "u"
    kind: Any = ctypes.c_float
    yield from made(
        bytearray=lambda: bytearray(8),
        empty_bytes=lambda: b"",
        array_of_text=lambda: array.array(text, "abc"),
        negative=lambda: memoryview(bytearray(8))[::-2],
        two_dimensions=lambda: memoryview(bytes(48)).cast("f", [3, 4]),
        zero_dimensions=lambda: memoryview(bytes(4)).cast("f", []),
        mmap=lambda: mmap.mmap(-1, 4096),
        ctypes_nested=lambda: (ctypes.c_float * 3 * 2)(),
        ctypes_scalar=lambda: ctypes.c_double(1.0),
        ctypes_longdouble=lambda: (ctypes.c_longdouble * 3)(),
        ctypes_byte_swapped=lambda: (kind.__ctype_be__ * 3)(),
    )
    if sys.version_info >= (3, 12):
        yield from made(
            pep_688=lambda: Buffer(bytearray(8)),
            read_only_pep_688=lambda: Buffer(bytes(8)),
        )
    complex_kind: Any = getattr(ctypes, "c_double_complex", None)
    if complex_kind is not None:
        yield from made(ctypes_complex=lambda: (complex_kind * 3)())
