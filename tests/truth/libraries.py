"""The libraries that programs use, imported once.

They are kept here: programs play with ``sys.modules``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from typing import Any

MODULES = {
    "np": "numpy",
    "ml_dtypes": "ml_dtypes",
    "pa": "pyarrow",
    "pd": "pandas",
    "masked": "astropy.utils.masked",
    "tvm_ffi": "tvm_ffi",
    "xp": "array_api_strict",
    "torch": "torch",
    "jax": "jax",
    "jnp": "jax.numpy",
    "paddle": "paddle",
    "tf": "tensorflow",
    "mx": "mlx.core",
}
"""The name of each library in programs, in the order of import. TensorFlow comes after
Paddle, which otherwise ends the process."""

ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "JAX_PLATFORMS": "cpu",
    "JAX_ENABLE_X64": "1",
    # JAX has two devices then, so that one can be asked for.
    "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    "GLOG_minloglevel": "3",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}

FOUND: dict[str, Any] = {}
"""The imported modules, by their names in programs."""


def load(names: Any = MODULES, slow: bool = True) -> list[str]:
    """Import the libraries that are installed, and return their names.

    Without ``slow``, imports that take seconds are left out, and programs that need
    them are not drawn.
    """
    os.environ.update({k: v for k, v in ENVIRONMENT.items() if k not in os.environ})
    for name, module in MODULES.items():
        if name in names:
            try:
                FOUND[name] = importlib.import_module(module)
            except ImportError:
                continue
            prepare(name, slow)
    return list(FOUND)


def prepare(name: str, slow: bool) -> None:
    """Do what would be slow, or would hang, in each worker."""
    if name == "paddle":
        # Its signal handlers sleep in a forked process.
        FOUND[name].disable_signal_handler()
    if name == "tvm_ffi":
        # Its first exception reads the symbols of C++ functions: slow.
        with contextlib.suppress(ValueError):
            FOUND[name].dtype("unknown")
    if name == "pa" and importlib.util.find_spec("dateutil") is None:
        # pyarrow looks for it in every directory, at every conversion.
        sys.modules["dateutil"] = None  # type: ignore[assignment]
    if name == "pa":
        # It keeps for ever that NumPy was not there when it was first imported.
        with contextlib.suppress(ImportError):
            importlib.import_module("pyarrow.pandas_compat")
    if name == "torch":
        kit = importlib.import_module(".torch_kit", __package__)
        if slow:
            # Before Paddle: each has its own LLVM.
            kit.load_slow()
