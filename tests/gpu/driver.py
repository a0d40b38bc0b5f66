"""The CUDA driver, called without a framework.

`DLX_LIBCUDA` may name another library, such as the simulated driver, which then answers
the claims of `claims.py`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from ctypes import CFUNCTYPE, byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from typing import Any

HostFunction = CFUNCTYPE(None, c_void_p)
"""`CUhostFn`: the driver calls it in a thread of its own."""
NOT_PERMITTED = 800
NOT_READY = 600
NON_BLOCKING = 1
DISABLE_TIMING = 2
USED_MEM_CURRENT = 7


class DriverError(Exception):
    """A call that the driver refused."""

    def __init__(self, call: str, code: int, name: str) -> None:
        """Keep the call, the code and its name."""
        super().__init__(f"{call} returned {code} ({name})")
        self.call = call
        self.code = code


class Driver:
    """The driver's library, initialized; `OSError` or `DriverError` without a GPU."""

    def __init__(self) -> None:
        """Load and initialize it."""
        usual = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
        self.file = os.environ.get("DLX_LIBCUDA") or usual
        self._library = ctypes.CDLL(self.file)
        self.call("cuInit", 0)

    def has(self, name: str) -> bool:
        """Whether the library has a function of this name."""
        return hasattr(self._library, name)

    def answer(self, name: str, *arguments: Any) -> int:
        """Call a function, and return its code.

        Every int is passed as 64 bits, which also work for smaller parameters.
        """
        passed = [c_size_t(a) if isinstance(a, int) else a for a in arguments]
        code: int = getattr(self._library, name)(*passed)
        return code

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; raise on error."""
        if code := self.answer(name, *arguments):
            raise DriverError(name, code, self.error_name(code))

    def get(self, name: str, *arguments: Any) -> int:
        """Call a function that writes its result to its first argument."""
        place = c_uint64()
        self.call(name, byref(place), *arguments)
        return place.value

    def error_name(self, code: int) -> str:
        """Return the name of an error, without the prefix."""
        name = c_char_p()
        self.answer("cuGetErrorName", code, byref(name))
        return (name.value or b"unknown").decode().removeprefix("CUDA_ERROR_")

    def version(self) -> str:
        """Return the version of CUDA that the driver supports."""
        version = c_int()
        self.call("cuDriverGetVersion", byref(version))
        return f"{version.value // 1000}.{version.value % 1000 // 10}"

    def device_name(self) -> str:
        """Return the name of the first GPU."""
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, len(name), 0)
        return name.value.decode()

    def use_primary_context(self) -> int:
        """Make the first GPU's primary context current, as CUDA's runtime does."""
        context = self.get("cuDevicePrimaryCtxRetain", 0)
        self.call("cuCtxSetCurrent", context)
        return context

    def new_stream(self, flags: int = NON_BLOCKING) -> int:
        """Create a stream, by default not synchronized with the legacy stream."""
        return self.get("cuStreamCreate", flags)

    def new_event(self) -> int:
        """Create an event like those of dlx."""
        return self.get("cuEventCreate", DISABLE_TIMING)

    def order(self, then: int, before: int) -> None:
        """Make stream `then` wait for the work queued on stream `before`."""
        event = self.new_event()
        self.call("cuEventRecord", event, before)
        self.call("cuStreamWaitEvent", then, event, 0)
        self.call("cuEventDestroy_v2", event)

    def new_green_stream(self, green: int) -> int:
        """Create a stream of a green context, which need not be current."""
        return self.get("cuGreenCtxStreamCreate", green, NON_BLOCKING, 0)

    def launch_host_function(self, stream: int, call: Callable[[], object]) -> Any:
        """Queue a Python function; keep the result until it has run."""
        function = HostFunction(lambda _: call() and None)
        self.call("cuLaunchHostFunc", stream, function, c_void_p())
        return function

    def used_by_the_pool(self) -> int:
        """Return how many bytes of the first GPU's default pool are allocated."""
        pool, used = self.get("cuDeviceGetDefaultMemPool", 0), c_uint64()
        self.call("cuMemPoolGetAttribute", pool, USED_MEM_CURRENT, byref(used))
        return used.value
