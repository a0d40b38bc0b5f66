"""Reads memory that may not be there, and says what code is at an address."""

from __future__ import annotations

import _socket
import contextlib
import ctypes
import errno
import os
from ctypes import (
    Structure,
    byref,
    c_char_p,
    c_int,
    c_size_t,
    c_ssize_t,
    c_ulong,
    c_void_p,
)
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

__all__ = [
    "Location",
    "can_be_called",
    "located",
    "nearest",
    "read",
    "read_name",
    "read_struct",
]

S = TypeVar("S", bound=Structure)

_LONGEST = 64


class _DlInfo(Structure):
    """`Dl_info`."""

    _fields_ = (
        ("dli_fname", c_char_p),
        ("dli_fbase", c_void_p),
        ("dli_sname", c_char_p),
        ("dli_saddr", c_void_p),
    )


class _Span(Structure):
    """`struct iovec`."""

    _fields_ = (("base", c_void_p), ("size", c_size_t))


@cache
def _process() -> Any:
    process = ctypes.CDLL(None, use_errno=True)
    process.dladdr.argtypes = (c_void_p, c_void_p)
    process.dladdr.restype = c_int
    process.write.argtypes = (c_int, c_void_p, c_size_t)
    process.write.restype = c_ssize_t
    with contextlib.suppress(AttributeError):
        # Linux alone has it.
        copy = process.process_vm_readv
        copy.argtypes = (c_int, *2 * (c_void_p, c_ulong), c_ulong)
        copy.restype = c_ssize_t
    return process


@dataclass(frozen=True)
class Location:
    """What is at an address."""

    address: int
    kind: Literal["null", "library", "generated", "memory", "unmapped"]
    """``generated`` is code that no library contains, of ctypes or a compiler."""
    library: str | None = None
    """The file that contains the address."""
    offset: int | None = None
    """Bytes from the start of that file's image in memory."""
    symbol: str | None = None
    """The exported name that starts at the address."""

    def __str__(self) -> str:
        """Return the file's name and the offset, or what it is instead of that."""
        if self.kind == "null":
            return "NULL"
        if self.library is None:
            what = {"generated": "generated code", "memory": "in no library"}
            return f"{self.address:#x} ({what.get(self.kind, 'not mapped')})"
        return f"{Path(self.library).name}+{self.offset:#x}"


def located(address: int | None) -> Location:
    """Return what is at ``address``; None is NULL."""
    if not address:
        return Location(0, "null")
    info = _DlInfo()
    if _process().dladdr(address, byref(info)) and info.dli_fname:
        symbol = info.dli_sname if info.dli_saddr == address else None
        return Location(
            address,
            "library",
            os.fsdecode(info.dli_fname),
            address - (info.dli_fbase or 0),
            None if symbol is None else symbol.decode(errors="replace"),
        )
    if _is_executable(address):
        return Location(address, "generated")
    return Location(address, "unmapped" if read(address, 1) is None else "memory")


def nearest(address: int) -> tuple[str | None, int | None]:
    """Return the file that contains ``address``, and the exported start before it."""
    info = _DlInfo()
    if not _process().dladdr(address, byref(info)) or not info.dli_fname:
        return None, None
    return os.fsdecode(info.dli_fname), info.dli_saddr


def can_be_called(address: int | None) -> bool:
    """Return whether there is code at ``address``."""
    return bool(address) and _is_executable(address or 0)


def _is_executable(address: int) -> bool:
    try:
        with open("/proc/self/maps", "rb") as maps:
            for line in maps:
                span, access, _ = line.split(maxsplit=2)
                start, end = (int(each, 16) for each in span.split(b"-"))
                if start <= address < end:
                    return b"x" in access
    except OSError:
        # Without a list of mappings, what can be read may be code.
        return read(address, 1) is not None
    return False


def read(address: int, size: int) -> bytes | None:
    """Return ``size`` bytes, at most 4096, or None if they cannot all be read.

    The kernel copies them: it reports an address that is not mapped, where a load would
    end the process.
    """
    if address < 0 or address + size > 2**64:
        return None
    if size == 0:
        return b""
    here = ctypes.create_string_buffer(size)
    into, source = _Span(ctypes.addressof(here), size), _Span(address, size)
    copy = getattr(_process(), "process_vm_readv", None)
    if copy is not None:
        done = copy(os.getpid(), byref(into), 1, byref(source), 1, 0)
        # A sandbox may refuse it.
        if done >= 0 or ctypes.get_errno() == errno.EFAULT:
            return here.raw if done == size else None
    return _sent(address, size)


def _sent(address: int, size: int) -> bytes | None:
    """Read by way of a socket to this process."""
    try:
        # Objects, which close themselves: numbers, as of `os.pipe`, would stay open if
        # a signal's handler raised before they had a name, and `socket.socketpair` has
        # numbers in between.
        sender, receiver = _socket.socketpair()
    except OSError:
        return None
    with contextlib.closing(sender), contextlib.closing(receiver):
        if _process().write(sender.fileno(), address, size) != size:
            return None
        return receiver.recv(size)


def read_struct(kind: type[S], address: int) -> S | None:
    """Return a copy of the structure at ``address``, None if it cannot be read."""
    found = read(address, ctypes.sizeof(kind))
    return None if found is None else kind.from_buffer_copy(found)


def read_name(address: int) -> str | None:
    """Return the C string at ``address``, cut at 64 bytes; None if unreadable."""
    found = bytearray()
    while len(found) < _LONGEST:
        # One at a time, because what follows the end may not be mapped.
        byte = read(address + len(found), 1)
        if byte is None:
            return None
        if byte == b"\0":
            break
        found += byte
    return found.decode(errors="replace")
