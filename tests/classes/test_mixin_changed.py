"""Mixin classes that change after their definition: where an export comes from."""

from __future__ import annotations

from ctypes import byref
from typing import Any

import dlx
import numpy as np
import pytest
from support.dlpack_abi import DLTensor, from_table, table_of


def stored() -> Any:
    """Make a class whose attribute is stored when it is defined."""

    class Holder(dlx.ExchangeMixin, exchange="data"):
        def __init__(self, data: Any) -> None:
            self.data = data

    return Holder


def borrowed(instance: Any) -> list[float]:
    """Read what the table of the class lends."""
    out = DLTensor()
    entry = table_of(type(instance)).dltensor_from_py_object_no_sync
    assert entry(instance, byref(out)) == 0
    view = dlx.from_pointer(out.data, out.shape[: out.ndim], "float64")
    values: list[float] = view.numpy().tolist()
    return values


def numbers(instance: Any) -> list[float]:
    """Import an instance."""
    values: list[float] = dlx.from_dlpack(instance).numpy().tolist()
    return values


def test_a_property_that_is_set_later_is_read_and_lends_nothing_new() -> None:
    """R129: nobody but the call holds what it makes."""
    cls = stored()
    holder = cls(np.arange(3.0))
    assert borrowed(holder) == numbers(holder) == [0, 1, 2]
    cls.data = property(lambda self: np.full(2, 7.0))
    assert numbers(holder) == [7, 7]
    with pytest.raises(BufferError, match="lends no view"):
        borrowed(holder)


def test_a_property_that_is_set_later_lends_what_somebody_holds() -> None:
    """R129: what is lent lives at least until Python code runs again."""
    cls, kept = stored(), np.full(2, 7.0)
    holder = cls(np.arange(3.0))
    cls.data = property(lambda self: kept)
    assert borrowed(holder) == numbers(holder) == [7, 7]


@pytest.mark.parametrize("name", ["__getattribute__", "__getattr__"])
def test_attributes_that_are_made_up_later_are_read(name: str) -> None:
    """R129: by `__getattribute__` or `__getattr__`; they are not lent."""
    cls = stored()
    holder = cls(np.arange(3.0))

    def make(self: Any, name: str) -> Any:
        if name == "data":
            return np.full(2, 7.0)
        return object.__getattribute__(self, name)

    setattr(cls, name, make)
    if name == "__getattr__":
        del holder.data
    assert numbers(holder) == [7, 7]
    with pytest.raises(BufferError, match="lends no view"):
        borrowed(holder)


def test_a_base_may_get_the_property() -> None:
    """R129: which is read for subclasses, and not lent."""
    cls = stored()
    derived: Any = type("Derived", (cls,), {})
    holder = derived(np.arange(3.0))
    cls.data = property(lambda self: np.full(2, 7.0))
    assert numbers(holder) == [7, 7]
    with pytest.raises(BufferError, match="lends no view"):
        borrowed(holder)


def test_a_slot_may_be_replaced() -> None:
    """R129: by a property, which is read, and not lent."""

    class Slotted(dlx.ExchangeMixin, exchange="data"):
        __slots__ = ("data",)

    holder: Any = Slotted()
    holder.data = np.arange(3.0)
    assert borrowed(holder) == [0, 1, 2]
    changed: Any = Slotted
    changed.data = property(lambda self: np.full(2, 7.0))
    assert numbers(holder) == [7, 7]
    with pytest.raises(BufferError, match="lends no view"):
        borrowed(holder)


def test_a_property_that_exports_its_own_object_ends_with_an_error() -> None:
    """S2: code of the class runs where none was expected."""
    cls = stored()
    holder = cls(np.arange(3.0))
    cls.data = property(lambda self: dlx.from_dlpack(self))
    with pytest.raises(RecursionError):
        numbers(holder)
    with pytest.raises(RecursionError):
        from_table(table_of(cls), holder)


@pytest.mark.parametrize("name", ["max_version", "copy", "dl_device", "stream"])
def test_names_of_keywords_need_not_be_interned(name: str) -> None:
    """R20: a name is known by what it says."""
    tensor = dlx.from_dlpack(np.arange(3.0))
    value = (1, 3) if name == "max_version" else None
    other = "".join(list(name))
    assert other is not name
    same: dict[str, Any] = {name: value}
    expected = repr(tensor.__dlpack__(**same)).split(" at ")[0]
    keywords: dict[str, Any] = {other: value}
    assert repr(tensor.__dlpack__(**keywords)).split(" at ")[0] == expected
    keywords |= {"max_" + "".join(["version"]): (1, 3)}
    assert '"dltensor_versioned"' in repr(tensor.__dlpack__(**keywords))


def test_a_name_that_is_not_known_is_refused_however_it_came() -> None:
    """R20: a misspelt keyword, and one that is not interned."""
    tensor = dlx.from_dlpack(np.arange(3.0))
    keywords: dict[str, Any] = {"".join(["max", "_versio"]): None}
    with pytest.raises(TypeError, match="max_versio"):
        tensor.__dlpack__(**keywords)
