"""The simulated driver (`tests/driver_sim`) in Python.

`simulation()` builds and loads it once per process. dlx loads the same library through
`DLX_LIBCUDA` or `DLX_LIBAMDHIP`, so both see one machine. Calls from here are marked in
the journal; dlx's calls are not.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_int32, c_size_t, c_uint64, c_void_p, create_string_buffer
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

from support.simulated_objects import (
    DISABLE_TIMING,
    LEGACY,
    NON_BLOCKING,
    DriverError,
    Event,
    Memory,
    Stream,
)
from support.simulated_reports import Access, Call, Race, Violation

RELEASE = "dlx-release"
"""Whom the calls of the thread are for that releases memory."""


class Made(Protocol):
    """What a test has made, which is gone when the next one starts."""

    def discard(self) -> None:
        """Destroy or free it, unless that has happened."""


M = TypeVar("M", bound=Made)


@cache
def library_path() -> Path:
    """Build the library and return its path."""
    root = Path(__file__).parents[2]
    command = ["cargo", "build", "--quiet", "--locked", "-p", "driver_sim"]
    command.append("--message-format=json-render-diagnostics")
    built = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, check=True)
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("target", {}).get("name") == "driver_sim":
            return Path(message["filenames"][0])
    raise FileNotFoundError("cargo has built no driver_sim")


def library_in(folder: Path, *names: str) -> list[Path]:
    """Copy the library under each name: whoever loads two has two machines.

    ROCm's runtime is found as `libamdhip64.so`, with or without a version, and in the
    folder of a wheel; processes with two of them exist.
    """
    return [Path(shutil.copy(library_path(), folder / name)) for name in names]


class Simulation:
    """The machine. There is one per process, which `simulation` returns."""

    def __init__(self, path: Path) -> None:
        """Load the library."""
        self.path = path
        self._library = ctypes.CDLL(str(path))
        has_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
        self._library.sim_gil(int(has_gil))
        self._local = threading.local()
        self._contexts: dict[int, int] = {}
        self._made: list[Made] = []
        self.rounds = 0
        """How many tests have started."""

    def answer(self, name: str, *arguments: Any) -> int:
        """Call a driver function and return its error code.

        Every int is passed as 64 bits, which also work for smaller parameters.
        """
        function = getattr(self._library, name)
        passed = [c_size_t(a) if isinstance(a, int) else a for a in arguments]
        caller = getattr(self._local, "caller", "test")
        self._library.sim_calls_by(caller.encode())
        code: int = function(*passed)
        self._library.sim_calls_by(b"")
        return code

    def call(self, name: str, *arguments: Any) -> None:
        """Call a driver function; raise on error."""
        if code := self.answer(name, *arguments):
            raise DriverError(name, code)

    def get(self, name: str, *arguments: Any) -> int:
        """Call a function that writes its result to its first argument."""
        place = c_uint64()
        self.call(name, byref(place), *arguments)
        return place.value

    @contextmanager
    def calls_by(self, caller: str) -> Iterator[None]:
        """Mark this thread's calls from here with `caller` instead of "test"."""
        before = getattr(self._local, "caller", "test")
        self._local.caller = caller
        try:
            yield
        finally:
            self._local.caller = before

    # Machine.

    def start(self) -> None:
        """Begin a test: clear the last one's state and make device 0 current.

        Whatever dlx holds stays alive, and its work is done.
        """
        self.rounds += 1
        self._library.sim_clear()
        self.call("cuInit", 0)
        # Streams first: nothing can be freed while one captures.
        for made in sorted(self._made, key=lambda made: not isinstance(made, Stream)):
            made.discard()
        self._made.clear()
        self.use_device(0)
        self._library.sim_clear()

    def reset(self, devices: int = 2) -> None:
        """Reset the machine: no earlier object is alive, not even dlx's."""
        self.rounds += 1
        self._library.sim_reset(devices)
        self._contexts.clear()
        self._made.clear()

    def context(self, device: int = 0) -> int:
        """Return the primary context of a device, retained for good."""
        if device not in self._contexts:
            self._contexts[device] = self.get("cuDevicePrimaryCtxRetain", device)
        return self._contexts[device]

    def use_device(self, device: int) -> None:
        """Make the primary context current in this thread, as CUDA's runtime does."""
        self.call("cuCtxSetCurrent", self.context(device))

    def reset_device(self, device: int) -> None:
        """End the primary context with all that is in it, as `cudaDeviceReset` does."""
        self.call("cuDevicePrimaryCtxReset_v2", device)
        del self._contexts[device]
        self.use_no_device()

    def use_no_device(self) -> None:
        """Leave this thread without a current context."""
        self.call("cuCtxSetCurrent", 0)

    @contextmanager
    def on_device(self, device: int, *, hip: bool = False) -> Iterator[None]:
        """Make a device current within the block."""
        if hip:
            before = self.get("hipGetDevice")
            self.call("hipSetDevice", device)
            try:
                yield
            finally:
                self.call("hipSetDevice", before)
            return
        self.call("cuCtxPushCurrent_v2", self.context(device))
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", None)

    def enable_peers(self) -> None:
        """Let kernels of both devices reach each other's `cuMemAlloc` memory."""
        for device in (0, 1):
            with self.on_device(device):
                self.call("cuCtxEnablePeerAccess", self.context(1 - device), 0)

    def open_pool(self, device: int, to: int) -> None:
        """Let a device reach memory of another's pool."""
        access = (c_int32 * 3)(1, to, 3)
        pool = self.get("cuDeviceGetDefaultMemPool", device)
        self.call("cuMemPoolSetAccess", pool, byref(access), 1)

    def stream(
        self, device: int = 0, *, blocking: bool = False, hip: bool = False
    ) -> Stream:
        """Make a stream, by default not synchronized with the legacy stream."""
        flags = 0 if blocking else NON_BLOCKING
        create = "hipStreamCreateWithFlags" if hip else "cuStreamCreate"
        with self.on_device(device, hip=hip):
            handle = self.get(create, flags)
        return self.keep(Stream(self, handle, device, hip))

    def default_stream(
        self, handle: int = LEGACY, device: int = 0, *, hip: bool = False
    ) -> Stream:
        """Return a default stream: its device must be current where it is used."""
        return Stream(self, handle, device, hip)

    def event(self, device: int = 0, *, hip: bool = False) -> Event:
        """Make an event."""
        create = "hipEventCreateWithFlags" if hip else "cuEventCreate"
        with self.on_device(device, hip=hip):
            handle = self.get(create, DISABLE_TIMING)
        return self.keep(Event(self, handle, device, hip))

    def allocate(self, nbytes: int, device: int = 0, *, kind: str = "device") -> Memory:
        """Allocate memory of a device, or `"hip"`, `"pinned"` or `"managed"` memory."""
        create, *flags = {
            "device": ("cuMemAlloc_v2",),
            "hip": ("hipMalloc",),
            "managed": ("cuMemAllocManaged", 1),
            "pinned": ("cuMemHostAlloc", 0),
        }[kind]
        with self.on_device(device, hip=kind == "hip"):
            address = self.get(str(create), nbytes, *flags)
        free = {"pinned": "cuMemFreeHost", "hip": "hipFree"}.get(kind, "cuMemFree_v2")
        return self.keep(Memory(self, address, nbytes, free))

    def keep(self, made: M) -> M:
        """Destroy an object when the next test starts."""
        self._made.append(made)
        return made

    # The host, and time.

    def host_read(self, address: int, nbytes: int) -> None:
        """Record a host read for race detection."""
        self.call("sim_host_access", 0, address, nbytes)

    def host_write(self, address: int, nbytes: int) -> None:
        """Record a host write for race detection."""
        self.call("sim_host_access", 1, address, nbytes)

    def fetch(self, address: int, nbytes: int) -> None:
        """Copy memory of device 0 to the host, on a stream that waits for nothing.

        It comes after the work that the host has waited for, and after no other.
        """
        place, stream = create_string_buffer(nbytes), self.stream()
        with self.calls_by("test"):
            self.call("cuMemcpyDtoHAsync_v2", place, address, nbytes, stream.handle)
            stream.synchronize()

    def advance(self) -> None:
        """Finish all work, without the host noticing."""
        self.call("sim_advance_all")

    def lock_functions(self) -> None:
        """Let the calls of other threads wait while a host function runs."""
        self._library.sim_lock_functions(1)

    def limit(self, seconds: float) -> None:
        """End the process when a call has waited so long for a host function."""
        self._library.sim_limit(c_uint64(int(seconds * 1000)))

    def capture_mode(self, mode: int) -> int:
        """Replace the thread's capture mode, and return the previous one."""
        place = c_int32(mode)
        self.call("cuThreadExchangeStreamCaptureMode", byref(place))
        return place.value

    # Errors on demand.

    def fail_next(
        self, name: str, code: int, count: int = 1, after: int = 0, *, by: str = ""
    ) -> None:
        """Make the next `count` calls of a function fail without effect.

        The first `after` calls succeed. They are those of dlx's thread that releases
        memory if `by` is `RELEASE`, else those of all others.
        """
        release = int(by == RELEASE)
        self._library.sim_fail_next(name.encode(), code, count, after, release)

    def set_error(self, code: int) -> None:
        """Make every call fail; 0 ends that and any pending `fail_next`."""
        self._library.sim_set_error(code)

    def hide(self, name: str) -> None:
        """Hide a function from `cuGetProcAddress` until a reset."""
        self._library.sim_hide(name.encode())

    # Reports.

    def _report(self, name: str) -> Any:
        function = getattr(self._library, name)
        function.restype = c_void_p
        text = function()
        try:
            return json.loads(ctypes.string_at(text))
        finally:
            self._library.sim_free_text(c_void_p(text))

    @property
    def journal(self) -> list[Call]:
        """Return all calls."""
        return [Call(**entry) for entry in self._report("sim_journal")]

    def calls(self, caller: str = "") -> list[Call]:
        """Return the calls of one caller, by default dlx."""
        return [call for call in self.journal if call.caller == caller]

    def called(self, caller: str = "") -> list[str]:
        """Return the names of one caller's calls, by default dlx's."""
        return [call.name for call in self.calls(caller)]

    @property
    def call_count(self) -> int:
        """Return the number of calls in the journal."""
        return int(self._library.sim_call_count())

    def clear_journal(self) -> None:
        """Forget the calls until now."""
        self._library.sim_clear_journal()

    @property
    def races(self) -> list[Race]:
        """Return the races found so far."""
        races = self._report("sim_races")
        return [Race(Access(**r["first"]), Access(**r["second"])) for r in races]

    @property
    def violations(self) -> list[Violation]:
        """Return the violations found so far."""
        return [Violation(**entry) for entry in self._report("sim_violations")]

    @property
    def retained(self) -> dict[int, int]:
        """Return how often each device's primary context is retained."""
        retained: dict[str, int] = self._report("sim_retained")
        return {int(device): count for device, count in retained.items()}

    @property
    def counts(self) -> dict[str, int]:
        """Return how many objects of each kind are alive."""
        counts: dict[str, int] = self._report("sim_counts")
        return counts


@cache
def simulation() -> Simulation:
    """Return the simulated machine of this process."""
    return Simulation(library_path())
