"""Looking up a type's exchange table, and calling its functions as C code does."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from ctypes import c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

from dlx_check import natives
from dlx_check.conformance import structs
from dlx_check.conformance.experiments import PLAIN, Lab, Untestable, described, settle
from dlx_check.conformance.exporting import given
from dlx_check.conformance.probe import NEWEST, Export, Memory, Tensor
from dlx_check.conformance.reading import fields_of, first_of
from dlx_check.conformance.records import Record, Struct
from dlx_check.conformance.structs import (
    VERSIONED,
    DLManagedTensorVersioned,
    DLPackExchangeAPI,
    DLTensor,
)

__all__ = [
    "Allocate",
    "Borrow",
    "FromObject",
    "Protocol",
    "Refusals",
    "Stream",
    "Table",
    "ToObject",
]

ATTRIBUTE = "__dlpack_c_exchange_api__"
_UNTOUCHED = 0x5AFE
_POISON = 8
"""An address that cannot be read."""


def table_of(lab: Lab) -> Any:
    """Return the table of the target's type; `Untestable` if it has none."""
    kind = lab.target.value(lab.target.type)
    address = 0 if kind is None else structs.api_pointer(kind)
    if not address:
        raise Untestable(f"no-table: no {ATTRIBUTE}")
    return DLPackExchangeAPI.from_address(address)


def entry(lab: Lab, name: str) -> int:
    """Return the address of a function of the table."""
    address = getattr(table_of(lab), name)
    if not address:
        raise Untestable(f"no-table: {name} is NULL")
    return int(address)


def call(lab: Lab, name: str, *arguments: int) -> dict[str, Any]:
    """Call a function of the table; return its code and what it left behind."""
    words = [*arguments, 0, 0, 0, 0][:4]
    lab.step(f"runs {name}")
    answer = lab.ask(natives.call, entry(lab, name), words)
    if answer.error is not None:
        raise answer.error
    code, left = answer.value
    raised = None if left is None else [*described(left).bases]
    return {"code": code, "left": raised}


@dataclass(frozen=True)
class Table:
    """The table is looked up and read; nothing is called."""

    def run(self, lab: Lab) -> Record:
        """Do it."""
        kind = lab.target.value(lab.target.type)
        if kind is None or not hasattr(kind, ATTRIBUTE):
            raise Untestable(f"no-table: no {ATTRIBUTE}")
        capsule = getattr(kind, ATTRIBUTE)
        notes: dict[str, Any] = {"kind": type(capsule).__name__}
        if notes["kind"] != "PyCapsule":
            return Record(notes=notes)
        notes["name"] = structs.capsule_name(capsule)
        if notes["name"] != structs.TABLE:
            return Record(notes=notes)
        address = structs.api_pointer(kind)
        before = bytes(DLPackExchangeAPI.from_address(address))
        notes["destructor"] = structs.capsule_destructor(capsule) != 0
        del capsule
        gc.collect()
        notes["same"] = address == structs.api_pointer(kind)
        notes["unchanged"] = before == bytes(DLPackExchangeAPI.from_address(address))
        tensor = given(lab, "", "float32", (2, 3)).tensor
        notes["found by instances"] = structs.api_pointer(type(tensor)) == address
        table = DLPackExchangeAPI.from_address(address)
        notes["version"] = [table.version.major, table.version.minor]
        notes["null"] = [n for n in table.ENTRIES if not getattr(table, n)]
        notes["older"] = _older(table)
        return Record(notes=notes)


@dataclass(frozen=True)
class Protocol:
    """A tensor of a type with a table, or the type, is looked at; nothing is called."""

    def run(self, lab: Lab) -> Record:
        """Do it: name the methods of the Python protocol that are missing."""
        try:
            what = given(lab, "", "float32", (2, 3)).tensor
            kind = type(what)
        except Untestable:
            what = kind = lab.target.value(lab.target.type)
        if not structs.api_pointer(kind):
            raise Untestable(f"no-table: no {ATTRIBUTE}")
        names = ("__dlpack__", "__dlpack_device__")
        return Record(notes={"missing": [n for n in names if not hasattr(what, n)]})


def _older(table: Any) -> Any:
    """Return the versions along `prev_api`."""
    found: list[list[int]] = []
    while table.prev_api and len(found) < 8:
        table = DLPackExchangeAPI.from_address(table.prev_api)
        found.append([table.version.major, table.version.minor])
    return found


