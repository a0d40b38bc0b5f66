"""Tensors in dask.distributed: any dtype, without a copy, arriving as what they were.

`register` puts dlx beside what distributed knows. It is needed in the client and in
each worker, for which ``distributed.worker.preload`` names this module; `check` asks
them. `examples/dask_workers.py` of dlx-share is a program that does so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from io import BytesIO
from threading import RLock
from typing import Any

from dask.sizeof import sizeof
from distributed.protocol.serialize import dask_deserialize, dask_serialize
from distributed.utils import has_keyword
from dlx._core import Tensor
from dlx.pickling import _VERSION, _arrive

from .pickling import Pickler

__all__ = ["check", "register"]

# The class by which distributed finds the tensors of a library: `jax.Array` is a base
# of those that have elements.
_CLASSES = {
    "numpy": ("numpy", "ndarray"),
    "torch": ("torch", "Tensor"),
    "jax": ("jax", "Array"),
    "mlx": ("mlx.core", "array"),
}
# By which packages distributed finds out that a class is to be registered.
_PACKAGES = {"torchvision": "torch", "jaxlib": "jax"}
_PACKAGES |= {word: word for word in ("numpy", "torch", "mlx")}

_pickler = Pickler(BytesIO())
_lock = RLock()
_registered: set[str] = set()


def _before(dispatch: Any, cls: type) -> Callable[..., Any] | None:
    """Return what is registered for a class."""
    try:
        found: Callable[..., Any] = dispatch.dispatch(cls)
    except TypeError:
        return None
    return found


def _leaving(word: str, before: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return what turns tensors into a header and frames."""
    takes_context = before is not None and has_keyword(before, "context")

    def old(x: Any, context: Any) -> Any:
        if before is None:
            raise NotImplementedError  # The next family of distributed pickles it.
        return before(x, context=context) if takes_context else before(x)

    def leave(x: Any, context: Any = None) -> Any:
        # What distributed can do by way of NumPy, with gradients, stays as it is.
        if word == "torch":
            try:
                return old(x, context)
            except (RuntimeError, TypeError):
                pass
        reduced = _pickler.reducer_override(x)
        if reduced is not NotImplemented:
            version, _, *fields, buffer = reduced[1]
            return {"dlx": (version, *fields)}, [buffer]
        if word == "torch":
            raise NotImplementedError
        return old(x, context)

    return leave


def _arriving(word: str, before: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return what turns a header and frames into a tensor of a library."""

    def arrive(header: Any, frames: Any) -> Any:
        if before is not None and "dlx" not in header:
            return before(header, frames)
        try:
            (version, *fields), (frame,) = header["dlx"], frames
        except (KeyError, TypeError, ValueError) as error:
            raise BufferError(f"the header of the tensor is damaged: {error}") from None
        return _arrive(version, word, *fields, frame)

    return arrive


def _nbytes(x: Any) -> int:
    try:
        return int(x.nbytes)
    except RuntimeError:  # torch does not add what a sparse tensor is made of
        return int(x._indices().nbytes + x._values().nbytes)


def _register(word: str) -> None:
    """Register the class of a library, which is imported or about to be."""
    with _lock:
        if word in _registered:
            return
        _registered.add(word)
        if word in ("numpy", "torch"):
            # They register themselves when they are imported, so they have to be first.
            import_module(f"distributed.protocol.{word}")
        module, name = _CLASSES[word]
        cls = getattr(import_module(module), name)
        leave = _leaving(word, _before(dask_serialize, cls))
        arrive = _arriving(word, _before(dask_deserialize, cls))
        dask_serialize.register(cls, leave)
        dask_deserialize.register(cls, arrive)
        if word != "numpy":  # Which dask knows, broadcasts included.
            sizeof.register(cls, _nbytes)


def register() -> None:
    """Have distributed send tensors of torch, JAX and MLX by dlx, in this process.

    JAX's and MLX's go as frames without a copy, and so do those of torch whose dtype
    NumPy lacks, such as bfloat16, and NumPy's with dtypes of ml_dtypes. What dlx cannot
    describe goes to what was registered before, or is pickled. A `dlx.Tensor` is
    pickled without a copy by itself. dask also learns how large all of these are. No
    library is imported; call it as often as you like.
    """
    sizeof.register(Tensor, _nbytes)
    for package, word in _PACKAGES.items():
        if word in _registered:
            continue
        if package in sys.modules:
            _register(word)
            continue
        for dispatch in dask_serialize, dask_deserialize, sizeof:
            dispatch.register_lazy(package, lambda word=word: _register(word))


def dask_setup(_: object) -> None:
    """Register; distributed calls it in a worker that has this module as preload."""
    register()


def check(client: Any) -> None:
    """Ask each worker of a ``distributed.Client`` whether it reads what this one sends.

    Raises ``RuntimeError`` that names those without dlx, without `register`, or with a
    dlx whose pickles have another version.
    """
    expected = _VERSION

    # By value, as every function inside another: workers may lack this module.
    def ask() -> str:
        try:
            import dlx
            from dask.sizeof import sizeof as known
            from dlx.pickling import _VERSION as version
        except ImportError as error:
            return str(error)
        if known.dispatch(dlx.Tensor) is known.dispatch(object):
            return "dlx_share.dask.register() has not been called"
        if version != expected:
            return f"dlx has version {version} of the form, and {expected} is sent"
        return ""

    answers = {"this process": ask(), **client.run(ask, on_error="return")}
    wrong = [f"{worker}: {answer}" for worker, answer in answers.items() if answer]
    if wrong:
        raise RuntimeError("; ".join(wrong))
