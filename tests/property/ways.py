"""The ways into dlx, each with what dlx says there."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref, c_void_p
from typing import Any, Literal, NamedTuple

import dlx
import numpy as np
from support.dlpack_abi import DLManagedTensorVersioned, DLTensor, delete, table_of
from support.dlx_producers import ByMethod, Stored

from .said import (
    UNSAID,
    Said,
    of_capsule,
    of_dlx,
    of_managed,
    of_numpy,
    of_struct,
    steps,
)
from .word import export

SAME = "same"
"""dlx must say what the object's `__dlpack__` says."""
HANDED = "handed"
"""The same, but dlx is given the object's own export, and cannot know more."""
OTHER = "other"
"""dlx is given another protocol, which may be missing, and whose flags are its own."""
TABLE = "table"
"""dlx answers for the object with a struct that always has flags."""
VIEW = "view"
"""dlx answers with a struct that has none, or refuses."""
NUMPY = "NumPy"
"""NumPy's array is read-only where nothing is said."""


class Way(NamedTuple):
    """A way in."""

    ask: Callable[[Any], Said | None]
    """None if the object does not have this way."""
    kind: str = SAME


def only(*names: str) -> type:
    """Make a class of objects that have some attributes of another, and no others."""

    def keep(self: Any, x: Any) -> None:
        self.x = x

    def forward(name: str) -> property:
        return property(lambda self: getattr(self.x, name))

    forwards = {name: forward(name) for name in names}
    return type("Only", (), {"__init__": keep, **forwards})


def by(*names: str) -> Callable[[Any], Said | None]:
    """Return a way that gives dlx these attributes of the object alone."""
    kind = only(*names)

    def ask(x: Any) -> Said | None:
        return of_dlx(dlx.from_dlpack(kind(x))) if hasattr(x, names[0]) else None

    return ask


def again(x: Any) -> Said:
    """Import it often, so that dlx uses what it learnt of the type."""
    for _ in range(20):
        dlx.from_dlpack(x)
    return of_dlx(dlx.from_dlpack(x))


def capsule(x: Any) -> Said | None:
    """Import the object's own capsule."""
    return of_dlx(dlx.from_dlpack(export(x))) if hasattr(x, "__dlpack__") else None


def buffer(x: Any) -> Said | None:
    """Import its memoryview."""
    try:
        view = memoryview(x)
    except Exception:
        return None
    return of_dlx(dlx.from_dlpack(view))


def borrowed(x: Any) -> Said:
    """Lend it to a block."""
    with dlx.borrow(x) as (tensor, _):
        return of_dlx(tensor)


def launched(
    read: Callable[[Any], Said], give: Literal["tensor", "address"] = "tensor"
) -> Way:
    """Launch a kernel with it; None if that gets the object itself, as a scalar."""

    def kernel(given: Any) -> Said | None:
        return read(given) if isinstance(given, (dlx.Tensor, int)) else None

    return Way(dlx.launcher(kernel, give=give, contiguous=False))


def in_tree(x: Any) -> Said | None:
    """Convert it inside of a list; None if it is no leaf that is converted."""
    (made,) = dlx.convert_tree([x], dlx.Tensor)
    return of_dlx(made) if made is not x else None


def converted_to_numpy(x: Any) -> Said | None:
    """Convert it to NumPy's array, which shares the memory."""
    if isinstance(x, np.ndarray):
        return None
    return of_numpy(dlx.convert(x, np.ndarray, copy=False))


def inspected(x: Any) -> Said | None:
    """Inspect it: the fields as they were written."""
    found = dlx.inspect(x)
    tensor, managed = found.tensor, found.managed
    if tensor is None or tensor.shape is None:
        return None
    unsaid = managed is not None and managed.version is None
    return Said(
        0 if 0 in tensor.shape else tensor.data + tensor.byte_offset,
        tensor.shape,
        steps(tensor.shape, tensor.strides),
        tensor.dtype,
        tensor.device,
        UNSAID if unsaid else managed.flags if managed is not None else None,
    )


# The exchange tables that dlx makes

TABLE_NAME = "__dlpack_c_exchange_api__"


def by_table(source: Any, x: Any) -> Said:
    """Export through a table."""
    out = c_void_p()
    table_of(source).managed_tensor_from_py_object_no_sync(x, byref(out))
    managed = DLManagedTensorVersioned.from_address(out.value or 0)
    said = of_managed(managed)
    delete(managed)
    return said


def lent(kind: Any, x: Any) -> Said | None:
    """Ask a class's table for a view, which has no flags; not every one lends it."""
    entry = table_of(kind).dltensor_from_py_object_no_sync
    out = DLTensor()
    if not entry:
        return None
    return of_struct(out, None) if entry(x, byref(out)) == 0 else None


def provided(x: Any) -> Said | None:
    """Export through the table that dlx provides for the class, if it has none."""
    kind = type(x)
    if hasattr(kind, TABLE_NAME) or not hasattr(kind, "__dlpack__"):
        return None
    return by_table(dlx.exchange_api(kind), x)


def published(x: Any, then: Callable[[Any], Said | None]) -> Said | None:
    """Ask while dlx's table is on the class; None if the class has its own."""
    kind = type(x)
    if hasattr(kind, TABLE_NAME) or not hasattr(kind, "__dlpack__"):
        return None
    dlx.publish(kind)
    try:
        return then(x)
    finally:
        dlx.unpublish(kind)


WAYS = {
    "from_dlpack": Way(lambda x: of_dlx(dlx.from_dlpack(x))),
    "again": Way(again),
    "copy=False": Way(lambda x: of_dlx(dlx.from_dlpack(x, copy=False))),
    "device": Way(lambda x: of_dlx(dlx.from_dlpack(x, device="cpu"))),
    "convert": Way(lambda x: of_dlx(dlx.convert(x, dlx.Tensor))),
    "tree": Way(in_tree),
    "numpy": Way(converted_to_numpy, NUMPY),
    "capsule": Way(capsule, HANDED),
    "protocol": Way(by("__dlpack__", "__dlpack_device__"), HANDED),
    "borrow": Way(borrowed),
    "launcher": launched(of_dlx),
    "launcher-export": launched(lambda tensor: of_capsule(export(tensor))),
    "launcher-address": launched(Said, "address"),
    "export": Way(lambda x: of_capsule(export(dlx.from_dlpack(x)))),
    "inspect": Way(inspected, HANDED),
    "buffer": Way(buffer, OTHER),
    "array-interface": Way(by("__array_interface__"), OTHER),
    "array-struct": Way(by("__array_struct__"), OTHER),
    "arrow": Way(by("__arrow_c_array__", "__arrow_c_schema__"), OTHER),
    "mixin": Way(lambda x: of_dlx(dlx.from_dlpack(Stored(x)))),
    "method": Way(lambda x: of_dlx(dlx.from_dlpack(ByMethod(x)))),
    "mixin-protocol": Way(lambda x: of_capsule(export(Stored(x)))),
    "mixin-table": Way(lambda x: by_table(Stored, Stored(x)), TABLE),
    "mixin-view": Way(lambda x: lent(Stored, Stored(x)), VIEW),
    "table": Way(provided, TABLE),
}
AFTER = {
    "published": Way(lambda x: published(x, lambda x: by_table(type(x), x)), TABLE),
    "publishing": Way(lambda x: published(x, lambda x: of_dlx(dlx.from_dlpack(x)))),
}
"""Ways that change the class, for which dlx may remember something."""
