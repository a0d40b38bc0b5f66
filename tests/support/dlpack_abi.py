"""`dlpack.h` 1.3 in ctypes under its C names, and the capsule functions of CPython.

For tests that read or build tensors below the level of Python objects. Managed tensors
are typed `Any` here, because their two kinds share most fields.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Sequence
from ctypes import (
    CFUNCTYPE,
    POINTER,
    PYFUNCTYPE,
    Structure,
    addressof,
    byref,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    cast,
    py_object,
)
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

DLPACK_MAJOR_VERSION = 1
DLPACK_MINOR_VERSION = 3
DLPACK_FLAG_BITMASK_READ_ONLY = 1
DLPACK_FLAG_BITMASK_IS_COPIED = 2
DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED = 4

# Every pointer parameter is a `c_void_p`: callers may pass an address, `byref(...)` or
# None, and a Python function behind such a type receives an address or None. Functions
# that may set a Python exception are called with the GIL held (R146), the rest without.
Deleter = CFUNCTYPE(None, c_void_p)
SetError = CFUNCTYPE(None, c_void_p, c_char_p, c_char_p)
DLPackManagedTensorAllocator = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_void_p)
DLPackManagedTensorFromPyObjectNoSync = PYFUNCTYPE(c_int, py_object, c_void_p)
DLPackManagedTensorToPyObjectNoSync = PYFUNCTYPE(c_int, c_void_p, c_void_p)
DLPackDLTensorFromPyObjectNoSync = PYFUNCTYPE(c_int, py_object, c_void_p)
DLPackCurrentWorkStream = PYFUNCTYPE(c_int, c_int32, c_int32, c_void_p)


class DLPackVersion(Structure):
    """`DLPackVersion`."""

    _fields_ = (("major", c_uint32), ("minor", c_uint32))


class DLDevice(Structure):
    """`DLDevice`."""

    _fields_ = (("device_type", c_int32), ("device_id", c_int32))


class DLDataType(Structure):
    """`DLDataType`."""

    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class DLTensor(Structure):
    """`DLTensor`."""

    _fields_ = (
        ("data", c_void_p),
        ("device", DLDevice),
        ("ndim", c_int32),
        ("dtype", DLDataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


class DLManagedTensor(Structure):
    """`DLManagedTensor`, behind a capsule named `dltensor`."""

    _fields_ = (
        ("dl_tensor", DLTensor),
        ("manager_ctx", c_void_p),
        ("deleter", Deleter),
    )


class DLManagedTensorVersioned(Structure):
    """`DLManagedTensorVersioned`, behind a capsule named `dltensor_versioned`."""

    _fields_ = (
        ("version", DLPackVersion),
        ("manager_ctx", c_void_p),
        ("deleter", Deleter),
        ("flags", c_uint64),
        ("dl_tensor", DLTensor),
    )


class DLPackExchangeAPIHeader(Structure):
    """`DLPackExchangeAPIHeader`."""


DLPackExchangeAPIHeader._fields_ = (
    ("version", DLPackVersion),
    ("prev_api", POINTER(DLPackExchangeAPIHeader)),
)


class DLPackExchangeAPI(Structure):
    """`DLPackExchangeAPI`; a NULL entry is false."""

    _fields_ = (
        ("header", DLPackExchangeAPIHeader),
        ("managed_tensor_allocator", DLPackManagedTensorAllocator),
        (
            "managed_tensor_from_py_object_no_sync",
            DLPackManagedTensorFromPyObjectNoSync,
        ),
        ("managed_tensor_to_py_object_no_sync", DLPackManagedTensorToPyObjectNoSync),
        ("dltensor_from_py_object_no_sync", DLPackDLTensorFromPyObjectNoSync),
        ("current_work_stream", DLPackCurrentWorkStream),
    )


ENTRIES = dict(DLPackExchangeAPI._fields_[1:])
"""The functions of a table: their types, by their C names."""


def dlpack_include() -> Path:
    """Return the include directory of `<dlpack/dlpack.h>` in the apache-tvm-ffi wheel.

    Found without importing tvm_ffi, because that imports torch if installed.
    """
    spec = importlib.util.find_spec("tvm_ffi")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the tests need dlpack.h from apache-tvm-ffi")
    include = Path(spec.origin).parent / "include"
    if not (include / "dlpack" / "dlpack.h").is_file():
        raise FileNotFoundError(f"no dlpack/dlpack.h in {include}")
    return include


def _python(name: str, result: Any, *arguments: Any) -> Any:
    """Bind a C API function privately: `ctypes.pythonapi.f` is shared process-wide."""
    return PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_PyCapsule_New = _python("PyCapsule_New", py_object, c_void_p, c_void_p, c_void_p)
_PyCapsule_GetName = _python("PyCapsule_GetName", c_void_p, py_object)
_PyCapsule_SetName = _python("PyCapsule_SetName", c_int, py_object, c_void_p)
_PyCapsule_GetPointer = _python("PyCapsule_GetPointer", c_void_p, py_object, c_char_p)
_PyCapsule_GetDestructor = _python("PyCapsule_GetDestructor", c_void_p, py_object)
_Py_IncRef = _python("Py_IncRef", None, py_object)
_Py_DecRef = _python("Py_DecRef", None, py_object)


def for_ever(kept: T) -> T:
    """Leak a reference, because C code keeps addresses until the process ends."""
    _Py_IncRef(kept)
    return kept


_names: dict[bytes, ctypes.Array[ctypes.c_char]] = for_ever({})


def _static_name(name: bytes) -> int:
    return addressof(_names.setdefault(name, ctypes.create_string_buffer(name)))


def new_capsule(pointer: int, name: bytes, destructor: int | None = None) -> Any:
    """Make a capsule; `destructor` is the address of a C function."""
    return _PyCapsule_New(pointer, _static_name(name), destructor)


def capsule_name(capsule: Any) -> bytes | None:
    """Return the name of a capsule, None for NULL."""
    return c_char_p(capsule_name_address(capsule)).value


def capsule_name_address(capsule: Any) -> int | None:
    """Return the address of a capsule's name (R2), None for NULL."""
    address: int | None = _PyCapsule_GetName(capsule)
    return address


