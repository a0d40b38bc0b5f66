"""Tensors of a simulated device: in which order their elements are used.

A stream of the producer writes the elements first. What a target owes is seen in races:
pairs of accesses that no stream, event or wait holds apart.
"""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_uint64
from dataclasses import dataclass
from typing import Any

from dlx_check import natives
from dlx_check.conformance import structs
from dlx_check.conformance.answering import probe, work_streams
from dlx_check.conformance.calling import call
from dlx_check.conformance.driver import Machine, driver
from dlx_check.conformance.experiments import Answer, Lab, Untestable
from dlx_check.conformance.interfacing import ForeignStream, Shown
from dlx_check.conformance.probe import NEWEST, Export, Memory, Tensor
from dlx_check.conformance.reading import first_of
from dlx_check.conformance.records import Record
from dlx_check.conformance.structs import UNVERSIONED, VERSIONED

__all__ = ["Joined", "Ordered", "TableOrder", "TableQuiet", "Taken"]

SHAPE = (6,)


def made(lab: Lab, machine: Machine, device: int, address: int, stream: int) -> Any:
    """Make a tensor of the target that is ready on a stream, after a write."""
    make = lab.part("on_device")
    machine.launch(stream, address, write=True)
    answer = lab.ask(make, address, stream, (device, 0))
    if answer.error is not None:
        raise Untestable("no-such-tensor")
    return answer.value


def seen(machine: Machine, raised: Any = None, **notes: Any) -> Record:
    """Return the record of what happened on the machine."""
    notes |= {"races": machine.races, "violations": machine.violations}
    return Record(raised=raised, notes=notes)


@contextmanager
def working(lab: Lab, stream: int) -> Iterator[None]:
    """Make a stream the target's current one."""
    lab.step("works on a stream")
    made = lab.ask(lab.part("work_on"), stream)
    if made.error is None:
        made.error = lab.ask(lambda: made.value.__enter__()).error
    if made.error is not None:
        raise Untestable("not-observable: the target works on no other stream")
    try:
        yield
    finally:
        lab.ask(lambda: made.value.__exit__(None, None, None))


def consumable(capsule: Any) -> Any:
    """Return the managed tensor of a capsule that nobody has consumed."""
    name = structs.capsule_name(capsule) if structs.is_capsule(capsule) else None
    if name not in (VERSIONED, UNVERSIONED):
        raise Untestable("needs:producer.capsule.name")
    return structs.managed_in(capsule, name)


@dataclass(frozen=True)
class Ordered:
    """The target exports for a stream, which then reads the elements."""

    stream: Any = "handle"
    """What is passed: a number, None, "handle" for a new stream, or "same"."""
    reader: int | None = None
    """The stream that reads, where it is not the one that is passed."""
    device: int = 2
    keywords: tuple[tuple[str, Any], ...] = ()
    ends: bool = False
    """Whether the stream is destroyed before the export is let go of."""

    def run(self, lab: Lab) -> Record:
        """Do it."""
        machine = driver(lab, rocm=self.device == 10)
        own, address = machine.stream(), machine.memory()
        x = made(lab, machine, self.device, address, own)
        named = {"handle": machine.stream(), "same": own}
        stream = named.get(self.stream, self.stream)
        keywords = {"max_version": NEWEST, **dict(self.keywords), "stream": stream}
        machine.forget()
        lab.step("exports a tensor of a device for a stream")
        answer = lab.ask(lambda: x.__dlpack__(**keywords))
        waits = machine.waits
        if answer.error is not None:
            return seen(machine, answer.raised)
        managed = consumable(answer.value)
        tensor = managed.dl_tensor
        where = first_of(tensor)
        if tensor.device.device_type == 1:
            machine.host_reads(where)
        elif self.stream not in (-1, -2):
            machine.launch(stream if self.reader is None else self.reader, where)
        if self.ends:
            machine.call("cuStreamDestroy_v2", stream)
        lab.step("lets go of a tensor of a device")
        answer.value = x = None
        gc.collect()
        return seen(machine, waits=waits)


def _producer(machine: Machine, device: int, address: int, own: int, table: str) -> Any:
    """Return a probe of what a stream has written; it orders as it is asked."""

    def order(keywords: dict[str, Any]) -> None:
        stream = keywords.get("stream")
        if stream != -1:
            machine.wait(1 if stream is None else stream, own)

    place = (2, device)
    return probe(Tensor(SHAPE, device=place, address=address, order=order, table=table))


