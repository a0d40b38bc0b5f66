"""Asking a tensor of the target for a capsule, and what becomes of that."""

from __future__ import annotations

import ctypes
import gc
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlx_check import natives
from dlx_check.conformance import structs
from dlx_check.conformance.experiments import Lab, Untestable, fitting, settle
from dlx_check.conformance.leaking import (
    LARGE,
    Keywords,
    dlpack,
    released,
    spoken,
)
from dlx_check.conformance.probe import NEWEST, Tensor
from dlx_check.conformance.reading import fields_of, first_of, mapped, readable
from dlx_check.conformance.records import UNNAMED, Record
from dlx_check.conformance.structs import UNVERSIONED, USED, VERSIONED
from dlx_check.conformance.target import exports

__all__ = [
    "Export",
    "Given",
    "Kinds",
    "Method",
    "given",
]

_ROUNDS = 10


@dataclass(frozen=True)
class Given:
    """A tensor of the target, and the elements that it has to export."""

    tensor: Any
    expected: bytes | None


def _has_protocol(lab: Lab, x: Any) -> None:
    """Leave it to one row to tell of a type that has a table and no `__dlpack__`."""
    found = lab.ask(hasattr, x, "__dlpack__").value
    if found is False and structs.api_pointer(type(x)):
        raise Untestable("needs:table.protocol")


def _place(x: Any) -> Any:
    return x.__dlpack_device__()


def numbers(dtype: str, shape: tuple[int, ...]) -> Any:
    """Return the elements 1, 2, 3, ... of a NumPy array."""
    count = int(np.prod(shape))
    return np.arange(1, count + 1).astype(np.dtype(dtype)).reshape(shape)


def given(lab: Lab, kind: str, dtype: str, shape: tuple[int, ...]) -> Given:
    """Make a tensor of the target: of a NumPy array, or of a kind that it names."""
    if shape == (LARGE,):
        return Given(lab.make(np.zeros(shape, np.dtype(dtype))), None)
    if not kind:
        dimensions = lab.target.dimensions
        if dimensions and len(shape) != dimensions:
            if not shape:
                raise Untestable("no-such-tensor")
            shape = (int(np.prod(shape)), *[1] * (dimensions - 1))
        array = numbers(dtype, shape)
        made = lab.make(array)
        # A library may make another dtype, as JAX does of 64 bits, or another shape.
        if lab.target.show is not None:
            seen = lab.ask(lab.part("show"), made)
            made_of = (array.dtype, array.shape)
            if seen.error is None and (seen.value.dtype, seen.value.shape) != made_of:
                raise Untestable("no-such-tensor")
        return Given(made, array.tobytes())
    if kind not in lab.target.tensors:
        raise Untestable(f"{UNNAMED}{kind}")
    answer = lab.ask(lab.target.tensor, lab.target.tensors[kind])
    # What a target says of itself is wrong: no check may pass for that.
    if (raised := answer.raised) is not None:
        raise ValueError(f"tensors[{kind!r}] raises {raised}")
    if not exports(answer.value):
        raise ValueError(f"tensors[{kind!r}] is {answer.value!r}, which is no tensor")
    return Given(answer.value, lab.shown(answer.value))


