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


def _pyarrow_fixed_shape(tensor: Tensor) -> Any:
    import pyarrow  # type: ignore[import-not-found, import-untyped, unused-ignore]

    if not tensor.size:  # pyarrow divides by it, which ends the process
        raise BufferError("pyarrow.FixedShapeTensorArray has at least one element")
    return pyarrow.FixedShapeTensorArray.from_dlpack(tensor)


def _mlx(tensor: Tensor) -> Any:
    import mlx.core  # type: ignore[import-not-found, unused-ignore]

    return mlx.core.from_dlpack(tensor)


def _tensorflow(tensor: Tensor) -> Any:
    import tensorflow as tf  # type: ignore[import-not-found, import-untyped, unused-ignore]

    # Its kernels end the process on memory that is not aligned as its own is.
    copy = tensor.data_ptr % _alignment(tf.sysconfig) != 0 or None
    capsule = tensor.__dlpack__(copy=copy)  # It takes nothing else, and no newer one.
    try:
        return tf.experimental.dlpack.from_dlpack(capsule)
    except tf.errors.OpError as error:
        raise BufferError(error.message) from error


def _alignment(sysconfig: Any) -> int:
    """Bytes of alignment that TensorFlow names, or else that of dlx's own memory."""
    for flag in sysconfig.get_compile_flags():
        name, _, value = flag.partition("=")
        if name == "-DEIGEN_MAX_ALIGN_BYTES":
            return int(value)
    return 256


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


# Classes whose importer is not a ``from_dlpack`` beside them, or not the best.
_CLASSES: tuple[tuple[str, str, Importer], ...] = (
    ("numpy", "ndarray", _numpy),
    ("jax", "Array", _jax),
    ("pyarrow", "Array", _pyarrow),
    ("mlx.core", "array", _mlx),
    ("tensorflow", "Tensor", _tensorflow),
    ("tinygrad.tensor", "Tensor", _tinygrad),
    ("warp", "array", _warp),
)


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
    """Find what the package of ``cls`` imports tensors with.

    What a class says of its module may be wrong; what is made is looked at.
    """
    for name, attribute, importer in _CLASSES:
        known = getattr(sys.modules.get(name), attribute, None)
        if isinstance(known, type) and issubclass(cls, known):
            return importer
    module = cls.__module__
    while isinstance(module, str) and module:
        found: Importer | None = getattr(sys.modules.get(module), "from_dlpack", None)
        if callable(found):
            return found
        module = module.rpartition(".")[0]
    return None


# Classes whose instances their libraries call immutable, though what they export does
# not say so: a buffer of MLX even says the contrary.
_IMMUTABLE = (("jax", "Array"), ("mlx.core", "array"), ("tensorflow", "Tensor"))


def immutable(x: object) -> str | None:
    """Find the immutable class that ``x`` is of."""
    for module, name in _IMMUTABLE:
        cls = getattr(sys.modules.get(module), name, None)
        if isinstance(cls, type) and isinstance(x, cls):
            return f"{module}.{name}"
    return None


def importing(cls: type) -> Importer:
    """Find what makes an instance of ``cls``.

    Raises ``TypeError`` for a class of which no instance can be made.
    """
    if cls is getattr(sys.modules.get("pyarrow"), "FixedShapeTensorArray", None):
        return _pyarrow_fixed_shape
    own: Importer | None = getattr(cls, "from_dlpack", None)
    found = own if callable(own) else _of_package(cls)
    if found is None:
        raise TypeError(
            f"{cls.__module__}.{cls.__qualname__} cannot be made from a tensor: "
            "it has no exchange table, and neither it nor its package has from_dlpack"
        )
    return found


# What the array type of a namespace is called.
_ARRAY_TYPES = ("Tensor", "ndarray", "Array", "array")


def array_type(namespace: Any) -> type:
    """Find the array type of a namespace, such as ``torch`` or ``jax.numpy``.

    Raises ``TypeError`` where it has none.
    """
    # What is there first: a namespace may take long to say that something is not.
    for found in (vars(namespace).get, lambda name: getattr(namespace, name, None)):
        for name in _ARRAY_TYPES:
            if isinstance(kind := found(name), type):
                return kind
    # Some namespaces, array_api_strict's for one, keep the class to themselves.
    if callable(empty := getattr(namespace, "empty", None)):
        return type(empty(0))
    raise TypeError(
        f"{namespace!r} has no array type: "
        f"one called {', '.join(_ARRAY_TYPES)}, or a function empty, is accepted"
    )
