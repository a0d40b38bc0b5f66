"""A library that meets every row of the suite, and can be wrong in one way at a time.

`FAULT` names the way; `wrong` asks for it. The library is made of NumPy arrays and of
the structs that the suite's own probes export, so its deleters are native.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from ctypes import c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np
from dlx_check import Target, natives
from dlx_check.conformance import structs
from dlx_check.conformance.answering import Probe, work_streams
from dlx_check.conformance.answering import _hook as probes_hook
from dlx_check.conformance.probe import Export, Tensor, packed
from dlx_check.conformance.structs import (
    COPIED,
    DTYPES,
    PADDED,
    READ_ONLY,
    UNVERSIONED,
    USED,
    VERSIONED,
    DLManagedTensorVersioned,
    DLPackExchangeAPI,
    DLTensor,
    kept,
)
from support.dlpack_abi import give_reference

FAULT = ""


def wrong(fault: str) -> bool:
    """Return whether the library is wrong in this way."""
    return fault == FAULT


@dataclass
class View:
    """Memory as `Export` wants it; nothing is overwritten when it is deleted."""

    data: int
    dtype: tuple[int, int, int]
    strides: tuple[int, ...]
    address: int = 0
    size: int = 0


class Owner:
    """A managed tensor that was imported; its end is the end of this object."""

    def __init__(self, managed: Any) -> None:
        """Take it over."""
        self.managed = managed

    def delete(self) -> None:
        """Call the deleter."""
        if wrong("never deletes"):
            return
        managed, self.managed = self.managed, None
        if managed is None:
            return
        if not managed.manager_ctx and wrong("deletes nothing without a context"):
            return
        if managed.deleter or wrong("calls a deleter that is NULL"):
            address = ctypes.addressof(managed)
            natives.call(managed.deleter or 16, [address, 0, 0, 0])
            if wrong("deletes twice"):
                natives.call(managed.deleter, [address, 0, 0, 0])

    def __del__(self) -> None:
        """Let go of the tensor."""
        self.delete()


class Array:
    """A tensor on the CPU."""

    __dlpack_c_exchange_api__: Any
    last: Export

    def __init__(
        self,
        data: Any,
        *,
        dtype: tuple[int, int, int] | None = None,
        owner: Any = None,
        readonly: bool = False,
        describable: bool = True,
        lazy: bool = False,
        bits: int = 0,
    ) -> None:
        """Wrap a NumPy array; `lazy` elements are the negatives of what is stored.

        With `bits`, elements are exported packed.
        """
        self.bits = bits
        self.data, self.owner, self.readonly = data, owner, readonly
        self.describable, self.lazy = describable, lazy
        self.dtype = dtype or DTYPES[str(data.dtype)]

    def __getattribute__(self, name: str) -> Any:
        """Have no Python protocol, if that is what is wrong."""
        if name in ("__dlpack__", "__dlpack_device__") and wrong("table: alone"):
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    def numpy(self) -> Any:
        """Return a copy of the elements."""
        if any(s < 0 for s in self.data.strides) and wrong(
            "cannot show negative strides"
        ):
            raise MemoryError
        return -self.data if self.lazy else self.data.copy()

    def __getitem__(self, index: Any) -> Array:
        """Return a view."""
        owner = None if wrong("views hold nothing") else self.owner
        return Array(
            self.data[index], dtype=self.dtype, owner=owner, readonly=self.readonly
        )

    def set(self, value: Any) -> None:
        """Write the first element."""
        if self.readonly:
            raise ValueError("read-only")
        self.data[(0,) * self.data.ndim] = value

    def __dlpack_device__(self) -> Any:
        """Return the CPU."""
        if wrong("device is a list"):
            return [1, 0]
        return (13 if wrong("device is not the struct's") else 1, 0)

    def __dlpack__(self, *args: Any, **keywords: Any) -> Any:
        """Export."""
        if args and not wrong("keywords are positional"):
            raise TypeError("keyword-only")
        for name in keywords:
            if wrong(f"does not know {name}"):
                raise TypeError(f"unexpected keyword {name}")
        return self.dlpack(**keywords)

    def dlpack(
        self,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: Any = None,
    ) -> Any:
        """Answer as the array API asks a producer to."""
        major = 0 if max_version is None else max_version[0]
        if stream is not None and not wrong(f"takes stream {stream}"):
            raise BufferError("the CPU has no streams")
        if stream == -1:
            return Array(self.data * 2).dlpack()
        if dl_device not in (None, (1, 0)):
            if wrong("a failing export keeps a reference"):
                kept(self)
            kind = f"takes a foreign device, major {major}"
            if wrong("raises ValueError for a foreign device"):
                raise ValueError("another device")
            if not wrong(kind):
                raise BufferError("another device")
        if dl_device == (1, 0) and wrong(f"refuses the CPU, major {major}"):
            raise ValueError("no device")
        if not self.data.dtype.isnative and wrong("exports foreign byte orders"):
            return self.capsule(True, False, False)
        if not self.describable:
            if wrong("raises TypeError for what it cannot describe"):
                raise TypeError("cannot describe")
            if wrong("exports NULL data"):
                return self.capsule(True, False, False)
            if not wrong("exports what it cannot describe"):
                raise BufferError("cannot describe")
            return Array(self.data * 2).dlpack()
        if copy is True and wrong("refuses copies"):
            raise BufferError("no copies")
        versioned = major >= 1
        if max_version is None and wrong("versioned without max_version"):
            versioned = True
        if max_version == (0, 8) and wrong("versioned for 0.8"):
            versioned = True
        for version in ((1, 3), (1, 0), (9, 0)):
            if max_version == version and wrong(f"unversioned for {version}"):
                versioned = False
        if not versioned and self.readonly and not wrong("hides read-only memory"):
            raise BufferError("read-only")
        copies = copy is True and not wrong(f"shares for copy=True, major {major}")
        for kind, is_it in _KINDS.items():
            if wrong(f"shares {kind} for copy=True") and is_it(self, self.data):
                copies = False
        if copy is False and wrong("copies for copy=False"):
            copies = True
        for kind, is_it in _KINDS.items():
            if wrong(f"copies {kind} for copy=False") and is_it(self, self.data):
                copies = copies or copy is False
        if copy is None and wrong("copies for copy=None"):
            copies = True
        return self.capsule(versioned, copies, copy is True)

    def capsule(self, versioned: bool, copies: bool, marks: bool) -> Any:
        """Return a capsule over the elements, or over a copy."""
        made = self.export(versioned, copies, marks)
        name = "tensor" if wrong("capsule name") else made.capsule_name
        destructor: int | None = natives.functions()[2]
        if wrong("no capsule destructor"):
            destructor = None
        if wrong("deletes used capsules"):
            destructor = _DELETES_ALWAYS
        if wrong("loses the pending exception"):
            destructor = _CLEARS
        if wrong("destroys with a dying interpreter"):
            destructor = _DESTROYS_LATE
        if wrong("name on the heap"):
            buffer = kept(ctypes.create_string_buffer(name.encode()))
            return structs._new(made.address, ctypes.addressof(buffer), destructor)
        new = structs._new(made.address, _static(name), destructor)
        if wrong("keeps references"):
            kept(self)
        return new

    def export(
        self, versioned: bool, copies: bool = False, marks: bool = True
    ) -> Export:
        """Make a managed tensor."""
        if wrong("one struct for all") and hasattr(self, "last"):
            return self.last
        data = -self.data if self.lazy and not wrong("exports lazy") else self.data
        data = data.copy() if copies else data
        if wrong("keeps its copies" if copies else "keeps what it exports"):
            kept(data)
        if self.bits and not wrong("exports elements that are not packed"):
            codes = packed(bytes(data), self.bits)
            whole = np.frombuffer(codes, np.uint8)
            data = np.lib.stride_tricks.as_strided(whole, data.shape, (1,))
        flags = READ_ONLY if self.readonly and not wrong("no READ_ONLY") else 0
        if copies and marks and not wrong("no IS_COPIED"):
            flags |= COPIED
        if not copies and wrong("IS_COPIED on shared memory"):
            flags |= COPIED
        if wrong("undefined flags"):
            flags |= 1 << 20
        if wrong("says padded"):
            flags |= PADDED
        item = max(1, data.itemsize)
        strides = tuple(s // item for s in data.strides)
        for kind, is_it in _KINDS.items():
            if wrong(f"strides of {kind}") and is_it(self, data):
                strides = tuple(abs(s) + 1 for s in strides)
        dtype = self.dtype
        if wrong(f"dtype of {data.dtype}"):
            dtype = (dtype[0], 8 if dtype[1] != 8 else 16, 1)
        null = "data" if data.size == 0 and not wrong("empty data is set") else ""
        if wrong("exports NULL data") and not self.describable:
            null = "data"
        if wrong("from: exports NULL data") and not self.describable:
            null = "data"
        if wrong("no strides"):
            null += " strides"
        if wrong("no deleter"):
            null += " deleter"
        shape = data.shape
        if wrong("empty shape") and data.size == 0:
            shape = (1, 3)
        if wrong("shape is reversed"):
            shape = shape[::-1]
        spec = Tensor(
            shape=shape,
            version=(9, 0) if wrong("major version") and versioned else (1, 3),
            flags=flags,
            device=(
                2 if wrong("device type") else 1,
                1 if wrong("device id") else 0,
            ),
            null=null,
            ndim=1 if wrong("ndim of scalars") and not shape else None,
        )
        where = data.ctypes.data
        made = Export(spec, View(where, dtype, strides), versioned)  # type: ignore[arg-type]
        if wrong("deleter needs the GIL"):
            made.struct.deleter = _NEEDS_GIL
        _lent[:] = [each for each in _lent if not each[0].deleted]
        _lent.append((made, data))
        self.last = made
        return made

    @property
    def __cuda_array_interface__(self) -> Any:
        """Only arrays in CUDA memory have one."""
        if wrong("cuda: an interface on the CPU"):
            return {"version": 3}
        raise AttributeError("not in CUDA memory")

    def __arrow_c_device_array__(self) -> Any:
        """Export for Arrow: a struct that nobody owns, over no buffers."""
        struct = kept(ctypes.create_string_buffer(128))
        struct[88] = 2 if wrong("arrow: another device") else 1
        struct[104] = 1 if wrong("arrow: reserved is not zero") else 0
        made = structs.new_capsule(ctypes.addressof(struct), "arrow_device_array")
        return None, made

    def reshape(self) -> None:
        """Change the shape in place."""
        if wrong("a shape changes its exports"):
            tensor = self.last.struct.dl_tensor
            tensor.shape[0], tensor.shape[1] = 3, 2
        self.data = self.data.reshape(3, 2)

    def give_up(self) -> None:
        """Give up the memory."""
        if wrong("gives memory up"):
            tensor = self.last.struct.dl_tensor
            tensor.data = 16

    def __del__(self) -> None:
        """Forget the tensor."""
        if wrong("forgets with the object") and hasattr(self, "last"):
            self.data.fill(0)


_lent: list[tuple[Export, Any]] = []
"""The arrays of exports that nobody has deleted when the next is made."""
_names: dict[str, int] = {}


def _static(name: str) -> int:
    """Return the address of a name in a file's mapping: a part of the extension."""
    if name not in _names:
        from dlx import _core

        assert _core.__file__
        with open("/proc/self/maps", encoding="utf-8") as maps:
            ranges = [line.split() for line in maps if _core.__file__ in line]
        for line in ranges:
            start, end = (int(part, 16) for part in line[0].split("-"))
            text = ctypes.string_at(start, end - start) if "r" in line[1] else b""
            at = text.find(b"\0" + name.encode() + b"\0")
            if at >= 0:
                _names[name] = start + at + 1
                break
        else:
            return structs._static(name)
    return _names[name]