def set_capsule_name(capsule: Any, name: bytes) -> None:
    """Rename a capsule, as a consumer does."""
    _PyCapsule_SetName(capsule, _static_name(name))


def capsule_pointer(capsule: Any, name: bytes) -> int:
    """Return the address in a capsule; raise ValueError if the name differs."""
    pointer: int = _PyCapsule_GetPointer(capsule, name)
    return pointer


def capsule_destructor(capsule: Any) -> int | None:
    """Return the address of a capsule's destructor, None for NULL."""
    destructor: int | None = _PyCapsule_GetDestructor(capsule)
    return destructor


_KINDS: dict[bytes, Any] = {
    b"dltensor": DLManagedTensor,
    b"dltensor_versioned": DLManagedTensorVersioned,
}


def managed_in(capsule: Any) -> Any:
    """Return the managed tensor in an unused capsule, which still owns it."""
    name = capsule_name(capsule)
    assert name is not None
    return _KINDS[name].from_address(capsule_pointer(capsule, name))


def exported(tensor: Any, **keywords: Any) -> Any:
    """Return a copy of an export's managed tensor; the export itself is deleted."""
    capsule = tensor.__dlpack__(**{"max_version": (1, 3)} | keywords)
    managed = managed_in(capsule)
    return type(managed).from_buffer_copy(managed)


def take(capsule: Any) -> Any:
    """Consume a capsule as C code does; the caller deletes the managed tensor."""
    managed = managed_in(capsule)
    set_capsule_name(capsule, b"used_" + (capsule_name(capsule) or b""))
    return managed


def delete(managed: Any) -> None:
    """Call the deleter of a managed tensor."""
    managed.deleter(addressof(managed))


def table_of(source: Any) -> DLPackExchangeAPI:
    """Return the exchange table of a type or of a `dlpack_exchange_api` capsule.

    ctypes raises the Python exceptions that its entries set.
    """
    capsule = getattr(source, "__dlpack_c_exchange_api__", source)
    return DLPackExchangeAPI.from_address(
        capsule_pointer(capsule, b"dlpack_exchange_api"),
    )


def from_table(table: DLPackExchangeAPI, tensor: Any) -> Any:
    """Export through a table; the caller deletes the managed tensor."""
    out = c_void_p()
    assert table.managed_tensor_from_py_object_no_sync(tensor, byref(out)) == 0
    return DLManagedTensorVersioned.from_address(out.value or 0)


def take_reference(out: c_void_p) -> Any:
    """Take the new reference that a table function wrote to `out`."""
    taken = py_object.from_address(addressof(out)).value
    out.value = None
    _Py_DecRef(taken)
    return taken


def give_reference(given: Any, out: int) -> None:
    """Write a new reference to the address `out`, as a table function does."""
    _Py_IncRef(given)
    c_void_p.from_address(out).value = id(given)


UNTOUCHED = 0x5AFE
"""Value of `out` before a call that must not write it."""


class Allocation:
    """One allocator call, with every field poisoned that it must not read."""

    def __init__(
        self,
        owner: Any,
        shape: Sequence[int] | None,
        dtype: tuple[int, int, int] = (2, 32, 1),
        device: tuple[int, int] = (1, 0),
        *,
        ndim: int | None = None,
        reports: bool = True,
    ) -> None:
        """Call `owner`'s allocator; without `reports`, SetError is NULL."""
        self.errors: list[tuple[int, bytes, bytes]] = []
        poison = POINTER(c_int64).from_buffer(c_void_p(8))
        prototype = DLTensor(
            data=8, strides=poison, byte_offset=2**64 - 1, device=device, dtype=dtype
        )
        dimensions = shape or ()
        prototype.ndim = len(dimensions) if ndim is None else ndim
        if shape is not None:
            prototype.shape = (c_int64 * len(dimensions))(*dimensions)
        set_error = SetError(lambda *error: self.errors.append(error))
        out = c_void_p(UNTOUCHED)
        self.code = table_of(owner).managed_tensor_allocator(
            byref(prototype),
            byref(out),
            0xC0,
            cast(set_error, c_void_p) if reports else None,
        )
        self.address = out.value or 0

    @property
    def managed(self) -> DLManagedTensorVersioned:
        """Return the allocated tensor."""
        return DLManagedTensorVersioned.from_address(self.address)

    def delete(self) -> None:
        """Free it."""
        delete(self.managed)