_FROM = "managed_tensor_from_py_object_no_sync"
_TO = "managed_tensor_to_py_object_no_sync"
_BORROW = "dltensor_from_py_object_no_sync"


@dataclass(frozen=True)
class FromObject:
    """The table exports an object; `what` is a kind, "another" type, or "threads"."""

    what: str = ""

    def run(self, lab: Lab) -> Record:
        """Do it."""
        if self.what == "another":
            out = c_uint64(_UNTOUCHED)
            other = object()
            notes = call(lab, _FROM, id(other), ctypes.addressof(out))
            return Record(notes=notes)
        if self.what == "threads":
            return self._threads(lab)
        source = given(lab, self.what, "float32", (2, 3))
        before = sys.getrefcount(source.tensor)
        out = c_uint64(0)
        notes = call(lab, _FROM, id(source.tensor), ctypes.addressof(out))
        if notes["code"] != 0 or not out.value:
            notes["null"] = not out.value
            return Record(notes=notes)
        managed = DLManagedTensorVersioned.from_address(out.value)
        struct = fields_of(managed, VERSIONED, source.expected)
        notes["as __dlpack__"] = _differences(lab, source.tensor, managed)
        lab.step("deletes what its table exported")
        if managed.deleter:
            natives.watch(out.value, out.value + type(managed).deleter.offset)
            natives.call(managed.deleter, [out.value, 0, 0, 0])
        gc.collect()
        notes["references kept"] = sys.getrefcount(source.tensor) - before
        return Record(struct=struct, notes=notes)

    def _threads(self, lab: Lab) -> Record:
        source = given(lab, "", "float32", (2, 3))
        address, wrong = entry(lab, _FROM), []

        def work() -> None:
            for _ in range(20):
                out = c_uint64(0)
                words = [id(source.tensor), ctypes.addressof(out), 0, 0]
                code, left = natives.call(address, words)
                if code or left is not None or not out.value:
                    wrong.append(code)
                    continue
                managed = DLManagedTensorVersioned.from_address(out.value)
                if not fields_of(managed, VERSIONED, source.expected).equal:
                    wrong.append(0)
                natives.call(managed.deleter, [out.value, 0, 0, 0])

        threads = [threading.Thread(target=work) for _ in range(4)]
        lab.step(f"runs {_FROM} on four threads")
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return Record(notes={"wrong on threads": len(wrong)})


def _differences(lab: Lab, tensor: Any, managed: Any) -> list[str] | None:
    """Return the fields in which `__dlpack__` says something else than the table."""
    answer = lab.ask(lambda: tensor.__dlpack__(max_version=NEWEST))
    if answer.error is not None or structs.capsule_name(answer.value) != VERSIONED:
        return None
    other = structs.managed_in(answer.value, VERSIONED)
    one, two = (fields_of(each, VERSIONED, None) for each in (managed, other))
    names = ("flags", "device", "dtype", "ndim", "shape", "strides", "values")
    found = [name for name in names if getattr(one, name) != getattr(two, name)]
    moved = first_of(managed.dl_tensor) != first_of(other.dl_tensor)
    return found + ["data"] * moved


@dataclass(frozen=True)
class Borrow:
    """The table lends a view of an object."""

    def run(self, lab: Lab) -> Record:
        """Do it."""
        source = given(lab, "", "float32", (2, 3))
        before = sys.getrefcount(source.tensor)
        view = DLTensor()
        notes = call(lab, _BORROW, id(source.tensor), ctypes.addressof(view))
        notes["references kept"] = sys.getrefcount(source.tensor) - before
        struct: Struct | None = None
        if notes["code"] == 0:
            struct = fields_of(view, "", source.expected)
        other, again = object(), DLTensor()
        wrong = call(lab, _BORROW, id(other), ctypes.addressof(again))
        notes["another"] = [wrong["code"], wrong["left"]]
        return Record(struct=struct, notes=notes)


@dataclass(frozen=True)
class ToObject:
    """The table makes an object of a probe's tensor."""

    tensor: Tensor = PLAIN

    def run(self, lab: Lab) -> Record:
        """Do it."""
        memory = Memory(self.tensor)
        export = Export(self.tensor, memory, versioned=True)
        out = c_uint64(_UNTOUCHED)
        notes = call(lab, _TO, export.address, ctypes.addressof(out))
        shown = None
        if notes["code"] == 0 and out.value not in (0, _UNTOUCHED):
            made = structs.take_reference(out.value)
            kind = lab.target.value(lab.target.type)
            notes["right type"] = isinstance(made, kind)
            # From 3.14 on, a call holds no reference to what a variable holds.
            alone = object()
            notes["references"] = 1 + sys.getrefcount(made) - sys.getrefcount(alone)
            notes["deleted while alive"] = [export.deleted]
            lab.step("shows what its table made")
            shown = lab.show(made, memory)
            lab.step("lets go of what its table made")
            del made
            settle(lambda: export.deleted > 0)
        notes["deleted"] = [export.deleted]
        return Record(shown=shown, notes=notes)