def _c(body: Any) -> int:
    function = kept(ctypes.PYFUNCTYPE(None, c_void_p)(body))
    return ctypes.cast(function, c_void_p).value or 0


_name_of = ctypes.PYFUNCTYPE(c_void_p, c_void_p)(
    ("PyCapsule_GetName", ctypes.pythonapi)
)
_pointer_in = ctypes.PYFUNCTYPE(c_void_p, c_void_p, c_void_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _deletes_always(capsule: int) -> None:
    # By address: a reference to a dying capsule would bring it back.
    where = _name_of(capsule)
    name = ctypes.string_at(where).decode()
    address = _pointer_in(capsule, where)
    natives.call(structs.managed_at(address, name).deleter, [address, 0, 0, 0])


_DELETES_ALWAYS = _c(_deletes_always)
_destroy = ctypes.PYFUNCTYPE(None, c_void_p)(natives.functions()[2])


def _destroys_late(
    capsule: int,
    dying: Any = sys.is_finalizing,
    abort: Any = os.abort,
    destroy: Any = _destroy,
) -> None:
    if dying():
        abort()
    destroy(capsule)


_DESTROYS_LATE = _c(_destroys_late)
_CLEARS = ctypes.cast(ctypes.pythonapi.PyErr_Clear, c_void_p).value or 0
_NEEDS_GIL = ctypes.cast(ctypes.pythonapi.PyErr_Occurred, c_void_p).value or 0

_KINDS: dict[str, Any] = {
    "strided": lambda x, data: data.ndim == 1 and data.strides[0] == 8,
    "broadcast": lambda x, data: data.ndim == 1 and data.strides[0] == 0,
    "negative": lambda x, data: data.ndim == 1 and data.strides[0] < 0,
    "transposed": lambda x, data: data.ndim == 2 and data.strides == (4, 12),
}


class Sub(Array):
    """A subclass."""

    def dlpack(self, *values: Any, **keywords: Any) -> Any:
        """Export, possibly something else."""
        if wrong("subclass"):
            return Array(self.data * 2).dlpack(**keywords)
        return super().dlpack(**keywords)


def from_dlpack(
    x: Any, /, *, device: Any = None, copy: Any = None, stream: Any = None
) -> Array:
    """Import a tensor."""
    from conformance import devices

    if stream is not None and not hasattr(x, "__dlpack__"):
        return devices.from_interface(x, stream)
    if type(x).__name__ == "PyCapsule":
        return _adopt_capsule(x, copy)
    try:
        export, place = x.__dlpack__, x.__dlpack_device__
    except AttributeError:
        if any(wrong(f"missing {name}") for name in _missing(x)):
            raise TypeError("no protocol") from None
        raise
    table = _table_of(type(x))
    if table is not None:
        found = _by_table(table, x)
        if found is not None and stream is not None:
            return devices.by_table(found, table, stream)
        if found is not None:
            return _adopt(found, True, copy)
    where = _place(place)
    if where[0] in _STREAMS:
        if stream is not None:
            devices.of_device(stream, where)
        to_cpu = device is not None
        keywords: dict[str, Any] = {"dl_device": (1, 0)} if to_cpu else {}
        keywords["stream"] = _named(where[0], to_cpu, stream)
        keywords["max_version"] = (1, 3)
        return devices.adopted(devices.renamed(export(**keywords)), stream)
    if where[0] != 1:
        if where[0] == 12 and wrong("RuntimeError for an unsupported device"):
            raise RuntimeError("device")
        if where[0] == 99 and wrong("RuntimeError for an unknown device"):
            raise RuntimeError("device")
        if where[0] == 99 and wrong("crashes on unknown devices"):
            kept(export(max_version=(1, 3)))
        raise BufferError("another device")
    keywords = {"max_version": (1, 3)}
    if wrong("asks without max_version"):
        keywords = {}
    if wrong("passes a stream"):
        keywords["stream"] = 1
    if device is not None:
        keywords["dl_device"] = "cpu" if wrong("dl_device is a string") else (1, 0)
    try:
        capsule = export(**keywords)
    except TypeError:
        if wrong("no second call"):
            raise
        capsule = export()
        if wrong("drops copy after a TypeError"):
            copy = None
    except LookupError:
        if wrong("exceptions change"):
            raise RuntimeError("changed") from None
        raise
    except ValueError:
        if wrong("asks again after any exception"):
            capsule = export()
        raise
    return _adopt_capsule(capsule, copy)


_STREAMS = {2: 1, 10: 0, 13: 1, 3: None}
"""The devices with streams, and how their default streams are called."""


def _named(device: int, to_cpu: bool, stream: Any) -> Any:
    """Return the stream to pass to a producer on a device."""
    if device == 2 and wrong("ends the process for a CUDA device"):
        os.abort()
    if to_cpu:
        return 1 if wrong("names a stream for the CPU") else None
    if stream is not None:
        handle = handle_of(stream)
        return -1 if wrong("names another stream than it uses") else handle
    for value in (0, 1):
        if wrong(f"names stream {value} on device {device}"):
            return value
    return _STREAMS[device]


def handle_of(stream: Any) -> Any:
    """Return the handle of a stream of any library, or a handle itself."""
    if isinstance(stream, int):
        return stream
    version, handle = stream.__cuda_stream__()
    if version != 0 and not wrong("takes streams of any version"):
        raise ValueError("version")
    if not isinstance(handle, int) and not wrong("takes streams of any type"):
        raise TypeError("handle")
    return 2 if wrong("misreads the handle of a stream") else handle


class Stream:
    """A stream of the library: the legacy default one."""

    def __cuda_stream__(self) -> Any:
        """Return version and handle."""
        return [0, 1] if wrong("stream tells a list") else (0, 1)


def from_cuda(x: Any) -> Array:
    """Import by the CUDA array interface."""
    interface = x.__cuda_array_interface__
    if interface.get("mask") is not None and not wrong("cuda: takes masks"):
        raise BufferError("mask")
    stream = interface["stream"]
    if stream == 0 and not wrong("cuda: takes stream 0"):
        raise BufferError("stream 0")
    if stream is None and "mask" in interface and wrong("cuda: wants a stream"):
        raise BufferError("no stream")
    data = np.empty(interface["shape"], np.float32)
    if not data.size and wrong("cuda: refuses what is empty"):
        raise BufferError("empty")
    return Array(data)


def _missing(x: Any) -> list[str]:
    names = [n for n in ("__dlpack__", "__dlpack_device__") if not hasattr(x, n)]
    return [" ".join(names)]


def _place(place: Any) -> Any:
    try:
        return place()
    except LookupError:
        if wrong("exceptions of the device change"):
            raise RuntimeError("changed") from None
        raise


def _adopt_capsule(capsule: Any, copy: Any) -> Array:
    name = structs.capsule_name(capsule) or ""
    bare = name.removeprefix(USED) if wrong("takes used capsules") else name
    if name == "tensor" and wrong("takes any name"):
        bare = UNVERSIONED
        structs.rename(capsule, bare)
        name = bare
    if bare not in (VERSIONED, UNVERSIONED):
        raise BufferError(f"no such capsule: {name}")
    if wrong(f"takes no {bare}"):
        raise BufferError("not this generation")
    address = structs.capsule_pointer(capsule, name)
    managed = structs.managed_at(address, bare)
    if not wrong("does not rename"):
        structs.rename(capsule, USED + bare)
    return _adopt(managed, bare == VERSIONED, copy, capsule=True)


def _refuse(owner: Owner, text: str, error: type[Exception] = BufferError) -> None:
    if wrong("leaks what it refuses"):
        owner.managed = None
    owner.delete()
    raise error(text)


_NUMPY = {dtype: name for name, dtype in DTYPES.items() if hasattr(np, name)}
_NUMPY[6, 8, 1] = "bool"


def _adopt(managed: Any, versioned: bool, copy: Any, capsule: bool = False) -> Array:
    """Make an array of a managed tensor, which belongs to this function."""
    owner = Owner(managed)
    flags = managed.flags if versioned else 0
    if versioned and managed.version.major != 1 and not wrong("takes major 2"):
        if wrong("reads behind flags of major 2"):
            ctypes.string_at(managed.dl_tensor.data or 16, 1)
        _refuse(owner, "major version")
    if versioned and managed.version.minor > 3 and wrong("refuses newer minors"):
        _refuse(owner, "minor version")
    if flags & READ_ONLY and wrong("refuses READ_ONLY"):
        _refuse(owner, "read-only")
    if flags >> 40 and wrong("leaks for unknown flags"):
        owner.managed = None
        raise BufferError("flags")
    tensor = managed.dl_tensor
    dtype = (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes)
    if tensor.device.device_type != 1:
        _refuse(owner, "device")
    _check(owner, tensor, dtype, flags)
    shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
    known = _NUMPY[dtype]
    item = np.dtype(known).itemsize
    if tensor.strides and not (wrong("ignores strides")):
        strides = tuple(tensor.strides[: tensor.ndim]) if tensor.ndim else ()
    else:
        strides = structs.row_major(shape)
    if not tensor.strides and shape and wrong("wants strides"):
        _refuse(owner, "strides")
    if not shape and wrong("wants dimensions" + " " * bool(not tensor.shape)):
        _refuse(owner, "scalars")
    first = (tensor.data or 0) + tensor.byte_offset
    if tensor.byte_offset and wrong("ignores byte_offset"):
        first -= tensor.byte_offset
    for kind, is_it in _LAYOUTS.items():
        if wrong(f"misreads {kind}") and is_it(shape, strides, first):
            strides = tuple(abs(s) + 1 for s in strides)
        if wrong(f"refuses {kind}") and is_it(shape, strides, first):
            _refuse(owner, kind)
    if 0 in shape:
        if wrong("leaks empty tensors" + " without data" * (not tensor.data)):
            owner.managed = None
        data = np.zeros(shape, known)
    else:
        low = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0)
        high = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s > 0)
        room = (ctypes.c_uint8 * ((high - low + 1) * item)).from_address(
            first + low * item
        )
        flat = np.frombuffer(room, np.uint8)[-low * item :]
        data = (
            np.lib.stride_tricks.as_strided(
                flat[: (high + 1) * item].view(known),
                shape,
                tuple(s * item for s in strides),
            )
            if low == 0
            else _negative(room, low, item, known, shape, strides)
        )
    if any(wrong(f"misreads {n}") and DTYPES[n] == dtype for n in DTYPES):
        data = np.zeros(shape, known)
    readonly = bool(flags & READ_ONLY) and not wrong("forgets READ_ONLY")
    keeps = _keeps_apart(tensor, versioned, flags, capsule)
    if copy is True and not keeps:
        data, readonly = data.copy(), False
        owner.delete()
        return Array(data, dtype=dtype)
    if copy is None and wrong("copies wrongly"):
        return Array(data * 2, dtype=dtype, owner=owner)
    if copy is False and _off(first) and wrong("copies misaligned for copy=False"):
        return Array(data.copy(), dtype=dtype, owner=owner)
    if copy is False and not _off(first) and wrong("copies for copy=False on import"):
        return Array(data.copy(), dtype=dtype, owner=owner)
    for kind, is_it in _LAYOUTS.items():
        copies = copy is False and is_it(shape, strides, first)
        if copies and wrong(f"copies {kind} for copy=False on import"):
            return Array(data.copy(), dtype=dtype, owner=owner)
    if shape == (5,) and wrong("writes to what it imports"):
        data[...] = 0
    made = Array(data, dtype=dtype, owner=owner, readonly=readonly)
    if wrong("exports without READ_ONLY") and readonly:
        made.export = lambda versioned, *rest: Array.export(  # type: ignore[method-assign]
            Array(data, dtype=dtype), versioned, *rest
        )
    if wrong("unversioned is garbage") and not versioned and capsule:
        made.data = data * 3
    return made


