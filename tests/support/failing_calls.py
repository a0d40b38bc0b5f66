"""Foreign C functions that go wrong at the n-th call: `failing_calls.c` in Python.

`FailingProducer` has a table of such functions, `failing_exporter` a buffer, and
`FailingStream` and `FailingArray` have Arrow's structs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import addressof, c_char_p, c_int, c_int64, c_uint, c_void_p, cast
from functools import cache
from typing import Any, ClassVar

from support.compiled import compiled
from support.dlpack_abi import (
    ENTRIES,
    DLPackExchangeAPI,
    capsule_pointer,
    dlpack_include,
    for_ever,
    new_capsule,
)
from support.fake_buffer import (
    BF_GETBUFFER,
    BF_RELEASEBUFFER,
    TPFLAGS_BASETYPE,
    Slot,
    Spec,
)
from support.fake_producers import Producer, _forget_deleted
from support.fake_table import new_table

TABLE = [*ENTRIES]
FUNCTIONS = [
    *TABLE,
    "deleter",
    "getbuffer",
    "releasebuffer",
    "get_schema",
    "get_next",
    "get_last_error",
    "release of a stream",
    "release of an array",
    "release of a schema",
    "method",
]
SET, FAIL, EMPTY, REPORT, GARBAGE, RUN = (1 << bit for bit in range(6))


class Fault(Exception):
    """What a foreign function raises."""


class Refusal(BufferError):
    """What one raises that cannot describe the tensor."""


class Interrupt(BaseException):
    """What dlx may not handle."""


@cache
def library() -> ctypes.PyDLL:
    """Return `failing_calls.c` as a library, with the types of its functions."""
    found = compiled("failing_calls.c", dlpack_include())
    number, some = c_int64, ctypes.py_object
    found.failing_arm.argtypes = (c_int, c_int, number, some, some)
    found.failing_disarm.restype = found.failing_dirty.restype = number
    found.failing_held.restype = number
    found.failing_table.argtypes = (c_void_p,)
    found.failing_table.restype = c_void_p
    found.failing_consume.argtypes = (c_void_p, c_void_p, c_void_p)
    found.failing_consume_stream.argtypes = (c_void_p, c_int, c_int, c_void_p)
    for name in ("failing_consume", "failing_consume_stream"):
        getattr(found, name).restype = c_char_p
    for name in ("failing_stream", "failing_array", "failing_schema"):
        getattr(found, name).argtypes = (c_void_p,)
    return found


def function(name: str) -> int:
    """Return the address of a function of the library."""
    return cast(library()[name], c_void_p).value or 0


def run_code() -> None:
    """Raise, for a function that runs Python code."""
    raise _armed[0]


_armed: list[BaseException] = [Fault()]


def arm(name: str, what: int, at: int, error: BaseException) -> None:
    """Let the n-th call of a function from now on go wrong."""
    _armed[0] = error
    library().failing_arm(FUNCTIONS.index(name), what, at, error, run_code)


def disarm() -> int:
    """Let none go wrong any more; return how often the function was called."""
    return int(library().failing_disarm())


def point() -> None:
    """Stand at the beginning of each method in Python."""
    if library().failing_begin(FUNCTIONS.index("method")):
        raise _armed[0]


# Tables


def failing_table(table: DLPackExchangeAPI) -> Any:
    """Return a capsule of a table whose functions stand before those of another."""
    for_ever(table)
    address = library().failing_table(addressof(table))
    return new_capsule(address, b"dlpack_exchange_api")


counts: list[c_int64] = for_ever([])
"""How often the deleter of each export of a `FailingProducer` was called."""


class FailingProducer(Producer):
    """An array of a library whose functions go wrong; its deleters are counted."""

    __dlpack_c_exchange_api__: ClassVar[Any]

    def export(self, *, versioned: bool = True) -> int:
        """Return the address of a new managed tensor."""
        if self.deleter is None:
            return super().export(versioned=versioned)
        is_new = self._is_versioned(versioned)
        self.deleter = function(f"failing_delete{'' if is_new else '_legacy'}")
        address = super().export(versioned=versioned)
        counts.append(self.exports.pop()._deleted)
        return address


def failing_class() -> type[FailingProducer]:
    """Make the class; there is one for each process."""
    made: type[FailingProducer] = type("Failing", (FailingProducer,), {})
    made.__dlpack_c_exchange_api__ = failing_table(new_table(owner=made))
    return made


def forget() -> list[int]:
    """Forget all exports; return how often their deleters were called."""
    _forget_deleted()  # Those may have held tensors of others.
    found = [count.value for count in counts]
    counts.clear()
    _forget_deleted()
    return found


# Buffers


@cache
def failing_exporter() -> Any:
    """Make a type of 24 bytes whose two functions go wrong."""
    slots = for_ever(
        (Slot * 3)(
            Slot(BF_GETBUFFER, function("failing_get_buffer")),
            Slot(BF_RELEASEBUFFER, function("failing_release_buffer")),
            Slot(0, None),
        )
    )
    flags = c_uint(TPFLAGS_BASETYPE)
    spec = for_ever(Spec(b"failing_calls.Exporter", 0, 0, flags, slots))
    new = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p)(
        ("PyType_FromSpec", ctypes.pythonapi)
    )
    return new(addressof(spec))


# Arrow

_EXCHANGE: dict[bytes, Callable[[int], None]] = {
    b"arrow_schema": lambda at: library().failing_schema(at),
    b"arrow_array": lambda at: library().failing_array(at),
    b"arrow_device_array": lambda at: library().failing_array(at),
    b"arrow_array_stream": lambda at: library().failing_stream(at),
}


def exchanged(capsule: Any, name: bytes) -> Any:
    """Exchange the functions in a capsule for those that go wrong."""
    _EXCHANGE[name](capsule_pointer(capsule, name))
    return capsule


class FailingArray:
    """An array of pyarrow, by `__arrow_c_array__`."""

    def __init__(self, array: Any) -> None:
        """Keep the array."""
        self.array = array

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        """Return its capsules."""
        point()
        schema, array = self.array.__arrow_c_array__()
        return exchanged(schema, b"arrow_schema"), exchanged(array, b"arrow_array")


class FailingDeviceArray(FailingArray):
    """An array of pyarrow, by `__arrow_c_device_array__`."""

    def __arrow_c_device_array__(self, requested_schema: Any = None) -> Any:
        """Return its capsules."""
        point()
        schema, array = self.array.__arrow_c_device_array__()
        given = exchanged(array, b"arrow_device_array")
        return exchanged(schema, b"arrow_schema"), given


class FailingStream:
    """A chunked array of pyarrow, by `__arrow_c_stream__`."""

    def __init__(self, chunks: Any) -> None:
        """Keep the array."""
        self.chunks = chunks

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the stream."""
        point()
        return exchanged(self.chunks.__arrow_c_stream__(), b"arrow_array_stream")
