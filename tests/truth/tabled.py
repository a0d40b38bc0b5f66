"""A class whose exchange table is replaced, as a backend that is loaded late does."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from support.dlpack_abi import DLTensor, managed_in, new_capsule, take
from support.fake_table import new_table

from .said import Said, of_numpy


class Tabled:
    """Exports by its class's table alone."""

    exports: str
    """The attribute that the present table exports."""

    def __init__(self, inner: Any, other: Any) -> None:
        """Keep arrays of the same shape and dtype, and what is lent of them."""
        self.inner, self.other = inner, other
        self.lent: list[Any] = []

    def __truth__(self) -> Said | None:
        """Return what NumPy says of the array that the present table exports."""
        return of_numpy(getattr(self, type(self).exports))


def put_table(cls: type[Tabled], exports: str) -> None:
    """Give a class a table that exports this attribute."""

    def own(instance: Tabled, out: int) -> int:
        capsule = getattr(instance, exports).__dlpack__(max_version=(1, 3))
        ctypes.c_void_p.from_address(out).value = ctypes.addressof(take(capsule))
        return 0

    def lend(instance: Tabled, out: int) -> int:
        capsule = getattr(instance, exports).__dlpack__(max_version=(1, 3))
        instance.lent.append(capsule)
        tensor = managed_in(capsule).dl_tensor
        ctypes.memmove(out, ctypes.addressof(tensor), ctypes.sizeof(DLTensor))
        return 0

    table = new_table(
        managed_tensor_from_py_object_no_sync=own, dltensor_from_py_object_no_sync=lend
    )
    capsule = new_capsule(ctypes.addressof(table), b"dlpack_exchange_api")
    cls.exports, cls.__dlpack_c_exchange_api__ = exports, capsule  # type: ignore[attr-defined]


def tabled(x: Any) -> Tabled:
    """Return an instance of a new class, which exports a copy of ``x``."""
    inner = np.array(x)
    inner.__dlpack__(max_version=(1, 3))
    changed = bytes(byte ^ 1 for byte in inner.tobytes())
    other = np.frombuffer(changed, inner.dtype).reshape(inner.shape).copy()
    cls: type[Tabled] = type("Tabled", (Tabled,), {})
    put_table(cls, "inner")
    return cls(inner, other)


def retabled(x: Any) -> Any:
    """Replace the table of the class of ``x`` by one that exports something else."""
    if not isinstance(x, Tabled):
        # Its class is for all programs, and has no table.
        raise TypeError("there is no table to replace")
    put_table(type(x), "other")
    return x
