"""Ways through dlx on the simulated driver that call a table or an interface."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

from support.simulated_driver import library_path, simulation

os.environ["DLX_LIBCUDA"] = str(library_path())

import dlx
import numpy as np

from support.cuda_producers import (
    DLPackArray,
    Framework,
    InterfaceArray,
    TableArray,
    framework,
)
from support.device_arrays import on_device
from support.dlpack_abi import table_of
from support.dlx_producers import Stored
from support.failing_calls import TABLE, counts, failing_table, point
from support.failing_consumers import exported, lent, named, taken
from support.simulated_kernels import read, settle


class FailingArray(TableArray):
    """An array of a library whose table goes wrong."""

    @classmethod
    def finish(cls) -> None:
        """Make the table."""
        super().finish()
        cls.__dlpack_c_exchange_api__ = failing_table(table_of(cls))

    def export(self, *, versioned: bool = True) -> int:
        """Return the address of a new managed tensor."""
        address = super().export(versioned=versioned)
        counts.append(self.exports.pop()._deleted)
        return address


class FailingInterface(InterfaceArray):
    """An array whose interface raises."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Describe the array."""
        point()
        return super().__cuda_array_interface__


class FailingBoth(DLPackArray):
    """One that has `__dlpack__`, too, as CuPy's arrays do."""

    def export(self, *, versioned: bool = True) -> int:
        """Return the address of a new managed tensor."""
        address = super().export(versioned=versioned)
        counts.append(self.exports.pop()._deleted)
        return address

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export."""
        point()
        return super().__dlpack__(**keywords)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Describe the array."""
        point()
        return {
            "version": 3,
            "shape": tuple(self.shape or ()),
            "typestr": "<f4",
            "data": (self.data, False),
            "stream": self.framework.current_stream(self.device[1]).handle,
        }


SIM = simulation()
SIM.start()
LIBRARY: Framework = framework(FailingArray, "failing")
P, S = SIM.stream(), SIM.stream()
LIBRARY.work_on(P)
ARRAY = LIBRARY.full((4,))
OTHERS: dict[str, Any] = {}
for kind in (FailingInterface, FailingBoth):
    other = framework(kind, kind.__name__)
    other.work_on(P)
    OTHERS[kind.__name__] = other.full((4,))
SHOWN, BOTH = OTHERS["FailingInterface"], OTHERS["FailingBoth"]


STORED = Stored(ARRAY)
TENSOR = on_device(SIM, np.arange(4, dtype="f4"), stream=P)
STRIDED = on_device(SIM, np.arange(8, dtype="f4")[::-2], stream=P)
HOST = np.arange(4, dtype="f4")
WATCHED: list[Any] = [ARRAY, SHOWN, BOTH, STORED, TENSOR, STRIDED, HOST]
CUDA = 2, 0


def quiet() -> None:
    """Let all streams pass what was queued on them, and all memory go back."""
    gc.collect(1)
    settle(SIM)
    for stream in (P, S):
        SIM.advance()
        with dlx.stream(stream):  # Where dlx knows it to live.
            dlx.empty(1, "int8", device="cuda:0")
    SIM.advance()
    SIM.clear_journal()


def uses() -> list[int]:
    """Count what the driver holds."""
    return [SIM.counts[name] for name in ("allocations", "captures", "contexts")]


@dlx.launcher(stream=lambda: S)
def launch(*addresses: int) -> None:
    """Take addresses."""


@dlx.launcher
def launch_there(address: int, stream: int) -> None:
    """Take an address, on the stream of the tensor."""


def borrow(*sources: Any, **keywords: Any) -> None:
    """Lend tensors."""
    with dlx.borrow(*sources, **keywords):
        pass


def use(x: Any) -> None:
    """Read on another stream, and let go."""
    read(S, dlx.from_dlpack(x, stream=S))


def exported_later(x: Any) -> None:
    """Export what was imported."""
    tensor = dlx.from_dlpack(x)
    tensor.__dlpack__(stream=S.handle, max_version=(1, 3))
    tensor.synchronize()


def current() -> None:
    """Ask for the current stream, which is that of the library."""
    tensor = dlx.from_dlpack(ARRAY)
    dlx.current_stream("cuda:0")
    dlx.empty(4, "float32", device="cuda:0")
    del tensor


def ways(name: str, x: Any) -> dict[str, Callable[[], Any]]:
    """Return the ways of an array."""
    return {
        f"from_dlpack of {name}": lambda: dlx.from_dlpack(x),
        f"from_dlpack of {name} on a stream": lambda: dlx.from_dlpack(x, stream=S),
        f"from_dlpack of {name} without order": lambda: dlx.from_dlpack(x, stream=-1),
        f"from_dlpack of {name} with a copy": lambda: dlx.from_dlpack(x, copy=True),
        f"from_dlpack of {name} to the host": lambda: dlx.from_dlpack(x, device="cpu"),
        f"use of {name}": lambda: use(x),
        f"export of {name}": lambda: exported_later(x),
        f"borrow of {name}": lambda: borrow(x),
        f"borrow of {name} on a stream": lambda: borrow(x, TENSOR, stream=S),
        f"launcher of {name}": lambda: launch_there(x),
        f"launcher of {name} on a stream": lambda: launch(x, TENSOR),
        f"convert of {name} to NumPy": lambda: dlx.convert(x, np.ndarray, device="cpu"),
        f"convert of {name} to the library": lambda: dlx.convert(
            x, LIBRARY.Array, copy=True
        ),
        f"from_dlpack of a mixin over {name}": lambda: dlx.from_dlpack(Stored(x)),
        f"export by table of {name}": lambda: exported(Stored(x)),
        f"inspect of {name}": lambda: dlx.inspect(x),
    }


STEPS: dict[str, Callable[[], Any]] = {
    **ways("a table", ARRAY),
    **ways("an interface", SHOWN),
    **ways("both", BOTH),
    "borrow to write": lambda: borrow(TENSOR, out=ARRAY),
    "borrow of all": lambda: borrow(ARRAY, SHOWN, BOTH, STORED, stream=S),
    "convert of a tensor": lambda: dlx.convert(TENSOR, LIBRARY.Array),
    "convert of negative strides": lambda: dlx.convert(STRIDED, LIBRARY.Array),
    "convert from the host": lambda: dlx.convert(HOST, LIBRARY.Array, device="cuda:0"),
    "empty": lambda: dlx.empty(4, "float32", like=LIBRARY.Array, device="cuda:0"),
    "empty like an array": lambda: dlx.empty(4, "float32", like=ARRAY),
    "empty like a mixin": lambda: dlx.empty(4, "float32", like=STORED),
    "the current stream": current,
    "view by table": lambda: lent(STORED),
    "stream by table": lambda: named(Stored, CUDA),
    "stream by the table of dlx": lambda: named(dlx.Tensor, CUDA),
    "import by table": lambda: taken(dlx.Tensor, ARRAY.export()),
    "import by table of a mixin": lambda: taken(Stored, ARRAY.export()),
}
FUNCTIONS = [*TABLE, "method"]