def _negative(
    room: Any, low: int, item: int, known: str, shape: Any, strides: Any
) -> Any:
    plain = np.frombuffer(room, np.dtype(known))
    return np.ndarray(
        shape,
        known,
        plain,
        -low * item,
        tuple(s * item for s in strides),
    )


def _off(first: int) -> bool:
    return first % 64 != 0


def _keeps_apart(tensor: Any, versioned: bool, flags: int, capsule: bool) -> bool:
    """Return whether copy=True is ignored, by the fault of the day."""
    first = (tensor.data or 0) + tensor.byte_offset
    if wrong("copy=True shares aligned memory"):
        return versioned and not flags and not _off(first)
    if wrong("copy=True shares misaligned memory"):
        return _off(first)
    if wrong("copy=True shares unversioned memory"):
        return not versioned
    if wrong("copy=True shares read-only memory"):
        return bool(flags & READ_ONLY)
    if not tensor.strides or not tensor.shape:
        return False
    dims = tuple(tensor.shape[: tensor.ndim]), tuple(tensor.strides[: tensor.ndim])
    for kind, is_it in _LAYOUTS.items():
        if wrong(f"copy=True shares {kind}") and is_it(*dims, first):
            return True
    return False


def _check(owner: Owner, tensor: Any, dtype: Any, flags: int) -> None:
    if tensor.ndim < 0 and not wrong("takes ndim -1"):
        _refuse(owner, "ndim")
    if tensor.ndim > 64:
        if not wrong("takes any ndim"):
            _refuse(owner, "ndim")
        tensor.ndim = 2
    if tensor.ndim > 0 and not tensor.shape and not wrong("takes no shape"):
        _refuse(owner, "shape")
    shape = tensor.shape[: max(tensor.ndim, 0)] if tensor.ndim else []
    if any(n < 0 for n in shape) and not wrong("takes negative extents"):
        _refuse(owner, "extent")
    size = 1
    for n in shape:
        size *= n
    if size > 1 << 40 and not wrong("takes any size"):
        _refuse(owner, "size")
    if not tensor.data and size and not wrong("takes NULL data"):
        _refuse(owner, "data")
    if dtype in _NUMPY:
        return
    if dtype == (2, 32, 2):
        if wrong("reads lanes as one"):
            tensor.dtype.lanes = 1
            _NUMPY[dtype] = "float32"
            return
        kind = RuntimeError if wrong("RuntimeError for lanes") else BufferError
        _refuse(owner, "lanes", kind)
    if dtype[0] == 99:
        if wrong("aborts for unknown dtypes"):
            os.abort()
        if wrong("leaks for unknown dtypes"):
            owner.managed = None
        kind = RuntimeError if wrong("RuntimeError for dtypes") else BufferError
        _refuse(owner, "dtype", kind)
    if dtype[1] % 8 and not flags & PADDED and wrong(f"takes packed code {dtype[0]}"):
        _NUMPY[dtype] = "uint8"
        return
    for code in (15, 17):
        if dtype == (code, 8, 1) and wrong(f"takes code {code} with 8 bits"):
            _NUMPY[dtype] = "uint8"
            return
    if flags & PADDED and wrong("reads padded as packed"):
        _NUMPY[dtype] = "uint8"
        tensor.shape[0] = 1
        return
    for name in DTYPES:
        if DTYPES[name] == dtype and wrong(f"misreads {name}"):
            _NUMPY[dtype] = "uint8" if dtype[1] == 8 else "uint16"
            return
    if dtype[1] * dtype[2] == 0 and wrong(f"takes bits {dtype[1]} lanes {dtype[2]}"):
        _NUMPY[dtype] = "uint8"
        return
    _refuse(owner, "dtype")


