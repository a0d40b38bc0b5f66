"""Importers of other libraries: each makes an array of its own from a `dlx.Tensor`."""

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

    # Its kernels crash on memory that is less aligned than its own.
    copy = tensor.data_ptr % _alignment(tf.sysconfig) != 0 or None
    capsule = tensor.__dlpack__(copy=copy)  # It takes nothing else, and no newer one.
    try:
        return tf.experimental.dlpack.from_dlpack(capsule)
    except tf.errors.OpError as error:
        raise BufferError(error.message) from error


def _alignment(sysconfig: Any) -> int:
    """TensorFlow's alignment in bytes, or else that of dlx's own memory."""
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
    # Realize now: lazily, it would copy only when it needs the elements, which may
    # have changed by then.
    return made.realize().reshape(tensor.shape)


# Classes whose package has no ``from_dlpack``, or for which another importer is better.
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
    """Find the importer of ``cls``; None if the class itself has ``from_dlpack``.

    The importer does not keep ``cls`` alive.

    Raises ``TypeError`` for a class whose instances cannot be exported.
    """
    if not _is_exporter(cls):
        raise TypeError(
            f"{cls.__module__}.{cls.__qualname__} has no __dlpack__ and "
            "__dlpack_device__; expected a class with these or with an exchange table"
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
    """Find the importer in the package of ``cls``.

    A class's ``__module__`` may be wrong, so callers check what the importer returns.
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


# Classes that their libraries call immutable although their exports do not say so;
# MLX's buffers even claim to be writable.
_IMMUTABLE = (
    ("jax", "Array"),
    ("mlx.core", "array"),
    ("pandas", "Index"),
    ("tensorflow", "Tensor"),
)


def immutable(x: object) -> str | None:
    """Return the name of the immutable class of ``x``, if it has one."""
    for module, name in _IMMUTABLE:
        cls = getattr(sys.modules.get(module), name, None)
        if isinstance(cls, type) and isinstance(x, cls):
            return f"{module}.{name}"
    return None


def importing(cls: type) -> Importer:
    """Find the importer of ``cls``.

    Raises ``TypeError`` for a class that has none.
    """
    if cls is getattr(sys.modules.get("pyarrow"), "FixedShapeTensorArray", None):
        return _pyarrow_fixed_shape
    own: Importer | None = getattr(cls, "from_dlpack", None)
    found = own if callable(own) else _of_package(cls)
    if found is None:
        raise TypeError(
            f"{cls.__module__}.{cls.__qualname__} cannot be made from a tensor: "
            "it has no exchange table, and neither it nor its package has from_dlpack; "
            "if its constructor takes a NumPy array, pass it dlx.convert(x, np.ndarray)"
        )
    return found


# Names of array types in namespaces.
_ARRAY_TYPES = ("Tensor", "ndarray", "Array", "array")


def array_type(namespace: Any) -> type:
    """Find the array type of a namespace, such as ``torch`` or ``jax.numpy``.

    Raises ``TypeError`` if it has none.
    """
    # Search the loaded names first: a lazy namespace is slow to report a missing one.
    loaded = getattr(namespace, "__dict__", {})
    for found in (loaded.get, lambda name: getattr(namespace, name, None)):
        for name in _ARRAY_TYPES:
            if isinstance(kind := found(name), type):
                return kind
    # Some namespaces, such as array_api_strict, do not export their array type.
    if callable(empty := getattr(namespace, "empty", None)):
        return type(empty(0))
    name = getattr(namespace, "__name__", repr(namespace))
    raise TypeError(
        f"{name} has no array type; "
        f"expected one called {', '.join(_ARRAY_TYPES)}, or a function empty; "
        "its constructors may take the NumPy array dlx.convert(x, np.ndarray)"
    )
