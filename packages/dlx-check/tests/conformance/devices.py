"""The part of the reference that works on devices, those of the simulated driver."""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_uint64
from functools import cache
from typing import Any

from dlx_check import natives
from dlx_check.conformance import structs
from dlx_check.conformance.driver import VARIABLE, Machine
from dlx_check.conformance.probe import Export, Tensor
from dlx_check.conformance.structs import COPIED, kept

from conformance.reference import Array, Owner, View, handle_of, wrong

ROCM = 10
DEFAULT = {2: 1, ROCM: 0}
FORBIDDEN = {2: (0,), ROCM: (1, 2)}


@cache
def _machine(path: str) -> Machine:
    return Machine(path, caller="")


def machine(device: int = 2) -> Machine:
    """Return the driver that the suite has simulated."""
    found = _machine(os.environ[VARIABLE])
    found.rocm = device == ROCM
    return found


class DeviceArray(Array):
    """Six float32 of a device, which are ready on a stream."""

    def __init__(
        self, address: int, stream: int, device: tuple[int, int], owner: Any = None
    ) -> None:
        """Wrap the memory; `owner` lives as long."""
        self.address, self.stream, self.device = address, stream, device
        self.owner = owner
        self.describable, self.readonly = True, False
        self.used: int | None = None

    def __dlpack_device__(self) -> Any:
        """Return the device."""
        return self.device

    def dlpack(
        self,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: Any = None,
    ) -> Any:
        """Export; the work on `stream` comes after this array's."""
        kind = self.device[0]
        at = machine(kind)
        if dl_device == (1, 0):
            if stream is not None and not wrong("sim: takes a stream for the CPU"):
                raise BufferError("the CPU has no streams")
            return self._host(at)
        if stream is None:
            if wrong(f"sim: None orders nothing on {kind}"):
                return self.exported()
            return self._export(at, DEFAULT[kind], copy)
        allowed = wrong(f"sim: takes {stream} on {kind}")
        if (stream < -1 or stream in FORBIDDEN[kind]) and not allowed:
            raise BufferError("no such stream")
        name = stream if stream < 3 else "a handle"
        if allowed or wrong(f"sim: {name} orders nothing on {kind}"):
            return self.exported()
        if stream == -1:
            if wrong("sim: -1 waits"):
                at.wait(1, self.stream)
            return self.exported()
        return self._export(at, stream, copy)

    def _export(self, at: Machine, stream: int, copy: Any) -> Any:
        if stream != self.stream or wrong("sim: the same stream waits"):
            at.wait(stream, self.stream)
        if wrong("sim: uses the stream after the export"):
            self.used = stream
        if not copy:
            return self.exported()
        made = at.memory()
        on = self.stream if wrong("sim: copies on another stream") else stream
        at.launch(on, self.address)
        at.launch(on, made, write=True)
        return self.exported(made, COPIED)

    def _host(self, at: Machine) -> Any:
        room = kept(ctypes.create_string_buffer(24))
        made = ctypes.addressof(room)
        at.call("cuMemcpyDtoHAsync_v2", made, self.address, 24, self.stream)
        if not wrong("sim: the host does not wait"):
            at.call("cuStreamSynchronize", self.stream)
        return self.exported(made, COPIED, (1, 0))

    def exported(
        self, address: int = 0, flags: int = 0, device: tuple[int, int] | None = None
    ) -> Any:
        """Return a capsule."""
        spec = Tensor((6,), device=device or self.device, flags=flags)
        view: Any = View(address or self.address, (2, 32, 1), (1,))
        return Export(spec, view, True).capsule()

    def export(self, versioned: bool, *rest: Any) -> Export:
        """Make a managed tensor, for the table."""
        if wrong("sim: the table waits"):
            machine().wait(1, self.stream)
        if wrong("sim: the table has the host wait"):
            machine().call("cuStreamSynchronize", self.stream)
        view: Any = View(self.address, (2, 32, 1), (1,))
        return Export(Tensor((6,), device=self.device), view, versioned)

    @property
    def __cuda_array_interface__(self) -> Any:
        """Name the stream to wait for."""
        stream = 1 if wrong("cuda: names another stream") else self.stream
        return {
            "version": 3,
            "shape": (6,),
            "typestr": "<f4",
            "data": (self.address, False),
            "stream": stream,
        }

    def __del__(self) -> None:
        """Let go of the owner, or use the stream of an export too late."""
        if self.used is not None:
            at = machine(self.device[0])
            at.call("cuEventRecord", at.get("cuEventCreate", 2), self.used)


class Lender:
    """Who has lent memory by the CUDA array interface: its stream waits at the end."""

    def __init__(self, source: Any, own: int, stream: Any) -> None:
        """Hold the object, and the one that has the stream."""
        self.source, self.own, self.handle = source, own, handle_of(stream)
        self.stream = None if wrong("cuda: holds no stream") else stream

    def __del__(self) -> None:
        """Have the owner's stream wait."""
        if not wrong("cuda: nobody waits back"):
            machine().wait(self.own, self.handle)


def from_interface(x: Any, stream: Any) -> Array:
    """Import by the CUDA array interface for a stream."""
    interface = x.__cuda_array_interface__
    own, handle = interface["stream"], handle_of(stream)
    if not wrong("cuda: waits for no stream"):
        machine().wait(handle, own)
    lender = Lender(x, own, stream)
    return DeviceArray(interface["data"][0], handle, (2, 0), lender)


def adopted(managed: Any, stream: Any) -> Array:
    """Take a tensor of a device over, which is ready on a stream."""
    tensor = managed.dl_tensor
    place = (tensor.device.device_type, tensor.device.device_id)
    return DeviceArray(tensor.data, handle_of(stream), place, Owner(managed))


def made_of(managed: Any) -> Array:
    """Take a tensor of a device over from the table."""
    if wrong("sim: what the table makes waits"):
        machine().wait(1, 1)
    return adopted(managed, 1)


def by_table(managed: Any, table: Any, stream: Any) -> Array:
    """Take over what a table exported: `stream` waits for the one that it names."""
    named = c_uint64()
    arguments = [2, 0, ctypes.addressof(named), 0]
    natives.call(table.current_work_stream, arguments)
    if not wrong("sim: does not ask a table for its stream"):
        machine().wait(handle_of(stream), named.value or 1)
    return adopted(managed, stream)


def of_device(stream: Any, device: tuple[int, int]) -> None:
    """Refuse a stream of another device."""
    if device[1] and not wrong("sim: takes a stream of another device"):
        context, at = c_uint64(), machine()
        at.call("cuStreamGetCtx", handle_of(stream), byref(context))
        if context.value != at.get("cuDevicePrimaryCtxRetain", device[1]):
            raise BufferError("a stream of another device")


class WorkOn:
    """Makes a stream the current one."""

    stream = 0

    def __init__(self, stream: int) -> None:
        """Make it so on entry."""
        self.made = stream

    def __enter__(self) -> None:
        """Do it."""
        WorkOn.stream = self.made

    def __exit__(self, *exception: object) -> None:
        """Undo it."""
        WorkOn.stream = 0


def renamed(capsule: Any) -> Any:
    """Consume a capsule; return its struct."""
    name = structs.capsule_name(capsule) or ""
    managed = structs.managed_at(structs.capsule_pointer(capsule, name), name)
    structs.rename(capsule, structs.USED + name)
    return managed
