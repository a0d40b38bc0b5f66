"""The array libraries that `info` looks for: one table row for each."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module, metadata
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType

from dlx_check.cli.command import one_line

__all__ = ["FRAMEWORKS", "Framework"]


@dataclass(frozen=True, slots=True)
class Framework:
    """One library: where to find it, and its tensor types."""

    name: str
    module: str
    distributions: tuple[str, ...]
    tensor_types: tuple[str, ...]
    """`module:name` of each type; a release may lack some of them."""

    def is_installed(self) -> bool:
        """Return whether the module can be found, without an import of any package."""
        try:
            spec = _spec(self.module)
        except Exception:
            return False
        # A directory with the same name counts as a namespace package, without origin.
        return spec is not None and spec.origin is not None

    def version(self) -> str | None:
        """Return the installed version by its metadata, without importing it.

        Raises `ValueError` if there are some that cannot be read.
        """
        for distribution in self.distributions:
            try:
                version: object = metadata.version(distribution)
            except metadata.PackageNotFoundError:
                continue
            except Exception as error:
                raise ValueError(one_line(error)) from error
            if not isinstance(version, str):
                raise ValueError("no version")
            return version
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


def _spec(module: str) -> ModuleSpec | None:
    """Return the spec of a module; `find_spec` would import the packages around it."""
    outer, _, _ = module.rpartition(".")
    if not outer:
        return find_spec(module)
    around = _spec(outer)
    if around is None or around.submodule_search_locations is None:
        return None
    return PathFinder.find_spec(module, [*around.submodule_search_locations])


FRAMEWORKS = (
    Framework("numpy", "numpy", ("numpy",), ("numpy:ndarray",)),
    Framework("torch", "torch", ("torch",), ("torch:Tensor",)),
    Framework("tvm_ffi", "tvm_ffi", ("apache-tvm-ffi",), ("tvm_ffi:Tensor",)),
    Framework(
        "array_api_strict",
        "array_api_strict",
        ("array-api-strict",),
        ("array_api_strict._array_object:Array",),
    ),
    Framework("pyarrow", "pyarrow", ("pyarrow",), ("pyarrow:Array", "pyarrow:Tensor")),
    Framework(
        "jax",
        "jax",
        ("jax",),
        ("jaxlib._jax:ArrayImpl", "jaxlib.xla_extension:ArrayImpl"),
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
        "paddle", "paddle", ("paddlepaddle", "paddlepaddle-gpu"), ("paddle:Tensor",)
    ),
    Framework(
        "cuda.core", "cuda.core", ("cuda-core",), ("cuda.core.utils:StridedMemoryView",)
    ),
    Framework("warp", "warp", ("warp-lang",), ("warp:array",)),
    Framework(
        "numba", "numba", ("numba",), ("numba.cuda.cudadrv.devicearray:DeviceNDArray",)
    ),
    Framework("dask", "dask", ("dask",), ("dask.array:Array",)),
)
"""Every library that the command line looks for, in display order."""
