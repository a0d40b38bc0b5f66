"""Inspects objects and types: what they have, and what they export."""

from __future__ import annotations

from ctypes import py_object
from typing import Any

from dlx_check.abi import PyObject_CheckBuffer, is_capsule
from dlx_check.inspection.capsules import read_capsule, read_table
from dlx_check.inspection.compare import differences
from dlx_check.inspection.exports import (
    ask_device,
    borrowed,
    current_work_stream,
    exported_by_protocol,
    exported_by_table,
    raised,
    short,
)
from dlx_check.inspection.hints import hints_for, library_of, module_of
from dlx_check.inspection.records import Inspection, Protocol, Stream, Table

__all__ = ["inspect_object", "inspect_type"]

# The second name is from drafts before DLPack 1.3.
_TABLES = ("__dlpack_c_exchange_api__", "__c_dlpack_exchange_api__")
_METHODS = ("__dlpack__", "__dlpack_device__", "__dlpack_device_aliases__")
_OTHERS = (
    "__array_interface__",
    "__array_struct__",
    "__cuda_array_interface__",
    "__arrow_c_device_array__",
    "__arrow_c_array__",
    "__cuda_stream__",
)
_CPU = 1


def inspect_type(class_: type) -> Inspection:
    """Return what a type says without an instance: its table and its protocols."""
    return Inspection(
        subject=f"type {_subject(class_)}",
        protocols=tuple(Protocol(name) for name in _protocols(class_)),
        table=_table(class_),
    )


def inspect_object(x: Any, *, exports: bool) -> Inspection:
    """Return what an object says; without ``exports``, no code of its library runs."""
    protocols = _protocols(x)
    # Given x itself, ctypes would ask it for its class.
    if PyObject_CheckBuffer(py_object(x)):
        protocols.append("buffer")
    table = _table(type(x))
    if not exports:
        return Inspection(
            subject=_subject(type(x)),
            protocols=tuple(Protocol(name) for name in protocols),
            table=table,
        )
    for name in _METHODS:
        # An object may hand on the methods of another one by `__getattr__`.
        if name not in protocols and _has(x, name):
            protocols.append(name)
    notes: dict[str, str | None] = {}
    device = None
    if "__dlpack_device__" in protocols:
        device, notes["__dlpack_device__"] = ask_device(x)
    view = None if table is None else borrowed(x, table)
    by_table = None if table is None else exported_by_table(x, table)
    by_protocol = None
    if "__dlpack__" in protocols:
        by_protocol = exported_by_protocol(x, device)
        notes["__dlpack__"] = by_protocol.refusal
    interface = None
    if "__cuda_array_interface__" in protocols:
        interface, notes["__cuda_array_interface__"] = _interface(x)
    outcomes = [each for each in (view, by_table, by_protocol) if each is not None]
    tensor = next((each.tensor for each in outcomes if each.tensor), None)
    managed = next((each.managed for each in outcomes[::-1] if each.managed), None)
    stream = interface
    if table is not None and tensor is not None and tensor.device[0] != _CPU:
        stream = current_work_stream(table, tensor.device) or interface
    if "__cuda_stream__" in protocols:
        stream = _stream(x)
    return Inspection(
        subject=_subject(type(x)),
        protocols=tuple(Protocol(name, notes.get(name)) for name in protocols),
        table=table,
        capsule=None if by_protocol is None else by_protocol.capsule,
        managed=managed,
        tensor=tensor,
        stream=stream,
        differences=differences(view or by_table, by_table, by_protocol, device),
        hints=hints_for(x),
        unreadable=tuple(line for each in outcomes for line in each.unreadable),
    )


def _interface(x: Any) -> tuple[Stream | None, str | None]:
    """Return the stream of ``__cuda_array_interface__``, or why there is none."""
    try:
        interface = x.__cuda_array_interface__
    except Exception as error:
        return None, raised(error)
    # What classes say of themselves is not asked: it may raise.
    is_dict = issubclass(type(interface), dict)
    handle = dict.get(interface, "stream") if is_dict else None
    if not issubclass(type(handle), int):
        return None, None
    return Stream("__cuda_array_interface__", handle), None


def _stream(x: Any) -> Stream:
    """Return the stream that an object with ``__cuda_stream__`` is (R154)."""
    name = "__cuda_stream__"
    try:
        answer = x.__cuda_stream__()
    except Exception as error:
        return Stream(name, None, raised(error))
    try:
        match answer:
            case (0, int(handle)):
                return Stream(name, handle)
    except Exception as error:
        return Stream(name, None, f"gives what {raised(error)}")
    return Stream(name, None, f"gives {short(answer)}")


def _subject(class_: type) -> str:
    name = f"{module_of(class_)}.{class_.__qualname__}".lstrip(".")
    library = library_of(class_)
    return name if library is None else f"{name}, {' '.join(library)}"


def _protocols(x: object) -> list[str]:
    names = (*_TABLES, *_METHODS, *_OTHERS)
    return [name for name in names if _static(x, name) is not None]


def _static(x: object, name: str) -> object:
    """Return an attribute as the class or the object stores it; no code of x runs."""
    class_ = x if issubclass(type(x), type) else type(x)
    for base in type.__dict__["__mro__"].__get__(class_):
        namespace = type.__dict__["__dict__"].__get__(base)
        if name in namespace:
            return namespace[name]
    if class_ is x:
        return None
    try:
        own = object.__getattribute__(x, "__dict__")
    except AttributeError:
        return None
    return own.get(name) if type(own) is dict else None


def _has(x: object, name: str) -> bool:
    try:
        return getattr(x, name, None) is not None
    except Exception:
        return False


def _table(class_: type) -> Table | None:
    for name in _TABLES:
        capsule = _static(class_, name)
        if is_capsule(capsule):
            address = read_capsule(capsule).capsule.pointer
            if address is not None:
                return read_table(address, name)
    return None