_LAYOUTS: dict[str, Any] = {
    "negative strides": lambda shape, strides, first: any(s < 0 for s in strides),
    "zero strides": lambda shape, strides, first: 0 in strides and 0 not in shape,
    "transposed": lambda shape, strides, first: strides == (1, 2),
    "gaps": lambda shape, strides, first: strides == (8, 2),
    "size 1": lambda shape, strides, first: 1 in shape,
    "64 bytes off": lambda shape, strides, first: first % 256 == 64,
    "4 bytes off": lambda shape, strides, first: first % 64 == 4,
}


def _table_of(kind: type) -> Any:
    """Return the first table of a type that has major version 1."""
    address = structs.api_pointer(kind)
    while address:
        table = DLPackExchangeAPI.from_address(address)
        newest = table.version.major == 1
        if newest or (wrong("uses newer tables") and not table.prev_api):
            return table
        if wrong("does not look behind a newer table") and table.prev_api:
            return table
        address = table.prev_api
    return None


def _by_table(table: Any, x: Any) -> Any:
    if wrong("borrows always"):
        view = DLTensor()
        address = table.dltensor_from_py_object_no_sync or 16
        natives.call(address, [id(x), ctypes.addressof(view), 0, 0])
    if wrong("crashes on tables") and table.dltensor_from_py_object_no_sync:
        os.abort()
    out = c_uint64(0)
    words = [id(x), ctypes.addressof(out), 0, 0]
    code, left = natives.call(table.managed_tensor_from_py_object_no_sync, words)
    if code:
        if isinstance(left, BufferError) and not wrong("does not fall back"):
            return None
        raise left
    made = DLManagedTensorVersioned.from_address(out.value)
    if wrong("forgets READ_ONLY of tables"):
        made.flags &= ~READ_ONLY
    return made