@dataclass(frozen=True)
class Export:
    """The target exports a tensor; `then` says what becomes of the capsule."""

    keywords: Keywords = ()
    dtype: str = "float32"
    shape: tuple[int, ...] = (2, 3)
    kind: str = ""
    then: str = "drop"
    """drop, consume, thread, pending, forget, free, change, or twice."""
    locate_name: bool = False
    """Whether to find out where the name of the capsule is, which takes a while."""

    def run(self, lab: Lab) -> Record:
        """Do it."""
        shape = (LARGE,) if self.then == "free" else self.shape
        if self.then in ("free", "change") and not getattr(lab.target, self.then):
            raise Untestable(f"not-observable: the target has no `{self.then}`")
        source = given(lab, self.kind, self.dtype, shape)
        x = source.tensor
        _has_protocol(lab, x)
        notes: dict[str, Any] = {}
        lab.step("is asked for its device")
        place = lab.ask(_place, x)
        notes["device"] = _device(place.value)
        lab.step("exports a tensor")
        # Who gives up too many references is counted before it ends the process.
        spare = 0 if self.then in ("free", "change") else _ROUNDS
        source, holder = Given(None, source.expected), [x] * (1 + spare)
        before = _references([x])
        keywords = spoken(lab.target.profiles, self.keywords)
        answer = lab.ask(dlpack, x, keywords)
        if answer.error is not None:
            return Record(raised=answer.raised, notes=notes)
        capsule = answer.value
        answer.value = None
        try:
            name = structs.capsule_name(capsule) or ""
        except TypeError:
            notes["returned"] = type(capsule).__name__
            return Record(notes=notes)
        notes["name"] = name
        if name not in (VERSIONED, UNVERSIONED):
            return Record(notes=notes)
        address = structs.capsule_pointer(capsule, name)
        managed = structs.managed_at(address, name)
        if self.locate_name:
            notes["static name"] = mapped(structs.capsule_name_address(capsule))
        struct = fields_of(managed, name, source.expected)
        where = first_of(managed.dl_tensor)
        if lab.target.address is not None and struct.null.count("data") == 0:
            own = lab.ask(lab.part("address"), x).value
            if isinstance(own, int):
                notes["shares"] = own == where
        asked = dict(keywords)
        copy = asked.pop("copy", None)
        if self.then == "drop" and (copy is not None or not notes.get("shares")):
            other = _beside(lab, x, tuple(asked.items()))
            # Two that live at once and have one address share the memory.
            if other and other == where:
                notes["shares"] = True
            elif other and "shares" not in notes:
                notes["shares"] = False
        natives.watch(address, address + type(managed).deleter.offset)
        kept = [capsule]
        del capsule
        lab.step(_STEPS[self.then])
        del x  # the holder may let go of it
        self._end(lab, holder, kept, address, name, notes)
        notes["deleted"] = natives.watched(address)
        if self.then == "drop" and not notes["deleted"]:
            # A destructor may free the tensor without the struct's deleter.
            notes["deleted"] = int(released(lab, keywords))
        if holder:
            gc.collect()
            x = holder[0]
            notes["references kept"] = _references([x]) - before
            for _ in range(notes["references kept"], 0):
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(x))
        return Record(struct=struct, notes=notes)

    def _end(
        self,
        lab: Lab,
        holder: list[Any],
        kept: list[Any],
        address: int,
        name: str,
        notes: dict[str, Any],
    ) -> None:
        managed = structs.managed_at(address, name)
        expected = numbers(self.dtype, self.shape).tobytes()
        if self.then == "pending":
            left = natives.drop_pending(kept)
            notes["pending"] = type(left).__name__
            return
        if self.then == "twice":
            again = lab.ask(
                dlpack, holder[0], spoken(lab.target.profiles, self.keywords)
            )
            if again.error is None and structs.capsule_name(again.value) == name:
                other = structs.capsule_pointer(again.value, name)
                notes["independent"] = other != address
                kept.clear()
                left = structs.managed_at(other, name)
                notes["kept"] = fields_of(left, name, expected).equal
            again.value = None
            kept.clear()
            return
        if self.then == "drop":
            kept.clear()
            return
        structs.rename(kept[0], USED + name)
        kept.clear()
        notes["deleted by the used capsule"] = natives.watched(address)
        if self.then == "forget":
            holder.clear()
            gc.collect()
            # One of these takes the place of freed memory. None is computed: an operand
            # would leave the same numbers there, for NumPy keeps what it frees.
            shape = fitting(Tensor(self.shape), lab.target.dimensions).shape
            zeros = [np.zeros(shape, self.dtype) for _ in range(_ROUNDS)]
            others = [lab.ask(lab.part("make"), each) for each in zeros]
            notes["kept"] = fields_of(managed, name, expected).equal
            del zeros, others
        if self.then in ("free", "change"):
            names = {**lab.target.names, "x": holder[0]}
            names["y"] = lab.ask(lab.part("make"), numbers("float32", (1,))).value
            struct = fields_of(managed, name, None)
            lab.ask(exec, getattr(lab.target, self.then), names)
            names.clear()
            gc.collect()
            where = first_of(managed.dl_tensor)
            notes["kept"] = readable(where)
            if self.then == "change":
                notes["kept"] = fields_of(managed, name, None) == struct
            if not readable(where):
                return
        if self.then == "thread":
            natives.delete_elsewhere(managed.deleter, address)
        else:
            natives.call(managed.deleter, [address, 0, 0, 0])