@dataclass(frozen=True)
class Allocate:
    """The table allocates; the prototype's other fields cannot be read."""

    device: tuple[int, int] = (1, 0)
    reports: bool = True
    """Whether there is a SetError."""

    def run(self, lab: Lab) -> Record:
        """Do it, without the GIL."""
        address = entry(lab, "managed_tensor_allocator")
        prototype = DLTensor(dtype=(2, 32, 1), byte_offset=2**64 - 1, ndim=2)
        prototype.data = _POISON
        c_void_p.from_address(ctypes.addressof(prototype) + 32).value = _POISON
        prototype.device.device_type, prototype.device.device_id = self.device
        prototype.shape = (ctypes.c_int64 * 2)(2, 3)
        out, errors = c_uint64(0), c_uint64(0)
        # Without the GIL: ctypes lets go of it for functions of a CDLL (R136).
        function = ctypes.CFUNCTYPE(ctypes.c_int, *[c_void_p] * 4)(address)
        lab.step("runs managed_tensor_allocator")
        answer = lab.ask(
            function,
            ctypes.addressof(prototype),
            ctypes.addressof(out),
            ctypes.addressof(errors),
            natives.error_counter() if self.reports else None,
        )
        # ctypes raises SystemError where an exception was left.
        left = answer.raised and answer.raised.type
        result = -1 if left else answer.value
        notes: dict[str, Any] = {"code": result, "errors": errors.value, "left": left}
        if result != 0 or not out.value:
            return Record(notes=notes)
        managed = DLManagedTensorVersioned.from_address(out.value)
        lab.step("writes to what its allocator made")
        if managed.dl_tensor.data:
            ctypes.memset(first_of(managed.dl_tensor), 1, 24)
        struct = fields_of(managed, VERSIONED, None)
        lab.step("deletes what its allocator made")
        if managed.deleter:
            natives.call(managed.deleter, [out.value, 0, 0, 0])
        return Record(struct=struct, notes=notes)


@dataclass(frozen=True)
class Stream:
    """The table names the current stream of a device."""

    kind: int = 1
    """The type of the device."""

    def run(self, lab: Lab) -> Record:
        """Do it."""
        out = c_uint64(_UNTOUCHED)
        notes = call(lab, "current_work_stream", self.kind, 0, ctypes.addressof(out))
        # Handles differ from run to run.
        notes["stream"] = None if out.value == _UNTOUCHED else min(out.value, 3)
        return Record(notes=notes)


def _exported(name: str, out: Any) -> Any:
    """Return the tensor that a table function exported or lent."""
    if name == _BORROW:
        return DLTensor.from_buffer(out)
    return DLManagedTensorVersioned.from_address(out[0]).dl_tensor


def nowhere(tensor: Any) -> bool:
    """Return whether a tensor has elements, and NULL data."""
    shape = tensor.shape[: tensor.ndim] if tensor.ndim else []
    return not tensor.data and all(shape)


@dataclass(frozen=True)
class Refusals:
    """The table exports each tensor that DLPack cannot describe."""

    entry: str = _FROM

    def run(self, lab: Lab) -> Record:
        """Do it: what each did, and what `__dlpack__` did."""
        notes: dict[str, Any] = {}
        entry(lab, self.entry)
        for kind, expression in lab.target.cannot_export.items():
            made = lab.ask(lab.target.tensor, expression)
            if made.error is not None:
                continue
            x = made.value
            lab.step(f"exports what is {kind}")
            protocol = lab.ask(lambda x=x: x.__dlpack__(max_version=NEWEST))
            out = (c_uint64 * 8)()
            found = call(lab, self.entry, id(x), ctypes.addressof(out))
            null = not found["code"] and nowhere(_exported(self.entry, out))
            notes[kind] = {
                "NULL data": null,
                "__dlpack__": None if protocol.raised is None else "refuses",
                "code": found["code"],
                "left": found["left"],
            }
        if not notes:
            raise Untestable("no-such-tensor")
        return Record(notes={"kinds": notes})
