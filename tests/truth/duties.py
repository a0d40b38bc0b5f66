"""What a result owes beside its numbers, and what a refusal owes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from .entries import Entry
from .games import Asked
from .libraries import FOUND
from .said_torch import is_torch, version_of
from .says import package_of
from .standins import INNER
from .wrong import Wrong


def layers(x: Any) -> list[Any]:
    """Return an object, the one that it stands in for, and so on."""
    found = [x]
    while type(found[-1]) in INNER:
        x = found[-1]
        found.append(vars(x)[INNER[type(x)]])
    return found


def innermost(x: Any) -> Any:
    """Return the object that others stand in for."""
    return layers(x)[-1]


def version(x: Any) -> int | None:
    """Return the number by which a library sees that a tensor was written to."""
    x = innermost(x)
    if is_torch(x):
        return version_of(x)
    if package_of(x) != "paddle" or not x._is_initialized():
        return None  # Paddle ends the process where there is no memory
    return int(x.inplace_version)


def check_version(before: int | None, x: Any, y: Any) -> None:
    """Raise `Wrong` if a backward pass would not see that ``x`` was written to.

    If ``x`` is handed on as it is, its own library counts what is written. Where there
    are no elements, nothing is.
    """
    if before is None or version(x) != before or not has_elements(innermost(x)):
        return
    if not any(y is each for each in layers(x)):
        raise Wrong("autograd did not learn that it was written to")


def is_of_a_copy(entry: Entry, x: Any) -> bool:
    """Whether an entry writes to a `dlx.Tensor` of what exports copies alone.

    So do variables of TensorFlow, and an index of pandas whose values are sparse. To
    write to the object itself is refused.
    """
    if "dlx.from_dlpack(x)" not in entry.text:
        return False
    inner, tf, pd = innermost(x), FOUND.get("tf"), FOUND.get("pd")
    if pd is not None and isinstance(inner, pd.Index):
        return not np.shares_memory(np.asarray(inner), np.asarray(inner))
    return tf is not None and isinstance(inner, tf.Variable)


def has_elements(x: Any) -> bool:
    """Whether a tensor of torch or Paddle has any."""
    try:
        return all(extent != 0 for extent in x.shape)
    except RuntimeError:  # A parameter of torch that is not made yet.
        return False


def check_class(entry: Entry, y: Any, names: dict[str, Any]) -> None:
    """Raise `Wrong` if ``y`` is not of the library that was asked for."""
    kind = eval(entry.to, names) if entry.to else None
    if isinstance(kind, type) and not isinstance(y, kind):
        raise Wrong(f"a {type(y).__name__} is not what was asked for")


def check_device(entry: Entry, x: Any, y: Any, names: dict[str, Any]) -> None:
    """Raise `Wrong` if a JAX array is not where it was to be."""
    if package_of(y) not in ("jax", "jaxlib"):
        return
    if entry.device:
        wanted = {eval(entry.device, names)}
    elif entry.keeps_device and package_of(x) == package_of(y):
        wanted = x.devices()
    else:
        return
    if y.devices() != wanted:
        raise Wrong(f"the device was dropped: on {y.devices()}, and not on {wanted}")


TENSORS = ("torch", "jax", "jaxlib", "tensorflow", "mlx", "paddle", "tvm_ffi")
"""Libraries whose objects no container may keep as they are."""


def check_handed_on(entry: Entry, y: Any, names: dict[str, Any]) -> None:
    """Raise `Wrong` if ``x`` itself is given for what was asked for, and is not."""
    if not entry.to:
        return
    if entry.text.startswith("dlx.convert_tree") and not hasattr(type(y), "__dlpack__"):
        # A tree has no leaf that is a tensor only by ``__array__``.
        return
    if is_export_only(y):
        raise Wrong("a wrapper that cannot compute was handed on")
    if type(y) is np.ndarray or package_of(y) in TENSORS:
        check_class(entry, y, names)


def is_export_only(y: Any) -> bool:
    """Whether a tensor of torch can be exported, and nothing else."""
    dlpack = FOUND["torch"].utils.dlpack if is_torch(y) else None
    kind = getattr(dlpack, "ReadOnlyTensorWrapper", None)
    return kind is not None and isinstance(y, kind)


BY_TABLE = ("dlx.from_dlpack(x)", "dlx.convert(x, np.ndarray)", "dlx.borrow(x)")
"""Entries that ask a class's table, if it has one."""


def check_table(entry: Entry, x: Any, asked: Asked | None) -> None:
    """Raise `Wrong` if a table was not asked that stands in the class of ``x``."""
    if asked is None or asked.times or entry.text not in BY_TABLE:
        return
    if type(x) is FOUND["torch"].Tensor:
        raise Wrong("the table that its class has was not asked")


HELP = {
    "DTensor": "to_local|full_tensor",
    "AsyncCollectiveTensor": "wait",
    "MaskedTensor": "get_data|to_tensor",
    "UninitializedParameter": "materialize",
}
"""The calls of which one leads on, by the class of a tensor without numbers."""


def check_help(error: BaseException, x: Any) -> None:
    """Raise `Wrong` if a refusal does not say what to call."""
    name = type(x).__name__
    if name in ("DTensor", "MaskedTensor") and not has_elements(x):
        return  # All of its numbers are there.
    if "DLPack has once" in str(error):
        return  # The device that was asked for is refused before the tensor is read.
    call = HELP.get(name)
    if call and not re.search(call, str(error)):
        raise Wrong(f"refused without the call that helps ({call}): {error}")
