"""The array libraries that dlx knows by name: one table row for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module, metadata
from importlib.util import find_spec
from operator import attrgetter
from types import ModuleType
from typing import Any

__all__ = ["FRAMEWORKS", "Framework", "Handling", "own_from_dlpack"]

_SIZE = 16


@dataclass(frozen=True, slots=True)
class Handling:
    """How to work with a library's own float32 tensors in CPU memory."""

    make: Callable[[Any], Any]
    """Make the tensor 1, 2, 3, ... with the given module."""
    take: str
    """Dotted name of the library's own `from_dlpack` within its module."""
    address: Callable[[Any], int]
    """Address of the first element, as the library reports it."""
    read: Callable[[Any], float]
    """Read the first element."""
    write: Callable[[Any, float], None] | None
    """Write the first element; None if the library's tensors are immutable."""
    exports_read_only: bool
    """Whether the library keeps the read-only flag of tensors that it imports."""


@dataclass(frozen=True, slots=True)
class Framework:
    """One library: where to find it, its tensor types, and how to handle them."""

    name: str
    module: str
    distributions: tuple[str, ...]
    tensor_types: tuple[str, ...]
    """`module:name` of each type; a release may lack some of them."""
    handling: Handling | None = None
    """None if tensors need a device, or cannot be imported and exported on the CPU."""

    def is_installed(self) -> bool:
        """Return whether the module can be found, without importing it."""
        try:
            spec = find_spec(self.module)
        except (ImportError, ValueError):
            return False
        # A directory with the same name counts as a namespace package, without origin.
        return spec is not None and spec.origin is not None

    def version(self) -> str | None:
        """Return the installed version by its metadata, without importing it."""
        for distribution in self.distributions:
            try:
                return metadata.version(distribution)
            except metadata.PackageNotFoundError:
                continue
        return None

    def load(self) -> ModuleType:
        """Import the module."""
        return import_module(self.module)

    def types(self) -> list[tuple[str, type]]:
        """Return the tensor types of the installed release with their names."""
        found = []
        for path in self.tensor_types:
            module, _, name = path.partition(":")
            try:
                found.append((f"{module}.{name}", getattr(import_module(module), name)))
            except (ImportError, AttributeError):
                continue
        return found


def own_from_dlpack(
    module: ModuleType, handling: Handling
) -> Callable[[Any], Any] | None:
    """Return the library's own `from_dlpack`, if this release has one."""
    try:
        function: Callable[[Any], Any] = attrgetter(handling.take)(module)
    except AttributeError:
        return None
    return function


def _numpy() -> Any:
    return import_module("numpy")


def _aligned() -> Any:
    # JAX shares memory only if it is aligned to 64 bytes; NumPy guarantees 16.
    np = _numpy()
    memory = np.empty(_SIZE + 16, np.float32)
    start = -memory.ctypes.data % 64 // memory.itemsize
    array = memory[start : start + _SIZE]
    array[:] = np.arange(1, _SIZE + 1)
    return array


def _seen_by_numpy(tensor: Any) -> Any:
    # For libraries without element access or addresses.
    return _numpy().from_dlpack(tensor)


def _first(tensor: Any) -> float:
    return float(tensor[0])


def _set_first(tensor: Any, value: float) -> None:
    tensor[0] = value


# torch comes before tvm-ffi, which on import gives older releases of torch a table.
FRAMEWORKS = (
    Framework(
        "numpy",
        "numpy",
        ("numpy",),
        ("numpy:ndarray",),
        Handling(
            make=lambda _: _aligned(),
            take="from_dlpack",
            address=lambda array: int(array.ctypes.data),
            read=_first,
            write=_set_first,
            exports_read_only=True,
        ),
    ),
    Framework(
        "torch",
        "torch",
        ("torch",),
        ("torch:Tensor",),
        Handling(
            make=lambda torch: torch.arange(
                1, _SIZE + 1, dtype=torch.float32, device="cpu"
            ),
            take="from_dlpack",
            address=lambda tensor: int(tensor.data_ptr()),
            read=_first,
            write=_set_first,
            exports_read_only=False,
        ),
    ),
    Framework(
        "tvm-ffi",
        "tvm_ffi",
        ("apache-tvm-ffi",),
        ("tvm_ffi:Tensor",),
        Handling(
            make=lambda tvm_ffi: tvm_ffi.from_dlpack(_aligned()),
            take="from_dlpack",
            address=lambda tensor: int(tensor.data_ptr()),
            read=lambda tensor: _first(_seen_by_numpy(tensor)),
            write=lambda tensor, value: _set_first(_seen_by_numpy(tensor), value),
            exports_read_only=False,
        ),
    ),
    Framework(
        "array-api-strict",
        "array_api_strict",
        ("array-api-strict",),
        ("array_api_strict._array_object:Array",),
        Handling(
            make=lambda xp: xp.from_dlpack(_aligned()),
            take="from_dlpack",
            address=lambda array: int(_seen_by_numpy(array).ctypes.data),
            read=_first,
            write=_set_first,
            exports_read_only=True,
        ),
    ),
    Framework(
        "pyarrow",
        "pyarrow",
        ("pyarrow",),
        ("pyarrow:Array", "pyarrow:Tensor"),
        Handling(
            make=lambda pa: pa.array(range(1, _SIZE + 1), pa.float32()),
            take="Array.from_dlpack",
            address=lambda array: int(array.buffers()[1].address) + array.offset * 4,
            read=lambda array: float(array[0].as_py()),
            write=None,
            exports_read_only=True,
        ),
    ),
    Framework(
        "jax",
        "jax",
        ("jax",),
        ("jaxlib._jax:ArrayImpl", "jaxlib.xla_extension:ArrayImpl"),
        Handling(
            make=lambda jax: jax.device_put(_aligned(), jax.devices("cpu")[0]),
            take="dlpack.from_dlpack",
            address=lambda array: int(array.unsafe_buffer_pointer()),
            read=_first,
            write=None,
            exports_read_only=False,
        ),
    ),
    Framework(
        "cupy",
        "cupy",
        ("cupy", "cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x"),
        ("cupy:ndarray",),
    ),
    Framework("mlx", "mlx.core", ("mlx",), ("mlx.core:array",)),
    Framework(
        "tensorflow",
        "tensorflow",
        ("tensorflow", "tensorflow-cpu"),
        ("tensorflow.python.framework.ops:EagerTensor",),
    ),
    Framework(
        "paddle",
        "paddle",
        ("paddlepaddle", "paddlepaddle-gpu"),
        ("paddle:Tensor",),
    ),
    Framework(
        "cuda.core",
        "cuda.core",
        ("cuda-core",),
        ("cuda.core.utils:StridedMemoryView",),
    ),
    Framework("warp", "warp", ("warp-lang",), ("warp:array",)),
    Framework(
        "numba",
        "numba",
        ("numba",),
        ("numba.cuda.cudadrv.devicearray:DeviceNDArray",),
    ),
    Framework("dask", "dask", ("dask",), ("dask.array:Array",)),
)
"""Every library that the command line looks for, in display order."""
