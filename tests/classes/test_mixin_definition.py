"""How a mixin class says what it exports: overridden, inherited, wrong."""

from __future__ import annotations

import types
from typing import Any

import dlx
import numpy as np
import pytest
from support.dlpack_abi import table_of
from support.dlx_producers import ByMethod, Stored

GRID = np.arange(6.0).reshape(2, 3)

either_mixin = pytest.mark.parametrize(
    "mixin", [dlx.ExchangeMixin, dlx.ArrayInterfaceMixin]
)


def exported(instance: Any) -> list[Any]:
    """Elements that both ways out give."""
    by_protocol = np.from_dlpack(instance).tolist()
    assert dlx.from_dlpack(instance).numpy().tolist() == by_protocol
    found: list[Any] = by_protocol
    return found


def lends(kind: Any) -> bool:
    """Whether the table of `kind` has a borrow entry."""
    return bool(table_of(kind).dltensor_from_py_object_no_sync)


def test_a_method_overrides_an_inherited_attribute() -> None:
    """R122: what it returns has no owner, so the borrow entry goes."""

    class Sliced(Stored):
        def __dlx_export__(self) -> Any:
            return self.data[:1]

    assert exported(Sliced(GRID)) == [[0, 1, 2]]
    assert (lends(Stored), lends(Sliced)) == (True, False)


def test_a_method_may_build_on_the_attribute_of_its_base() -> None:
    """`super().__dlx_export__()` is what the base exports."""

    class Sliced(Stored):
        def __dlx_export__(self) -> Any:
            inherited: Any = super().__dlx_export__()
            return inherited[1:]

    assert exported(Sliced(GRID)) == [[3, 4, 5]]


def test_an_attribute_overrides_an_inherited_method() -> None:
    """R122: the subclass can lend, its base still cannot."""

    class Other(ByMethod, exchange="other"):
        def __init__(self, data: Any) -> None:
            super().__init__(None)
            self.other = data

    assert exported(Other(GRID)) == GRID.tolist()
    assert (lends(ByMethod), lends(Other)) == (False, True)


def test_another_attribute_overrides_an_inherited_one() -> None:
    """The subclass exports its own."""

    class Both(Stored, exchange="other"):
        def __init__(self, data: Any) -> None:
            super().__init__(np.zeros(9))
            self.other = data

    assert exported(Both(GRID)) == GRID.tolist()


def test_a_property_may_take_the_place_of_the_stored_attribute() -> None:
    """R122: a computed value is not lent."""

    class Computed(Stored):
        @property
        def data(self) -> Any:
            return GRID * 2

        @data.setter
        def data(self, value: Any) -> None:
            pass

    assert exported(Computed(GRID)) == (GRID * 2).tolist()
    assert not lends(Computed)


def test_the_first_base_that_exports_decides() -> None:
    """As in the rest of Python: the order of resolution."""

    class First(ByMethod, Stored):
        pass

    class Second(Stored, ByMethod):
        pass

    assert (lends(First), lends(Second)) == (False, True)


def test_a_method_may_be_static() -> None:
    """It needs no instance."""

    class Shared(dlx.ExchangeMixin):
        def __init__(self, data: Any = None) -> None:
            pass

        @staticmethod
        def __dlx_export__() -> Any:
            return GRID

    assert exported(Shared()) == GRID.tolist()


def test_what_is_exported_may_be_another_mixin_class() -> None:
    """Objects may stand for one another."""
    assert exported(Stored(ByMethod(Stored(GRID)))) == GRID.tolist()


@pytest.mark.parametrize(
    "source",
    [
        GRID,
        dlx.from_dlpack(GRID),
        GRID.data,
        bytearray(b"\x01\x02"),
        Stored(GRID),
        type("Interface", (), {"__array_interface__": GRID.__array_interface__})(),
    ],
    ids=lambda source: type(source).__name__,
)
@pytest.mark.parametrize("kind", [Stored, ByMethod])
def test_anything_that_from_dlpack_takes_is_exported(kind: Any, source: Any) -> None:
    """By capsule, by dlx, and with its device."""
    expected = dlx.from_dlpack(source)
    instance = kind(source)
    assert np.array_equal(np.from_dlpack(instance), expected.numpy())
    assert dlx.from_dlpack(instance).data_ptr == expected.data_ptr
    assert instance.__dlpack_device__() == (1, 0)


@either_mixin
def test_a_class_that_says_nothing_fails_and_shows_both_spellings(mixin: Any) -> None:
    """Ready to be copied from the message."""
    with pytest.raises(TypeError) as caught:

        class Silent(mixin):  # type: ignore[misc]
            pass

    message = str(caught.value)
    assert f'class Silent(dlx.{mixin.__name__}, exchange="data")' in message
    assert "def __dlx_export__(self)" in message


@either_mixin
@pytest.mark.parametrize("exchange", [5, b"data", ["data"], property(), True, ()])
def test_exchange_is_the_name_of_an_attribute(mixin: Any, exchange: Any) -> None:
    """Nothing else is a class made of."""
    with pytest.raises(TypeError, match="exchange is the name of an attribute, not"):
        types.new_class("Wrong", (mixin,), {"exchange": exchange})


