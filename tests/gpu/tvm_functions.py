"""Functions of tvm-ffi, which launch on the stream of its environment.

They are written in Python. What is compiled asks for the stream by the same function,
which answers as the table of the first tensor on a device did.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from ctypes import CDLL, c_int, c_void_p
from importlib import import_module
from typing import Any

from gpu.clients import Client
from gpu.machine import LANDINGS, Machine, Stream

CUDA, LEGACY = 2, 1
DELAY_NS = 50_000
"""What comes before each write, so that a read without order is too early."""


class Reading:
    """A function that reads its arguments."""

    def __init__(self, gpu: Machine, stream: Stream | None = None) -> None:
        """Make it; a stream that is given here is used in place of the environment's.

        `ImportError` without tvm-ffi.
        """
        tvm_ffi = import_module("tvm_ffi")
        library = CDLL(tvm_ffi.libinfo.find_libtvm_ffi())
        self._environment = library.TVMFFIEnvGetStream
        self._environment.restype = c_void_p
        self._environment.argtypes = [c_int, c_int]
        self._gpu, self._stream = gpu, stream
        self._reads: list[Any] = []
        self._function = tvm_ffi.convert(self._run)
        self.ran = 0
        """The stream of the last call."""

    def _run(self, *tensors: Any) -> None:
        if self._stream is None:
            self.ran = self._environment(CUDA, 0) or LEGACY
        else:
            self.ran = self._stream.handle
        self._reads = [self._gpu.read(x.data_ptr(), self.ran) for x in tensors]

    def __call__(self, *tensors: Any) -> list[Any]:
        """Return what the kernels read, once the stream is done."""
        self._function(*tensors)
        return self._reads


def strikes(
    gpu: Machine,
    call: Callable[[], list[Any]],
    arrays: list[tuple[Client, Stream, Any]],
) -> int:
    """Count the values that `call` did not read, in 1024 rounds without a gate.

    Each array is written before the call, late, and after it; `call` returns what it
    reads of each.
    """
    wrong, never_opens = 0, gpu.memory[3]
    gpu.fill(never_opens, 0.0, gpu.p)
    gpu.synchronize()
    with ExitStack() as streams:
        for client, stream, _ in arrays:
            streams.enter_context(client.stream(stream))
        for batch in range(LANDINGS * len(arrays)):
            expected = []
            for turn in range(LANDINGS // len(arrays)):
                value = float(batch * LANDINGS + turn)
                for client, stream, array in arrays:
                    gpu.launch("gate", stream.handle, never_opens, DELAY_NS, threads=1)
                    client.write(array, value)
                expected += [(value, read) for read in call()]
                for client, _, array in arrays:
                    client.write(array, -1.0)
            gpu.synchronize()
            wrong += sum(set(read) != {value} for value, read in expected)
    return wrong
