"""The libraries, and how to make their objects."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import NamedTuple

from . import (
    buffer_objects,
    column_objects,
    framework_objects,
    labelled_objects,
    numpy_objects,
    torch_objects,
)
from .objects import Objects


class Library(NamedTuple):
    """A library whose objects are looked at."""

    module: str
    """What is imported for them."""
    requirement: str
    """Its name on PyPI."""
    objects: Callable[[], Objects]
    immutable: bool = False
    """Whether its documentation says that arrays do not change."""

    def load(self) -> None:
        """Import it, or raise `ImportError`."""
        importlib.import_module(self.module)


LIBRARIES = {
    # The slowest come first, so that two processes end together.
    "tensorflow": Library(
        "tensorflow", "tensorflow-cpu", framework_objects.tensorflows, True
    ),
    "jax": Library("jax", "jax", framework_objects.jaxs, True),
    "paddle": Library("paddle", "paddlepaddle", framework_objects.paddles),
    "torch": Library("torch", "torch", torch_objects.torchs),
    "xarray": Library("xarray", "xarray", labelled_objects.xarrays),
    "tvm_ffi": Library("tvm_ffi", "apache-tvm-ffi", numpy_objects.tvm_ffi),
    "numpy": Library("numpy", "numpy", numpy_objects.numpys),
    "stdlib": Library("array", "python", buffer_objects.stdlib),
    "warp": Library("warp", "warp-lang", numpy_objects.warp),
    "pandas": Library("pandas", "pandas", column_objects.pandas),
    "astropy": Library("astropy", "astropy", labelled_objects.astropys),
    "awkward": Library("awkward", "awkward", column_objects.awkwards),
    "cuda.core": Library("cuda.core.utils", "cuda-core", numpy_objects.cuda_core),
    "onnxruntime": Library("onnxruntime", "onnxruntime", numpy_objects.onnxruntime),
    "mlx": Library("mlx.core", "mlx", framework_objects.mlxs, True),
    "polars": Library("polars", "polars", column_objects.polars, True),
    "pyarrow": Library("pyarrow", "pyarrow", column_objects.pyarrows, True),
    "dask": Library("dask.array", "dask", labelled_objects.dasks),
    "nanoarrow": Library("nanoarrow", "nanoarrow", column_objects.nanoarrows, True),
    "arro3": Library("arro3.core", "arro3-core", column_objects.arro3s, True),
    "array_api_strict": Library(
        "array_api_strict", "array-api-strict", numpy_objects.array_api_strict
    ),
    "tinygrad": Library("tinygrad", "tinygrad", framework_objects.tinygrads),
    "scipy": Library("scipy.sparse", "scipy", labelled_objects.scipys),
}