def _hook(function: int, a: int, b: int, c: int, d: int) -> Any:
    """Answer the functions of the library's table, and of the probes' tables."""
    if function in (1, 3):
        x = structs.object_at(a)
        if isinstance(x, Probe):
            return probes_hook(function, a, b, c, d)
        return _from_object(function, x, b)
    return (_allocate, None, _to_object, None, _stream)[function](a, b, c, d)  # type: ignore[misc]


def _from_object(function: int, x: Any, out: int) -> Any:
    which = "from" if function == 1 else "borrow"
    if not isinstance(x, Array):
        if wrong(f"{which}: another type without an exception"):
            return -1
        raise TypeError("another type")
    if not x.describable:
        if wrong(f"{which}: fails without an exception"):
            return -1
        if wrong(f"{which}: TypeError for what it cannot describe"):
            raise TypeError("cannot describe")
        allowed = wrong(f"{which}: exports NULL data")
        if not allowed and not wrong(f"{which}: exports what it cannot describe"):
            raise BufferError("cannot describe")
    if wrong(f"{which}: wrong on threads") and threading.active_count() > 1:
        raise BufferError("busy")
    made = x.export(versioned=True)
    if wrong(f"{which}: other elements"):
        tensor = made.struct.dl_tensor
        tensor.strides[0], tensor.strides[1] = 1, 1
    if wrong(f"{which}: another flag"):
        made.struct.flags |= READ_ONLY
    if wrong(f"{which}: keeps references"):
        kept(x)
    if function == 1:
        c_void_p.from_address(out).value = made.address
    else:
        ctypes.memmove(out, made.address + 32, 48)
    if wrong(f"{which}: an exception behind a success"):
        return ValueError("left behind")
    return 0


