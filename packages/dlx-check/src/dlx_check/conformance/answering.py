"""The suite's own producer: a tensor whose every field is free, and that records all.

A probe is honest unless its `Tensor` says otherwise: it obeys `max_version`, `copy` and
`dl_device` as R20 to R26 and R47 to R53 ask. Each probe has a class of its own, because
consumers remember types.
"""

from __future__ import annotations

import builtins
import ctypes
from dataclasses import replace
from typing import Any

from dlx_check import natives
from dlx_check.conformance import structs
from dlx_check.conformance.probe import NEWEST, WILD, Export, Memory, Tensor
from dlx_check.conformance.records import Asked
from dlx_check.conformance.structs import (
    COPIED,
    READ_ONLY,
    DLPackExchangeAPI,
    kept,
)

__all__ = ["Probe", "probe", "work_streams"]


class Probe:
    """The base of all probes; `probe` makes a class and an instance."""

    spec: Tensor
    memory: Memory
    calls: list[Asked]
    exports: list[Export]
    capsules: list[Any]
    """The capsules that were handed out and that the suite still holds."""
    error: BaseException | None

    def record(self, method: str, keywords: dict[str, Any]) -> None:
        """Record a call, and raise what the tensor says."""
        self.calls.append(Asked(method, {k: _plain(v) for k, v in keywords.items()}))
        for name, error in self.spec.raises:
            if name == method:
                self.error = getattr(builtins, error)("raised by the probe")
                raise self.error

    def export(self, versioned: bool, copy: bool = False) -> Export:
        """Hand out a managed tensor."""
        spec, memory = self.spec, self.memory
        if copy:
            spec = replace(spec, flags=spec.flags & ~READ_ONLY | COPIED)
            memory = Memory(spec)
        made = Export(spec, memory, versioned)
        self.exports.append(made)
        return made

    def dlpack(
        self,
        max_version: Any = None,
        dl_device: Any = None,
        copy: Any = None,
    ) -> Any:
        """Answer as the array API asks a producer to."""
        spec = self.spec
        if dl_device is not None and tuple(dl_device) != spec.device:
            raise BufferError("the probe is on another device")
        if copy is True and not spec.copies:
            raise BufferError("the probe makes no copies")
        major, _ = (0, 0) if max_version is None else max_version
        versioned = major >= 1
        if spec.generation:
            versioned = spec.generation == "versioned"
        if not versioned and spec.flags & READ_ONLY and not spec.generation:
            raise BufferError("an unversioned capsule cannot say that it is read-only")
        self.capsules.append(self.export(versioned, copy is True).capsule())
        return self.capsules[-1]


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if type(value) in (int, bool, float, str, type(None)):
        return value
    return f"{type(value).__name__}: {value!r}"


def _device(self: Any) -> tuple[int, int]:
    self.record("__dlpack_device__", {})
    place: tuple[int, int] = self.spec.device
    return place


def _dlpack(self: Any, **keywords: Any) -> Any:
    self.record("__dlpack__", keywords)
    known = {"stream", "max_version", "dl_device", "copy"}
    if unknown := keywords.keys() - known:
        raise TypeError(f"__dlpack__() got unexpected keywords {sorted(unknown)}")
    if self.spec.order is not None:
        self.spec.order(keywords)
    keywords.pop("stream", None)
    return self.dlpack(**keywords)


def _old_dlpack(self: Any, **keywords: Any) -> Any:
    self.record("__dlpack__", keywords)
    if unknown := keywords.keys() - {"stream"}:
        raise TypeError(f"__dlpack__() got unexpected keywords {sorted(unknown)}")
    return self.dlpack()


def probe(spec: Tensor) -> Any:
    """Make a probe of a new class."""
    body: dict[str, Any] = {
        "__dlpack__": _old_dlpack if spec.old else _dlpack,
        "__dlpack_device__": _device,
    }
    for name in spec.missing.split():
        del body[name]
    if spec.table:
        body["__dlpack_c_exchange_api__"] = table_capsule(spec.table)
    made = kept(type("Probe", (Probe,), body))()
    made.spec, made.memory = spec, Memory(spec)
    made.calls, made.exports, made.capsules, made.error = [], [], [], None
    return made


work_streams: dict[int, int] = {}
"""The current streams of probes, by type of device."""


def _hook(function: int, a: int, b: int, c: int, d: int) -> Any:
    """Answer the table functions of probes; only exports make sense for them."""
    if function in (1, 3):
        asked = structs.object_at(a)
        name = DLPackExchangeAPI.ENTRIES[function]
        if not isinstance(asked, Probe):
            raise TypeError(f"{name} of a {type(asked).__name__}")
        asked.record(name, {})
        made = asked.export(versioned=True)
        if function == 1:
            ctypes.c_void_p.from_address(b).value = made.address
        else:
            ctypes.memmove(b, made.address + 32, 48)
        return 0
    if function == 4:
        ctypes.c_void_p.from_address(c).value = work_streams.get(a)
        return 0
    raise BufferError("a probe only exports")


_FUNCTIONS = natives.table(_hook)


def table_capsule(kind: str) -> Any:
    """Return the capsule of a new table of a probe's functions."""
    table = kept(DLPackExchangeAPI())
    table.version.major, table.version.minor = NEWEST
    for name, address in zip(DLPackExchangeAPI.ENTRIES, _FUNCTIONS, strict=True):
        setattr(table, name, address)
    if kind == "no-borrow":
        table.dltensor_from_py_object_no_sync = None
    if kind == "newer":
        table.version.major = 2
        for name in DLPackExchangeAPI.ENTRIES:
            setattr(table, name, WILD)
    if kind == "newer-before-plain":
        older = table_capsule("plain")
        table = kept(DLPackExchangeAPI())
        table.version.major = 2
        table.prev_api = structs.capsule_pointer(older, structs.TABLE)
        for name in DLPackExchangeAPI.ENTRIES:
            setattr(table, name, WILD)
    return structs.new_capsule(ctypes.addressof(table), structs.TABLE)
