"""Fake frameworks on the simulated driver, each with its own current stream.

Three kinds of array: with an exchange table, with `__dlpack__` alone, and with
`__cuda_array_interface__` alone, which is CUDA only. All are float32. A framework lives
as long as the process, like its class; its allocations do not outlive a test.
"""

from __future__ import annotations

import ctypes
import math
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import addressof, c_float, c_int64, c_void_p
from typing import Any, ClassVar, Self

from support.cuda_allocator import CachingAllocator, Storage
from support.dlpack_abi import Deleter, DLTensor, for_ever, new_capsule, take
from support.fake_producers import Export, Producer
from support.fake_table import new_table
from support.simulated_driver import Simulation, simulation
from support.simulated_objects import LEGACY, Stream

CUDA, ROCM = 2, 10


class Framework:
    """State shared by the arrays of one class."""

    def __init__(
        self, sim: Simulation, name: str, base: type[CudaArray], hip: bool
    ) -> None:
        """Make the framework with its class of arrays."""
        self.sim = sim
        self.name = name
        self.hip = hip
        self.device_type = ROCM if hip else CUDA
        self.default = 0 if hip else LEGACY
        self.allocator = CachingAllocator(sim)
        self._local = threading.local()
        self.Array: type[CudaArray] = type(name, (base,), {"framework": self})
        self.Array.finish()

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        """Work on a stream, in this thread, on the stream's device."""
        current = self._current()
        before = current.get(stream.device)
        current[stream.device] = stream
        try:
            yield
        finally:
            if before is None:
                del current[stream.device]
            else:
                current[stream.device] = before

    def work_on(self, stream: Stream | None, device: int = 0) -> None:
        """Work on a stream in this thread from now on; None: on the default stream."""
        if stream is None:
            self._current().pop(device, None)
        else:
            self._current()[device] = stream

    def _current(self) -> dict[int, Stream]:
        current: dict[int, Stream] = self._local.__dict__.setdefault("streams", {})
        return current

    def current_stream(self, device: int = 0) -> Stream:
        """Return this thread's stream: at first the legacy default stream."""
        default = self.sim.default_stream(self.default, device, hip=self.hip)
        return self._current().get(device, default)

    @contextmanager
    def at_work(self, device: int) -> Iterator[Stream]:
        """Make the device current, and mark the calls as the framework's."""
        with self.sim.calls_by(self.name), self.sim.on_device(device, hip=self.hip):
            yield self.current_stream(device)

    def full(
        self,
        shape: Sequence[int],
        value: float = 0.0,
        *,
        device: int = 0,
        home: Stream | None = None,
        **fields: Any,
    ) -> Any:
        """Make an array, which a kernel on the current stream fills.

        Its block is one of `home`, which the current stream waits for.
        """
        nbytes = 4 * math.prod(shape)
        with self.at_work(device) as stream:
            storage = self.allocator.allocate(nbytes, home or stream)
            if home is not None:
                stream.wait_for(home)
        fields |= {"data": storage.memory.address, "device": (self.device_type, device)}
        array = self.Array(memory=bytearray(1), shape=tuple(shape), **fields)
        array.own(storage)
        array.fill(value)
        return array

    def from_dlpack(self, source: Any, device: int = 0) -> Imported:
        """Import for the current stream, as consumers do (R83)."""
        handle = self.current_stream(device).handle
        capsule = source.__dlpack__(stream=handle, max_version=(1, 3))
        return Imported(self, take(capsule))


class CudaArray(Producer):
    """An array of a framework."""

    framework: ClassVar[Framework]
    storage: Storage | None = None
    """None if something else owns the memory."""

    @classmethod
    def finish(cls) -> None:
        """Complete a class, once it has its framework."""

    def own(self, storage: Storage) -> None:
        """Hold a storage until the array is freed or collected."""
        self.storage = storage
        self._freed = weakref.finalize(self, _release, self.framework, storage)
        self._freed.atexit = False

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape or ())

    def launch(self, write: bool) -> None:
        """Queue a kernel on all elements, on the framework's current stream."""
        assert self.data is not None
        with self.framework.at_work(self.device[1]) as stream:
            stream.launch(write, self.data, 4 * self.size)

    @property
    def _elements(self) -> ctypes.Array[c_float]:
        return (c_float * self.size).from_address(self.data or 0)

    def fill(self, value: float) -> None:
        """Set all elements."""
        self.launch(True)
        self._elements[:] = [value] * self.size

    def __iadd__(self, value: float) -> Self:
        """Add to all elements."""
        self.launch(True)
        self._elements[:] = [element + value for element in self._elements]
        return self

    def tolist(self) -> list[float]:
        """Wait for the current stream, and return the elements."""
        self.launch(False)
        with self.framework.at_work(self.device[1]) as stream:
            stream.synchronize()
        return list(self._elements)

    def record_stream(self, stream: Stream) -> None:
        """Keep the block from being reused before this stream is done with it."""
        assert self.storage is not None
        self.storage.recorded.add(stream)


