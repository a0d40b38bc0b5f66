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

    return mlx.core.array(tensor)


# Packages whose importer is not a ``from_dlpack`` beside the class, or not the best.
_PACKAGES: dict[str, Importer] = {
    "numpy": _numpy,
    "jax": _jax,
    "jaxlib": _jax,
    "pyarrow": _pyarrow,
    "mlx": _mlx,
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
    module = cls.__module__
    known = _PACKAGES.get(module.partition(".")[0])
    if known is not None:
        return known
    while module:
        found: Importer | None = getattr(sys.modules.get(module), "from_dlpack", None)
        if callable(found):
            return found
        module = module.rpartition(".")[0]

    name = f"{cls.__module__}.{cls.__qualname__}"

    def refuse(tensor: Tensor) -> Any:
        raise BufferError(
            f"{name} cannot be made from a tensor: "
            "neither the class nor its package has from_dlpack"
        )

    return refuse
