"""A simulated CUDA driver, which knows the order of all work (`tests/driver_sim`).

It is a library with the functions of a driver and a few of its own: it keeps a journal
of calls, and finds accesses that no stream or event orders. A target is led to it by
the environment variables of `Target.driver`.
"""

from __future__ import annotations

import ctypes
import json
import os
from ctypes import byref, c_size_t, c_uint64, c_void_p
from functools import cache
from typing import Any

from dlx_check.conformance.experiments import Lab, Untestable

__all__ = ["VARIABLE", "Machine", "driver"]

VARIABLE = "DLX_CHECK_DRIVER"
"""The environment variable that has the path of a simulated driver."""

NON_BLOCKING = 1
_ROCM = {
    "cuStreamCreate": "hipStreamCreateWithFlags",
    "cuEventCreate": "hipEventCreateWithFlags",
    "cuMemAlloc_v2": "hipMalloc",
    "sim_launch": "hip_sim_launch",
}
"""What functions are called on ROCm; the others begin with hip."""


class DriverRefused(Exception):
    """The simulated driver refused a call of the suite: a fault of the suite."""


class Machine:
    """The simulated machine, with two devices; one for each process."""

    def __init__(self, path: str, caller: str = "suite") -> None:
        """Load the driver; `caller` is whose calls these are in the journal."""
        self._caller = caller.encode()
        self._library = ctypes.CDLL(path)
        self._library.sim_gil(1)
        self.rocm = False

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function."""
        if self.rocm:
            name = _ROCM.get(name, name.replace("cu", "hip", 1))
        function = getattr(self._library, name)
        self._library.sim_calls_by(self._caller)
        words = [c_size_t(a) if isinstance(a, int) else a for a in arguments]
        code = function(*words)
        self._library.sim_calls_by(b"")
        if code:
            raise DriverRefused(f"{name}: {code}")

    def get(self, name: str, *arguments: Any) -> int:
        """Call a function that writes its result to its first argument."""
        place = c_uint64()
        self.call(name, byref(place), *arguments)
        return place.value

    def start(self, rocm: bool = False) -> None:
        """Forget what was; device 0 becomes current."""
        self.rocm = False
        self._library.sim_clear()
        self.call("cuInit", 0)
        self.use(0)
        self.rocm = rocm

    def use(self, device: int) -> None:
        """Make a device current."""
        self.call("cuCtxSetCurrent", self.get("cuDevicePrimaryCtxRetain", device))

    def stream(self, device: int = 0) -> int:
        """Return the handle of a new stream, which waits for no other."""
        return self._made(device, "cuStreamCreate", NON_BLOCKING)

    def memory(self, device: int = 0) -> int:
        """Return the address of 64 bytes of a device."""
        return self._made(device, "cuMemAlloc_v2", 64)

    def _made(self, device: int, name: str, argument: int) -> int:
        if self.rocm:
            return self.get(name, argument)
        self.use(device)
        made = self.get(name, argument)
        self.use(0)
        return made

    def launch(self, stream: int, address: int, *, write: bool = False) -> None:
        """Queue a kernel that reads or writes six floats."""
        self.call("sim_launch", stream, int(write), address, 24)

    def host_reads(self, address: int) -> None:
        """Have the host read them now."""
        self.call("sim_host_access", 0, address, 24)

    def wait(self, stream: int, other: int) -> None:
        """Let a stream wait for what another has queued."""
        event = self.get("cuEventCreate", 2)
        self.call("cuEventRecord", event, other)
        self.call("cuStreamWaitEvent", stream, event, 0)

    def _report(self, name: str) -> Any:
        function = getattr(self._library, name)
        function.restype = c_void_p
        text = function()
        try:
            return json.loads(ctypes.string_at(text))
        finally:
            self._library.sim_free_text(c_void_p(text))

    def forget(self) -> None:
        """Forget the calls until now."""
        self._library.sim_clear_journal()

    @property
    def calls(self) -> list[str]:
        """Return the names of the target's calls, without "cu" and "hip"."""
        found = (e["name"] for e in self._report("sim_journal") if not e["caller"])
        return [name.removeprefix("cu").removeprefix("hip") for name in found]

    @property
    def waits(self) -> list[str]:
        """Return the target's calls by which a stream or the host waits."""
        words = ("Wait", "Synchronize")
        return sorted({n for n in self.calls if any(word in n for word in words)})

    @property
    def races(self) -> int:
        """Return how many accesses no order holds apart."""
        return len(self._report("sim_races"))

    @property
    def violations(self) -> list[str]:
        """Return what no driver has to survive."""
        found = self._report("sim_violations")
        return sorted({e["what"].rsplit(" at ", 1)[0] for e in found})


@cache
def _machine(path: str) -> Machine:
    return Machine(path)


def driver(lab: Lab, rocm: bool = False) -> Machine:
    """Return the machine, on which nothing has happened; `Untestable` without one."""
    if not lab.target.driver:
        raise Untestable("no-driver-hook: the target takes no other driver")
    path = os.environ.get(VARIABLE)
    if not path:
        raise Untestable("no-driver: --driver names a simulated one")
    machine = _machine(path)
    machine.start(rocm)
    return machine