@either_mixin
@pytest.mark.parametrize("exchange", ["", "a.b", " x", "x ", "class", "1st", "a-b"])
def test_a_name_that_no_attribute_has_is_refused(mixin: Any, exchange: str) -> None:
    """At the class statement, and not at the first export."""
    with pytest.raises(ValueError, match="an identifier, not") as refused:
        types.new_class("Wrong", (mixin,), {"exchange": exchange})
    assert repr(exchange) in str(refused.value)


def test_a_private_name_is_the_one_of_the_class_body() -> None:
    """As Python mangles it there; subclasses inherit the attribute of their base."""

    class _Private(dlx.ExchangeMixin, exchange="__data"):
        def __init__(self, data: Any) -> None:
            self.__data = data

    class Further(_Private):
        pass

    for kind in _Private, Further:
        assert exported(kind(GRID)) == GRID.tolist()
        assert "_Private__data" in str(kind.__dlx_export__.__doc__)


@pytest.mark.parametrize(
    ("owner", "name", "attribute"),
    [
        ("A", "__data__", "__data__"),
        ("A", "_data", "_data"),
        ("A", "__", "__"),
        ("A", "___", "___"),
        ("A", "__a_", "_A__a_"),
        ("__A_", "__a", "_A___a"),
        ("__", "__a", "__a"),
        ("A", "\ufb01eld", "field"),
    ],
)
def test_a_name_is_mangled_as_python_does(
    owner: str, name: str, attribute: str
) -> None:
    """By its own compiler."""
    by_python: dict[str, Any] = {}
    exec(f"class {owner}:\n def f(self): self.{name} = 1", by_python)
    instance = by_python[owner]()
    instance.f()
    assert list(vars(instance)) == [attribute]
    kind: Any = type(owner, (dlx.ExchangeMixin,), {}, exchange=name)
    made = kind()
    setattr(made, attribute, GRID)
    assert exported(made) == GRID.tolist()


@either_mixin
def test_exchange_and_a_method_at_once_are_refused(mixin: Any) -> None:
    """One of them would be forgotten without a word."""
    with pytest.raises(TypeError, match="__dlx_export__"):
        type("Torn", (mixin,), {"__dlx_export__": lambda torn: GRID}, exchange="data")


@either_mixin
def test_an_unknown_class_keyword_is_refused(mixin: Any) -> None:
    """By `object`, where the chain ends."""
    with pytest.raises(TypeError, match="keyword"):
        type("Misspelt", (mixin,), {}, exchange="data", exhcange="data")


@either_mixin
def test_a_misspelt_exchange_is_named(mixin: Any) -> None:
    """The class says something, by another name."""
    with pytest.raises(TypeError, match=r"did you mean exchange= by exchang=\?"):
        type("Typo", (mixin,), {}, exchang="data")
    with pytest.raises(TypeError) as caught:
        type("Typo", (mixin,), {}, unit="km")  # which a base may take
    assert "did you mean" not in str(caught.value)


def test_a_class_that_could_not_be_defined_leaves_nothing_behind() -> None:
    """Another of the same name may follow."""
    for _ in range(3):
        with pytest.raises(TypeError):
            type("Again", (dlx.ExchangeMixin,), {})
    again: Any = type("Again", (Stored,), {})
    assert exported(again(GRID)) == GRID.tolist()


def test_the_mixin_itself_exports_nothing() -> None:
    """It is a base, and says so when it is taken for more."""
    with pytest.raises((AttributeError, TypeError), match="ExchangeMixin"):
        dlx.from_dlpack(dlx.ExchangeMixin())


def test_the_export_of_an_attribute_is_documented_and_named() -> None:
    """`help()` and tracebacks show it."""
    method: Any = Stored.__dlx_export__
    assert method.__qualname__ == "Stored.__dlx_export__"
    assert "data" in method.__doc__


def test_a_missing_attribute_is_an_attribute_error() -> None:
    """R60: raised by the read."""
    empty = Stored.__new__(Stored)
    for ask in (empty.__dlpack__, empty.__dlpack_device__):
        with pytest.raises(AttributeError, match="exchange='data' names an"):
            ask()


def test_an_instance_may_change_its_class() -> None:
    """What counts is the class at the time of the export."""
    instance: Any = Stored(GRID)
    instance.__class__ = ByMethod
    assert exported(instance) == GRID.tolist()
    instance.__class__ = type(
        "Doubled", (Stored,), {"__dlx_export__": lambda x: GRID * 2}
    )
    assert exported(instance) == (GRID * 2).tolist()


def test_a_class_may_get_the_mixin_as_a_base_later() -> None:
    """R117: nobody calls `__init_subclass__`, so it uses the table of its base."""

    class Plain:
        def __dlx_export__(self) -> Any:
            return GRID

    class Late(Plain):
        pass

    with pytest.raises(AttributeError):
        dlx.from_dlpack(Late())
    Late.__bases__ = (Plain, dlx.ExchangeMixin)
    assert np.array_equal(dlx.from_dlpack(Late()).numpy(), GRID)
    late: Any = Late()
    assert np.array_equal(np.from_dlpack(late), GRID)