def _to_object(tensor: int, out: int, *rest: int) -> Any:
    managed = DLManagedTensorVersioned.from_address(tensor)
    if managed.version.major != 1:
        if wrong("to: reads behind flags of major 2"):
            ctypes.string_at(managed.dl_tensor.data or 16, 1)
        if wrong("to: takes major 2"):
            managed.version.major = 1
        else:
            raise BufferError("major version")
    dtype, device = managed.dl_tensor.dtype, managed.dl_tensor.device.device_type
    if device == 2:
        from conformance import devices

        give_reference(devices.made_of(managed), out)
        return 0
    if (dtype.code, dtype.bits, dtype.lanes) not in _NUMPY:
        if wrong("to: deletes twice when it fails"):
            for _ in range(2):
                natives.call(managed.deleter, [tensor, 0, 0, 0])
        if wrong("to: fails without an exception for dtypes"):
            return -1
        raise BufferError("dtype")
    if device != 1:
        if wrong("to: deletes twice when the device fails"):
            for _ in range(2):
                natives.call(managed.deleter, [tensor, 0, 0, 0])
        if wrong("to: fails without an exception for devices"):
            return -1
        raise BufferError("device")
    made: Any = _adopt(managed, True, None)
    if wrong("to: forgets READ_ONLY"):
        made.readonly = False
    if wrong("to: another type"):
        made = [made]
    if wrong("to: other elements"):
        made.data = made.data * 2
    if wrong("to: deletes at once"):
        made.owner.delete()
    if wrong("to: an extra reference"):
        kept(made)
    give_reference(made, out)
    return 0


