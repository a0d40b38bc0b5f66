"""How instances of types that are not dlx's are made from a ``dlx.Tensor``."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ._core import Tensor

    Importer = Callable[[Tensor], Any]


def _numpy(tensor: Tensor) -> Any:
    return tensor.numpy()


def _jax(tensor: Tensor) -> Any:
    from jax.dlpack import from_dlpack  # type: ignore[import-not-found, unused-ignore]

    return from_dlpack(tensor)


def _pyarrow(tensor: Tensor) -> Any:
    import pyarrow  # type: ignore[import-not-found, import-untyped, unused-ignore]

    return pyarrow.array(tensor.numpy())


def _mlx(tensor: Tensor) -> Any:
    import mlx.core  # type: ignore[import-not-found, unused-ignore]

    return mlx.core.from_dlpack(tensor)


def _tensorflow(tensor: Tensor) -> Any:
    import tensorflow as tf  # type: ignore[import-not-found, import-untyped, unused-ignore]

    capsule = tensor.__dlpack__()  # It takes nothing else, and no newer one.
    try:
        return tf.experimental.dlpack.from_dlpack(capsule)
    except tf.errors.OpError as error:
        raise BufferError(error.message) from error


def _warp(tensor: Tensor) -> Any:
    import warp  # type: ignore[import-not-found, import-untyped, unused-ignore]

    if tensor.ndim == 0:
        raise BufferError("an array of Warp has at least one dimension")
    return warp.from_dlpack(tensor)


def _tinygrad(tensor: Tensor) -> Any:
    import tinygrad.tensor as tg  # type: ignore[import-not-found, import-untyped, unused-ignore]

    flat = tensor.numpy().reshape(-1)
    try:
        made = tg.Tensor(flat)
    except KeyError as error:
        raise BufferError(f"tinygrad has no dtype for {error}") from error
    # Left to itself it copies when it needs the elements, whatever became of them.
    return made.realize().reshape(tensor.shape)


# Packages whose importer is not a ``from_dlpack`` beside the class, or not the best.
_PACKAGES: dict[str, Importer] = {
    "numpy": _numpy,
    "jax": _jax,
    "jaxlib": _jax,
    "pyarrow": _pyarrow,
    "mlx": _mlx,
    "tensorflow": _tensorflow,
    "tinygrad": _tinygrad,
    "warp": _warp,
}


def _is_exporter(cls: type) -> bool:
    if cls is getattr(sys.modules.get("jax"), "Array", None):
        return True  # the abstract base of what has the methods
    return hasattr(cls, "__dlpack__") and hasattr(cls, "__dlpack_device__")


def importer(cls: type) -> Importer | None:
    """Find what makes an instance of ``cls``; None where its own ``from_dlpack`` does.

    What is returned does not keep ``cls`` alive.

    Raises ``TypeError`` for a class whose instances cannot be exported.
    """
    if not _is_exporter(cls):
        raise TypeError(
            f"{cls.__module__}.{cls.__qualname__} has no __dlpack__ and "
            "__dlpack_device__; a class with these or an exchange table is accepted"
        )
    if callable(getattr(cls, "from_dlpack", None)):
        return None
    if (found := _of_package(cls)) is not None:
        return found
    name = f"{cls.__module__}.{cls.__qualname__}"

    def refuse(tensor: Tensor) -> Any:
        raise BufferError(
            f"{name} cannot be made from a tensor: "
            "neither the class nor its package has from_dlpack"
        )

    return refuse


def _of_package(cls: type) -> Importer | None:
    """Find what the package of ``cls`` imports tensors with."""
    module = cls.__module__
    known = _PACKAGES.get(module.partition(".")[0])
    if known is not None:
        return known
    while module:
        found: Importer | None = getattr(sys.modules.get(module), "from_dlpack", None)
        if callable(found):
            return found
        module = module.rpartition(".")[0]
    return None


# Packages in which nobody writes to the memory of an array.
_IMMUTABLE = {"jax", "jaxlib"}


def importing(cls: type) -> tuple[Importer, bool]:
    """Find what makes an instance of ``cls``, and whether instances are never written.

    Raises ``TypeError`` for a class of which no instance can be made.
    """
    immutable = cls.__module__.partition(".")[0] in _IMMUTABLE
    own: Importer | None = getattr(cls, "from_dlpack", None)
    found = own if callable(own) else _of_package(cls)
    if found is None:
        raise TypeError(
            f"{cls.__module__}.{cls.__qualname__} cannot be made from a tensor: "
            "it has no exchange table, and neither it nor its package has from_dlpack"
        )
    return found, immutable


# What the array type of a namespace is called.
_ARRAY_TYPES = ("Tensor", "ndarray", "Array", "array")


def array_type(namespace: Any) -> type:
    """Find the array type of a namespace, such as ``torch`` or ``jax.numpy``.

    Raises ``TypeError`` where it has none.
    """
    for name in _ARRAY_TYPES:
        found = getattr(namespace, name, None)
        if isinstance(found, type):
            return found
    # Some namespaces, array_api_strict's for one, keep the class to themselves.
    if callable(empty := getattr(namespace, "empty", None)):
        return type(empty(0))
    raise TypeError(
        f"{namespace!r} has no array type: "
        f"one called {', '.join(_ARRAY_TYPES)}, or a function empty, is accepted"
    )
