"""The names that programs use, beside those of the libraries."""

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
import threading
from array import array
from typing import Any

import dlx
import numpy as np

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
"""What a program calls each library, in the order of import: TensorFlow after Paddle,
which otherwise ends the process."""

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
    """Give an array over a file: ``r`` cannot be written, not even by C."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(numbers.tobytes() or b"0")
        file.flush()
        # The mapping outlives the file.
        found = np.memmap(file.name, numbers.dtype, mode, 0, numbers.shape)  # type: ignore[call-overload]
    return found


def mapped_bytes(size: int, writable: bool = True) -> mmap.mmap:
    """Give a mapping of the standard library, with the bytes 1, 2, 3 and so on."""
    with tempfile.TemporaryFile() as file:
        file.write(bytes(n % 251 + 1 for n in range(size)))
        file.flush()
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        return mmap.mmap(file.fileno(), size, access=access)


def misaligned(numbers: Any) -> Any:
    """Give the same elements one byte further."""
    memory = np.zeros(numbers.nbytes + 1, np.uint8)[1:]
    moved = memory.view(numbers.dtype).reshape(numbers.shape)
    moved[...] = numbers
    return moved


def frozen(x: Any) -> Any:
    """Give a view that must not be written."""
    view = x.view()
    view.flags.writeable = False
    return view


def pickled(x: Any) -> Any:
    """Give what comes back from a pickle."""
    return pickle.loads(pickle.dumps(x))


def saved(x: Any) -> Any:
    """Give what comes back from `torch.save`."""
    import torch

    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def seen_by(bridged: Any, x: Any) -> Any:
    """Give what the function below a bridge sees."""
    seen: list[Any] = []
    bridged(x, seen.append)
    return seen[0]


def identity(x: Any, see: Any = lambda x: None) -> Any:
    """Show an argument and give it back; below a bridge."""
    see(x)
    return x


def in_thread(function: Any) -> None:
    """Call a function in a thread of its own, and raise what it raises."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


_BRIDGES: dict[Any, Any] = {}


def bridge(to: Any) -> Any:
    """Give `identity`, bridged: one function per target, as a program would have it."""
    if to not in _BRIDGES:
        _BRIDGES[to] = dlx.bridge(to)(identity)
    return _BRIDGES[to]


def keep_out(see: Any, out: Any) -> Any:
    """Show what is to be written; below a bridge."""
    see(out)


def out_seen_by(to: Any, x: Any) -> Any:
    """Give what a bridged function is to write to where its ``out`` is ``x``."""
    if (to, "out") not in _BRIDGES:
        _BRIDGES[to, "out"] = dlx.bridge(to)(keep_out)
    seen: list[Any] = []
    _BRIDGES[to, "out"](seen.append, out=x)
    return seen[0]


def load(names: Any = MODULES, slow: bool = True) -> list[str]:
    """Import the libraries that are there; the names of those.

    Without ``slow``, what takes seconds is left out, and programs that need it are not
    drawn.
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
                # Its handlers of signals sleep in a process that was forked.
                sys.modules[module].disable_signal_handler()
            if slow and name == "tvm_ffi":
                # At its first exception it reads what C++ functions are called.
                with contextlib.suppress(ValueError):
                    sys.modules[module].dtype("unknown")
            if name == "pa" and importlib.util.find_spec("dateutil") is None:
                # It looks for it at every conversion, in all directories.
                sys.modules["dateutil"] = None  # type: ignore[assignment]
            found.append(name)
            if slow and name == "torch":
                # Before Paddle: each brings an LLVM of its own.
                importlib.import_module(".torch_kit", __package__).load_slow()
    namespace()
    return found


def namespace() -> dict[str, Any]:
    """Names for a program: those of the libraries that were imported, and the kit."""
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