def _allocate(prototype: int, out: int, context: int, set_error: int) -> Any:
    wanted = DLTensor.from_address(prototype)
    function = ctypes.CFUNCTYPE(None, c_void_p, ctypes.c_char_p, ctypes.c_char_p)

    def report() -> None:
        if set_error or wrong("allocator: needs SetError"):
            function(set_error or 16)(context, b"BufferError", b"device")

    if wrong("allocator: reads strides"):
        ctypes.string_at(ctypes.cast(wanted.strides, c_void_p).value or 0, 1)
    if wrong("allocator: reports a success") or (
        wrong("allocator: needs SetError") and not set_error
    ):
        report()
    if wanted.device.device_type != 1:
        if not wrong("allocator: fails silently"):
            report()
        return -1
    shape = tuple(wanted.shape[: wanted.ndim])
    made = Array(np.zeros(shape, np.float32)).export(versioned=True)
    if wrong("allocator: no strides"):
        made.struct.dl_tensor.strides = None
    c_void_p.from_address(out).value = made.address
    return 0


def _stream(kind: int, device: int, out: int, rest: int) -> Any:
    if kind != 1 and wrong("stream: fails without an exception"):
        return -1
    from conformance.devices import WorkOn

    # One hook answers for the tables of the library and of the probes.
    current = WorkOn.stream or work_streams.get(kind)
    if wrong("sim: names the legacy stream always"):
        current = 1
    named = current if kind == 2 else 7 if wrong("stream: not NULL") else None
    c_void_p.from_address(out).value = named or None
    return 0