def _beside(lab: Lab, x: Any, keywords: Keywords) -> int:
    """Return where another export without `copy=` has its elements, 0 if none has."""
    answer = lab.ask(dlpack, x, keywords)
    try:
        name = structs.capsule_name(answer.value) or ""
        managed = structs.managed_in(answer.value, name)
    except (TypeError, ValueError):
        return 0
    return int(first_of(managed.dl_tensor))


_STEPS = {
    "drop": "drops an unused capsule",
    "consume": "deletes what was consumed",
    "thread": "deletes on a thread without the GIL",
    "pending": "drops an unused capsule while an exception is pending",
    "forget": "has forgotten the tensor that it exported",
    "free": "gives up the memory that it exported",
    "change": "changes the shape of a tensor that it exported",
    "twice": "exports the tensor once more",
}


def _device(value: Any) -> Any:
    if not isinstance(value, tuple) or len(value) != 2:
        return f"a {type(value).__name__}"
    try:
        return [int(value[0]), int(value[1])]
    except Exception:
        return "not integers"


_VERSION: Keywords = (("max_version", NEWEST),)


@dataclass(frozen=True)
class Kinds:
    """The target exports each tensor of `cannot_export`."""

    def run(self, lab: Lab) -> Record:
        """Do it: what each kind raised, or whether its elements are as shown."""
        notes: dict[str, Any] = {}
        for kind, expression in lab.target.cannot_export.items():
            lab.step(f"exports what is {kind}")
            made = lab.ask(lab.target.tensor, expression)
            if made.error is not None:
                continue
            x, made.value = made.value, None
            _has_protocol(lab, x)
            answer = lab.ask(dlpack, x, spoken(lab.target.profiles, _VERSION))
            if answer.error is not None:
                raised = answer.raised
                assert raised is not None
                notes[kind] = [*raised.bases]
                continue
            name = structs.capsule_name(answer.value) or ""
            managed = structs.managed_in(answer.value, name)
            lab.step(f"shows what is {kind}")
            struct = fields_of(managed, name, lab.shown(x))
            notes[kind] = struct.equal
            if "data" in struct.null and struct.shape and all(struct.shape):
                notes[kind] = "NULL data"
        if not notes:
            raise Untestable("no-such-tensor")
        return Record(notes={"kinds": notes})


def _references(only: list[Any]) -> int:
    """Count the references to an object, whichever way a variable is read."""
    # From 3.14 on, a call holds none to what a variable holds, unless it may be unset.
    return sys.getrefcount(only[0])


@dataclass(frozen=True)
class Method:
    """Calls of the target's own methods that need no capsule."""

    what: str
    """positional, or failing (ten refused exports)."""

    def run(self, lab: Lab) -> Record:
        """Do it."""
        x = given(lab, "", "float32", (2, 3)).tensor
        lab.step("exports a tensor")
        _has_protocol(lab, x)
        if self.what == "positional":
            answer = lab.ask(lambda: x.__dlpack__(None))
            return Record(raised=answer.raised)
        before = sys.getrefcount(x)
        answer = lab.ask(lambda: None)
        for _ in range(_ROUNDS):
            answer = lab.ask(lambda: x.__dlpack__(dl_device=(12, 0)))
            raised = answer.raised
            answer.value = answer.error = None
        if raised is None:
            raise Untestable("not-asked: the target refuses no device")
        settle(lambda: sys.getrefcount(x) <= before)
        return Record(
            raised=raised, notes={"references kept": sys.getrefcount(x) - before}
        )
