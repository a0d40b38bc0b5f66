"""The names that programs use, besides those of the libraries."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import importlib.util
import io
import mmap
import os
import pickle
import sys
import tempfile
from array import array
from typing import Any

import dlx
import numpy as np
from support.concurrent_threads import in_thread

from .standins import Carrier, Forward, Given, Held, Interface, Old, Proxy

MODULES = {
    "np": "numpy",
    "ml_dtypes": "ml_dtypes",
    "pa": "pyarrow",
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
    "GLOG_minloglevel": "3",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def echo(x: Any) -> Any:
    """Send ``x`` through tvm-ffi's C++ and back."""
    import tvm_ffi

    return tvm_ffi.get_global_func("testing.echo")(x)


def mapped(numbers: Any, mode: str = "r+") -> Any:
    """Return an array over a mapped file; with ``r`` not even C code can write."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(numbers.tobytes() or b"0")
        file.flush()
        # The mapping outlives the file.
        found = np.memmap(file.name, numbers.dtype, mode, 0, numbers.shape)  # type: ignore[call-overload]
    return found


def mapped_bytes(size: int, writable: bool = True) -> mmap.mmap:
    """Return an ``mmap.mmap`` with the bytes 1, 2, 3 and so on."""
    with tempfile.TemporaryFile() as file:
        file.write(bytes(n % 251 + 1 for n in range(size)))
        file.flush()
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        return mmap.mmap(file.fileno(), size, access=access)


def misaligned(numbers: Any) -> Any:
    """Return the same elements, misaligned by one byte."""
    memory = np.zeros(numbers.nbytes + 1, np.uint8)[1:]
    moved = memory.view(numbers.dtype).reshape(numbers.shape)
    moved[...] = numbers
    return moved


def frozen(x: Any) -> Any:
    """Return a read-only view."""
    view = x.view()
    view.flags.writeable = False
    return view


def pickled(x: Any) -> Any:
    """Return ``x`` after pickling and unpickling."""
    return pickle.loads(pickle.dumps(x))


def saved(x: Any) -> Any:
    """Return ``x`` after `torch.save` and `torch.load`."""
    import torch

    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def seen_by(bridged: Any, x: Any) -> Any:
    """Return the argument that a bridged function receives for ``x``."""
    seen: list[Any] = []
    bridged(x, seen.append)
    return seen[0]


def identity(x: Any, see: Any = lambda x: None) -> Any:
    """Pass the argument to ``see`` and return it; this is what gets bridged."""
    see(x)
    return x


_BRIDGES: dict[Any, Any] = {}


def bridge(to: Any) -> Any:
    """Return `identity`, bridged; one function per target, as a program would have."""
    if to not in _BRIDGES:
        _BRIDGES[to] = dlx.bridge(to)(identity)
    return _BRIDGES[to]


def keep_out(see: Any, out: Any) -> Any:
    """Pass ``out`` to ``see``; this is what gets bridged."""
    see(out)


def out_seen_by(to: Any, x: Any) -> Any:
    """Return the ``out`` that a bridged function receives for ``out=x``."""
    if (to, "out") not in _BRIDGES:
        _BRIDGES[to, "out"] = dlx.bridge(to)(keep_out)
    seen: list[Any] = []
    _BRIDGES[to, "out"](seen.append, out=x)
    return seen[0]


def load(names: Any = MODULES, slow: bool = True) -> list[str]:
    """Import the libraries that are installed, and return their names.

    Without ``slow``, imports that take seconds are left out, and programs that need
    them are not drawn.
    """
    os.environ.update({k: v for k, v in ENVIRONMENT.items() if k not in os.environ})
    found = []
    for name, module in MODULES.items():
        if name in names:
            try:
                importlib.import_module(module)
            except ImportError:
                continue
            if name == "paddle":
                # Its signal handlers sleep in a forked process.
                sys.modules[module].disable_signal_handler()
            if slow and name == "tvm_ffi":
                # Its first exception reads the symbols of C++ functions: slow.
                with contextlib.suppress(ValueError):
                    sys.modules[module].dtype("unknown")
            if name == "pa" and importlib.util.find_spec("dateutil") is None:
                # pyarrow looks for it in every directory, at every conversion.
                sys.modules["dateutil"] = None  # type: ignore[assignment]
            found.append(name)
            if slow and name == "torch":
                # Before Paddle: each has its own LLVM.
                importlib.import_module(".torch_kit", __package__).load_slow()
    namespace()
    return found


def namespace() -> dict[str, Any]:
    """Return the names for a program: the imported libraries, and the kit."""
    found = {n: sys.modules[m] for n, m in MODULES.items() if m in sys.modules}
    if "torch" in found:
        from .torch_kit import KIT as more

        return KIT | more | found
    return KIT | found


KIT: dict[str, Any] = {
    "dlx": dlx,
    "array": array,
    "copy": copy,
    "ctypes": ctypes,
    "mmap": mmap,
    **{
        each.__name__: each
        for each in (
            Held,
            Given,
            Interface,
            Forward,
            Old,
            Proxy,
            Carrier,
            echo,
            mapped,
            mapped_bytes,
            misaligned,
            frozen,
            pickled,
            saved,
            seen_by,
            identity,
            bridge,
            out_seen_by,
            in_thread,
        )
    },
}