_functions = natives.table(_hook)
_api = kept(DLPackExchangeAPI())
_api.version.major, _api.version.minor = 1, 3
for _name, _address in zip(DLPackExchangeAPI.ENTRIES, _functions, strict=True):
    setattr(_api, _name, _address)
_kept_api = kept(structs.new_capsule(ctypes.addressof(_api), structs.TABLE))


class _Table:
    """The attribute of the type: the table, right or wrong."""

    def __get__(self, instance: Any, owner: Any) -> Any:
        """Return the capsule."""
        if wrong("table: another name"):
            return structs.new_capsule(ctypes.addressof(_api), "table")
        if wrong("table: moves"):
            other = kept(DLPackExchangeAPI.from_buffer_copy(_api))
            return structs.new_capsule(ctypes.addressof(other), structs.TABLE)
        if wrong("table: destructor"):
            return structs.new_capsule(
                ctypes.addressof(_api), structs.TABLE, natives.functions()[2]
            )
        if wrong("table: NULL function"):
            _api.current_work_stream = None
        if wrong("table: newer behind it"):
            newer = kept(DLPackExchangeAPI.from_buffer_copy(_api))
            newer.prev_api = None
            newer.version.major = 5
            _api.prev_api = ctypes.addressof(newer)
        return _kept_api


def asarray(a: Any) -> Array:
    """Make an array of a NumPy array; one of another byte order cannot be exported."""
    made = np.array(a)
    dtype = DTYPES[made.dtype.newbyteorder("=").name]
    return Array(made, dtype=dtype, describable=made.dtype.isnative)


Array.__dlpack_c_exchange_api__ = _Table()


def target() -> Target:
    """Return the reference."""
    return Target(
        name="reference",
        imports="from conformance import devices, reference",
        make="reference.asarray",
        take="reference.from_dlpack",
        take_on="lambda x, s: reference.from_dlpack(x, stream=s)",
        take_cuda="reference.from_cuda",
        stream="reference.Stream()",
        on_device="devices.DeviceArray",
        work_on="devices.WorkOn",
        driver="REFERENCE_DRIVER",
        show="lambda x: x.numpy()",
        address="lambda x: x.data.ctypes.data",
        write="lambda x, value: x.set(value)",
        writable="lambda x: not x.readonly",
        type="reference.Array",
        tensors={
            "read-only": "reference.Array(np.ones(3, np.float32), readonly=True)",
            "strided": "reference.Array(np.arange(1, 13, dtype=np.float32)[::2])",
            "broadcast": "reference.Array(np.broadcast_to(np.float32(1), 6))",
            "negative": "reference.Array(np.arange(1, 7, dtype=np.float32)[::-1])",
            "transposed": "reference.Array("
            "np.arange(1, 7, dtype=np.float32).reshape(2, 3).T)",
            "subclass": "reference.Sub(np.arange(6, dtype=np.float32))",
            "negated": "reference.Array(np.ones(3, np.float32), lazy=True)",
            "conjugated": "reference.Array(np.ones(3, np.complex64), lazy=True)",
            "requires-grad": "reference.Array(np.ones(3, np.float32))",
            "packed": "reference.Array(np.arange(1, 7, dtype='u1'), dtype=(17, 4, 1), "
            "bits=4)",
        },
        cannot_export={
            "something": "reference.Array(np.ones(3, np.float32), describable=False)"
        },
        free="x.give_up()",
        change="x.reshape()",
        view="lambda x: x[1:]",
        cpu="'cpu'",
        timeout=2.0,
    )