@dataclass(frozen=True)
class Taken:
    """The target imports for a stream, which then reads the elements."""

    table: str = ""
    """The producer's table, which does not order: "" or "plain"."""
    interface: bool = False
    """Whether the producer has the CUDA array interface alone."""
    other_device: bool = False
    """Whether the stream is not one of the tensor's device."""
    writes_back: bool = False
    """Whether the producer's stream writes again, once the import is let go of."""
    own: bool = False
    """Whether the target imports for a stream object that nobody else holds."""

    def run(self, lab: Lab) -> Record:
        """Do it."""
        take = lab.part("take_on")
        if self.interface:
            lab.part("take_cuda")  # it must mean to take such objects
        machine = driver(lab)
        device = int(self.other_device)
        address, own = machine.memory(device), machine.stream(device)
        stream = machine.stream()
        if not self.other_device:
            machine.launch(own, address, write=True)
        given: Any = Shown(address, {"stream": own}, SHAPE)
        if not self.interface:
            work_streams[2] = own
            given = _producer(machine, device, address, own, self.table)
        held = ForeignStream((0, stream))
        alive = weakref.ref(held)
        lab.step("imports a tensor of a device for a stream")
        answer = lab.ask(take, given, held if self.own else stream)
        work_streams.clear()
        if self.own and not held.asked:
            raise Untestable("not-asked: __cuda_stream__ is not called")
        if answer.error is not None or self.other_device:
            asked = getattr(given, "calls", ())
            passed = stream in [each.keywords.get("stream") for each in asked]
            return seen(machine, answer.raised, passed=passed)
        del held
        gc.collect()
        holds = alive() is not None
        machine.launch(stream, address)
        lab.step("lets go of a tensor of a device")
        answer.value = None
        gc.collect()
        if self.writes_back:
            machine.launch(own, address, write=True)
        return seen(machine, holds=holds)


@dataclass(frozen=True)
class Joined:
    """A stream waits for the one that the target's CUDA array interface names."""

    def run(self, lab: Lab) -> Record:
        """Do it."""
        machine = driver(lab)
        own, address = machine.stream(), machine.memory()
        x = made(lab, machine, 2, address, own)
        lab.step("is asked for its CUDA array interface")
        answer: Answer = lab.ask(lambda: x.__cuda_array_interface__)
        if isinstance(answer.error, AttributeError):
            raise Untestable("not-asked: no __cuda_array_interface__")
        if answer.error is not None or not isinstance(answer.value, dict):
            return seen(machine, answer.raised, version=None)
        stream, named = machine.stream(), answer.value.get("stream")
        if named:
            machine.wait(stream, named)
        machine.launch(stream, answer.value["data"][0])
        return seen(machine, zero=named == 0, version=answer.value.get("version"))


@dataclass(frozen=True)
class TableQuiet:
    """The table lends a view of a tensor of a device, or makes an object of one."""

    entry: str

    def run(self, lab: Lab) -> Record:
        """Do it."""
        machine = driver(lab)
        own, address = machine.stream(), machine.memory()
        if self.entry.startswith("dltensor"):
            x = made(lab, machine, 2, address, own)
            given = id(x)
        else:
            spec = Tensor(SHAPE, device=(2, 0), address=address)
            given = Export(spec, Memory(spec), True).address
        place = (c_uint64 * 8)()  # a reference, or a whole DLTensor
        machine.forget()
        with working(lab, own):
            found = call(lab, self.entry, given, ctypes.addressof(place))
        notes = {"waits": machine.waits, "code": found["code"]}
        if not (found["code"] or self.entry.startswith("dltensor")) and place[0]:
            structs.take_reference(place[0])
        return seen(machine, **notes)


@dataclass(frozen=True)
class TableOrder:
    """The table exports a tensor of a device, and names the current stream."""

    ready: bool = True
    """Whether the library works on the stream on which the tensor is ready."""

    def run(self, lab: Lab) -> Record:
        """Do it."""
        machine = driver(lab)
        own, address = machine.stream(), machine.memory()
        x = made(lab, machine, 2, address, own)
        out = c_uint64(0)
        stream = machine.stream()
        machine.forget()
        name = "managed_tensor_from_py_object_no_sync"
        with working(lab, own if self.ready else stream):
            found = call(lab, name, id(x), ctypes.addressof(out))
        notes: dict[str, Any] = {"waits": machine.waits, "code": found["code"]}
        if found["code"] == 0 and out.value:
            managed = structs.managed_at(out.value, VERSIONED)
            natives.call(managed.deleter, [out.value, 0, 0, 0])
        current = c_uint64(0)
        with working(lab, stream):
            place = ctypes.addressof(current)
            found = call(lab, "current_work_stream", 2, 0, place)
        notes |= {"left": found["left"], "named": current.value == stream}
        return seen(machine, **notes)
