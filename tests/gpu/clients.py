"""The libraries that make and take tensors, each as it is used by its own users."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from struct import pack
from typing import Any, ClassVar

import pytest

from gpu.machine import COUNT, Stream


class Client(ABC):
    """A library; `ImportError` if it is not installed."""

    needs: ClassVar[str]

    def __init__(self) -> None:
        """Import the library."""
        self.library = import_module(self.needs)

    @abstractmethod
    def stream(self, stream: Stream) -> AbstractContextManager[Any]:
        """Work on a stream."""

    @abstractmethod
    def full(self, value: float) -> Any:
        """Make an array of `COUNT` elements, on the current stream."""

    @abstractmethod
    def write(self, array: Any, value: float) -> None:
        """Write to all elements, on the current stream."""

    @abstractmethod
    def take(self, tensor: Any) -> Any:
        """Import a tensor of dlx, for the current stream."""


class Torch(Client):
    """It has a table."""

    needs = "torch"

    def stream(self, stream: Stream) -> AbstractContextManager[Any]:
        """Work on a stream."""
        external = self.library.cuda.ExternalStream(stream.handle, device=0)
        current: AbstractContextManager[Any] = self.library.cuda.stream(external)
        return current

    def full(self, value: float) -> Any:
        """Make an array."""
        return self.library.full((COUNT,), value, device="cuda:0")

    def write(self, array: Any, value: float) -> None:
        """Write."""
        array.fill_(value)

    def take(self, tensor: Any) -> Any:
        """Import."""
        return self.library.from_dlpack(tensor)


class CuPy(Client):
    """It has `__dlpack__` and `__cuda_array_interface__`, and no table (14.2)."""

    needs = "cupy"

    def __init__(self) -> None:
        """Import the library, and have it load its kernels: later that would wait."""
        super().__init__()
        self.write(self.full(0.0), 0.0)

    def stream(self, stream: Stream) -> AbstractContextManager[Any]:
        """Work on a stream."""
        current: AbstractContextManager[Any]
        current = self.library.cuda.Stream.from_external(stream)
        return current

    def full(self, value: float) -> Any:
        """Make an array."""
        return self.library.full((COUNT,), value, dtype="float32")

    def write(self, array: Any, value: float) -> None:
        """Write."""
        array.fill(value)

    def take(self, tensor: Any) -> Any:
        """Import."""
        return self.library.from_dlpack(tensor)


class Numba(Client):
    """Its arrays have `__cuda_array_interface__` alone, with a stream of their own."""

    needs = "numba.cuda"

    def __init__(self) -> None:
        """Import the library, and declare a kernel."""
        super().__init__()
        cuda = self.library

        def fill(array: Any, value: Any) -> None:
            """Write a value to each element."""
            index = cuda.grid(1)
            if index < array.size:
                array[index] = value

        self._fill = cuda.jit(fill)
        self._stream: Any = cuda.default_stream()

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        """Work on a stream, which its users name at each call."""
        before, self._stream = (
            self._stream,
            self.library.external_stream(stream.handle),
        )
        try:
            yield
        finally:
            self._stream = before

    def full(self, value: float) -> Any:
        """Make an array."""
        array = self.library.device_array(COUNT, "float32", stream=self._stream)
        self.write(array, value)
        return array

    def write(self, array: Any, value: float) -> None:
        """Write."""
        self._fill[COUNT // 256, 256, self._stream](array, value)

    def take(self, tensor: Any) -> Any:
        """Import; it waits for the stream on the host."""
        return self.library.as_cuda_array(tensor)


class CudaCore(Client):
    """cuda.core, whose buffers have `__dlpack__` that orders nothing (R79)."""

    needs = "cuda.core"

    def __init__(self) -> None:
        """Import the library."""
        super().__init__()
        self.device = self.library.Device(0)
        self.device.set_current()
        self._stream: Any = None
        self._views = import_module("cuda.core.utils").StridedMemoryView

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        """Work on a stream, which its users name at each call."""
        before, self._stream = self._stream, self.device.create_stream(stream)
        try:
            yield
        finally:
            self._stream = before

    def full(self, value: float) -> Any:
        """Make a buffer, which other libraries import as bytes."""
        buffer = self.device.allocate(4 * COUNT, stream=self._stream)
        self.write(buffer, value)
        return buffer

    def write(self, array: Any, value: float) -> None:
        """Write."""
        array.fill(pack("f", value), stream=self._stream)

    def take(self, tensor: Any) -> Any:
        """Import."""
        handle = self._stream.__cuda_stream__()[1]
        return self._views.from_dlpack(tensor, stream_ptr=handle)


CLIENTS: dict[str, type[Client]] = {
    "torch": Torch,
    "cupy": CuPy,
    "numba": Numba,
    "cuda.core": CudaCore,
}


def client_of(name: str) -> Client:
    """Return a library, or skip the test if it is not installed."""
    pytest.importorskip(CLIENTS[name].needs, exc_type=ImportError)
    return CLIENTS[name]()
