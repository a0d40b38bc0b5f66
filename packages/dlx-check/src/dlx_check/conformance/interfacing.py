"""Other protocols than DLPack: streams, the CUDA array interface, Arrow's devices."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import Any

from dlx_check.conformance import structs
from dlx_check.conformance.answering import probe
from dlx_check.conformance.driver import VARIABLE, driver
from dlx_check.conformance.experiments import Lab, Untestable
from dlx_check.conformance.exporting import given
from dlx_check.conformance.probe import Memory, Tensor
from dlx_check.conformance.records import Record

__all__ = [
    "ArrowDevice",
    "CudaInterface",
    "ForeignStream",
    "OwnInterface",
    "OwnStream",
    "Shown",
    "TakesStream",
]

ARROW_DEVICE = "arrow_device_array"
_DEVICE, _EVENT, _RESERVED, _SIZE = 88, 96, 104, 128
"""Where the fields of `ArrowDeviceArray` behind its `ArrowArray` are, and its size."""
_ROUNDS = 10


@dataclass(frozen=True)
class OwnStream:
    """The target's own stream tells its handle."""

    def run(self, lab: Lab) -> Record:
        """Do it."""
        if lab.target.stream is None:
            raise Untestable("not-observable: the target has no `stream`")
        made = lab.ask(lab.target.tensor, lab.target.stream)
        if made.error is not None:
            raise Untestable("no-device")
        lab.step("tells the handle of its stream")
        answer = lab.ask(lambda: made.value.__cuda_stream__())
        found = answer.value
        kinds = [type(part).__name__ for part in found] if _pair(found) else []
        version = found[0] if kinds else None
        notes = {"kind": type(found).__name__, "kinds": kinds, "version": version}
        return Record(raised=answer.raised, notes=notes)


def _pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2


class ForeignStream:
    """A stream of another library, which tells version and handle."""

    def __init__(self, told: Any) -> None:
        """Tell this."""
        self.told, self.asked = told, 0

    def __cuda_stream__(self) -> Any:
        """Tell it."""
        self.asked += 1
        return self.told


@dataclass(frozen=True)
class TakesStream:
    """The target imports for the stream of another library, from a probe that refuses.

    It is the legacy default stream, so no driver is needed.
    """

    told: tuple[Any, Any]

    def run(self, lab: Lab) -> Record:
        """Do it."""
        take = lab.part("take_on")
        found = Record()
        # The first shows that the library asks the producer for such a stream.
        for told in ((0, 1), self.told):
            stream = ForeignStream(told)
            given = probe(
                Tensor(device=(2, 0), raises=(("__dlpack__", "BufferError"),))
            )
            lab.step("imports for another library's stream")
            answer = lab.ask(take, given, stream)
            if not stream.asked:
                raise Untestable("not-asked: __cuda_stream__ is not called")
            asked = tuple(given.calls)
            if told == (0, 1) and "__dlpack__" not in [call.method for call in asked]:
                raise Untestable("not-asked: __dlpack__ is not called")
            found = Record(raised=answer.raised, asked=asked)
        return found


@dataclass(frozen=True)
class OwnInterface:
    """A tensor on the CPU is asked for its CUDA array interface."""

    def run(self, lab: Lab) -> Record:
        """Do it."""
        x = given(lab, "", "float32", (2, 3)).tensor
        lab.step("is asked for its CUDA array interface")
        answer = lab.ask(lambda: x.__cuda_array_interface__)
        return Record(raised=answer.raised)


@dataclass(frozen=True)
class CudaInterface:
    """The target imports an object that has the CUDA array interface alone."""

    changed: tuple[tuple[str, Any], ...] = ()
    empty: bool = False

    def run(self, lab: Lab) -> Record:
        """Do it; no element is read, because there need not be a device."""
        take, address = lab.part("take_cuda"), 0
        if os.environ.get(VARIABLE) and lab.target.driver:
            address = driver(lab).memory()
        plain = _taken(lab, take, Shown(address))
        if plain.error is not None:
            raise Untestable("no-device: it takes no such object here")
        del plain
        given = Shown(address, dict(self.changed), (0, 3) if self.empty else (2, 3))
        answer = _taken(lab, take, given)
        if not given.asked:
            raise Untestable("not-asked: the interface is not read")
        return Record(raised=answer.raised)


def _taken(lab: Lab, take: Any, given: Shown) -> Any:
    lab.step("imports by the CUDA array interface")
    return lab.ask(take, given)


class Shown:
    """An object that has the CUDA array interface alone."""

    def __init__(
        self,
        address: int,
        changed: dict[str, Any] | None = None,
        shape: tuple[int, ...] = (2, 3),
    ) -> None:
        """Show memory at an address, or memory of the host if that is 0."""
        self.memory, self.asked = Memory(Tensor(shape)), 0
        address = address or self.memory.data
        self.interface = {
            "version": 3,
            "shape": shape,
            "typestr": "<f4",
            "strides": None,
            "data": (address if all(shape) else 0, False),
            "stream": None,
        } | (changed or {})

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Return the dict."""
        self.asked += 1
        return self.interface


@dataclass(frozen=True)
class ArrowDevice:
    """The target exports by Arrow's C device interface, several times."""

    def run(self, lab: Lab) -> Record:
        """Do it; what is allocated for the struct was not zero before."""
        x = given(lab, "", "float32", (6,)).tensor
        notes: dict[str, Any] = {"reserved": False}
        for _ in range(_ROUNDS):
            _soil()
            lab.step("exports for Arrow")
            answer = lab.ask(lambda: x.__arrow_c_device_array__())
            if isinstance(answer.error, AttributeError):
                raise Untestable("not-asked: no __arrow_c_device_array__")
            if answer.error is not None:
                return Record(raised=answer.raised)
            capsule = answer.value[1] if _pair(answer.value) else None
            if not structs.is_capsule(capsule):
                return Record(notes=notes)
            notes["name"] = structs.capsule_name(capsule)
            if notes["name"] != ARROW_DEVICE:
                return Record(notes=notes)
            struct = structs.capsule_pointer(capsule, ARROW_DEVICE)
            notes["device"] = ctypes.c_int32.from_address(struct + _DEVICE).value
            notes["event"] = ctypes.c_uint64.from_address(struct + _EVENT).value != 0
            notes["reserved"] |= any(ctypes.string_at(struct + _RESERVED, 24))
        return Record(notes=notes)


def _soil() -> None:
    """Leave blocks of the struct's size to the allocator, which are not zero."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    blocks = [ctypes.c_void_p(libc.malloc(_SIZE)) for _ in range(4)]
    for block in blocks:
        ctypes.memset(block, 0x5A, _SIZE)
    for block in blocks:
        libc.free(block)