def _release(framework: Framework, storage: Storage) -> None:
    with framework.sim.calls_by(framework.name):
        storage.release()


class DLPackArray(CudaArray):
    """Exports by `__dlpack__`, which orders like CuPy's and keeps its keywords."""

    def free(self) -> None:
        """Release the memory now, unless an export holds it (H5)."""
        self._freed()

    def export(self, *, versioned: bool = True) -> int:
        """Address of a new managed tensor, which holds the storage."""
        self.deleter = _delete
        address = super().export(versioned=versioned)
        if self.storage is not None:
            self.storage.retain()
        _exports[address] = self.exports[-1]
        return address

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export; later work on `stream` runs after the array's."""
        if (keywords.get("dl_device") or self.device) != self.device:
            raise BufferError(f"the array stays on {self.device}")
        if keywords.get("copy"):
            raise BufferError("the array cannot be copied")
        capsule = super().__dlpack__(**keywords)
        self._order(keywords.get("stream"))
        return capsule

    def _order(self, stream: Any) -> None:
        hip, device = self.framework.hip, self.device[1]
        if stream is None:
            stream = self.framework.default
        if type(stream) is not int:
            raise TypeError(f"stream is {stream!r}, not an int")
        if stream < -1 or stream in ((1, 2) if hip else (0,)):
            raise ValueError(f"stream is {stream}")
        with self.framework.at_work(device) as current:
            if stream not in (-1, current.handle):
                consumer = Stream(self.framework.sim, stream, device, hip)
                consumer.wait_for(current)


_exports: dict[int, Export] = for_ever({})


def _deleted(address: int) -> None:
    export = _exports.pop(address)
    c_int64.from_address(export.managed.manager_ctx).value += 1
    array = export.producer
    assert isinstance(array, CudaArray)
    if array.storage is not None:
        _release(array.framework, array.storage)


_delete = for_ever(Deleter(_deleted))


class TableArray(DLPackArray):
    """Exports by an exchange table, too, which does not synchronize (R126)."""

    __dlpack_c_exchange_api__: ClassVar[Any]

    @classmethod
    def finish(cls) -> None:
        """Make the table."""
        framework = cls.framework

        def current_work_stream(device_type: int, device: int, out: int) -> int:
            handle = framework.current_stream(device).handle
            # torch says NULL for the legacy default stream (R141).
            named = device_type == framework.device_type and handle != LEGACY
            c_void_p.from_address(out).value = handle if named else None
            return 0

        def allocate(prototype: int, out: int, context: int, set_error: int) -> int:
            wanted = DLTensor.from_address(prototype)
            shape = wanted.shape[: wanted.ndim] if wanted.ndim else []
            array = framework.full(shape, device=wanted.device.device_id)
            c_void_p.from_address(out).value = array.export()
            array.free()
            return 0

        table = new_table(
            owner=cls,
            managed_tensor_allocator=allocate,
            current_work_stream=current_work_stream,
        )
        cls.__dlpack_c_exchange_api__ = new_capsule(
            addressof(table), b"dlpack_exchange_api"
        )


class InterfaceArray(CudaArray):
    """Exports by `__cuda_array_interface__` alone: the object holds the memory."""

    __dlpack__ = property()
    __dlpack_device__ = property()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3, with the stream to wait for (R149)."""
        current = self.framework.current_stream(self.device[1])
        return {
            "version": 3,
            "shape": tuple(self.shape or ()),
            "typestr": "<f4",
            "strides": None,
            "data": (self.data if self.size else 0, bool(self.flags & 1)),
            "stream": current.handle,
        }


class Imported:
    """A framework's import of another library's tensor."""

    def __init__(self, framework: Framework, managed: Any) -> None:
        """Take the managed tensor."""
        self.framework = framework
        self._managed = managed
        tensor = managed.dl_tensor
        self.device = tensor.device.device_id
        self.data = (tensor.data or 0) + tensor.byte_offset
        self.nbytes = 4 * math.prod(tensor.shape[: tensor.ndim])

    def launch(self, write: bool) -> None:
        """Queue a kernel on all elements, on the framework's current stream."""
        with self.framework.at_work(self.device) as stream:
            stream.launch(write, self.data, self.nbytes)

    def drop(self) -> None:
        """Delete the tensor, whatever work is queued."""
        managed, self._managed = self._managed, None
        managed.deleter(addressof(managed))


_frameworks: dict[tuple[type, str, bool], Framework] = for_ever({})


def framework(
    base: type[CudaArray], name: str = "framework", *, hip: bool = False
) -> Framework:
    """Return the framework of this name and kind of array, on CUDA or HIP."""
    key = (base, name, hip)
    if key not in _frameworks:
        _frameworks[key] = Framework(simulation(), name, base, hip)
    return _frameworks[key]


KINDS = [TableArray, DLPackArray, InterfaceArray]
"""The three ways to export."""
