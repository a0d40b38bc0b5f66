"""Mixin classes whose definition did not reach dlx: a base does not call `super()`.

docs/classes.md, Subclasses and other bases.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import dlx
import numpy as np
import pytest
from support.dlpack_abi import table_of
from support.dlx_producers import ByMethod, Stored
from support.optional_libraries import requires

GRID, OTHER = np.arange(6.0).reshape(2, 3), np.ones(2)
T = TypeVar("T")


class Silent(Stored):
    """A base that keeps its subclasses to itself."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Forget the keywords."""


class Forgetful:
    """A base beside the mixin that does so."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Forget the keywords."""


def unregistered() -> Any:
    """Make a class that says what it exports, but not to dlx."""

    class Sub(Silent, exchange="other"):
        def __init__(self, data: Any) -> None:
            super().__init__(data)
            self.other = OTHER

    return Sub


EXPORTS: dict[str, Callable[[Any], Any]] = {
    "from_dlpack": dlx.from_dlpack,
    "numpy": np.from_dlpack,
    "convert": lambda x: dlx.convert(x, np.ndarray),
    "torch": lambda x: requires("torch").from_dlpack(x),
    "borrow": lambda x: dlx.borrow(x).__enter__()[0],
    "device": lambda x: x.__dlpack_device__(),
    "tvm-ffi": lambda x: requires("tvm_ffi").get_global_func("testing.echo")(x),
}


@pytest.mark.parametrize("export", EXPORTS.values(), ids=EXPORTS)
def test_the_first_export_warns_once_and_says_what_to_add(export: Any) -> None:
    """Whoever asks for it."""
    kind = unregistered()
    add = r"add super\(\).__init_subclass__\(\*\*keywords\) to Silent.__init_subclass__"
    with pytest.warns(RuntimeWarning, match=f"Sub did not reach dlx.*{add}") as warned:
        export(kind(GRID))
    assert len(warned) == 1
    export(kind(GRID))  # a warning would be an error
    dlx.from_dlpack(kind(GRID))


def test_it_exports_what_its_base_does() -> None:
    """The keyword is lost; that is what the warning says."""
    made = unregistered()(GRID)
    with pytest.warns(RuntimeWarning, match="exchange= has no effect"):
        assert dlx.from_dlpack(made).numpy().tolist() == GRID.tolist()
    assert table_of(type(made)) is not None
    assert np.from_dlpack(made).tolist() == GRID.tolist()


def test_a_method_of_the_class_counts_although_dlx_was_not_told() -> None:
    """The export needs no table of the class."""

    class Doubled(Silent):
        def __dlx_export__(self) -> Any:
            return self.data * 2

    with pytest.warns(RuntimeWarning, match="Doubled did not reach dlx"):
        assert dlx.from_dlpack(Doubled(GRID)).numpy().tolist() == (GRID * 2).tolist()


def test_the_added_call_is_all_that_it_takes() -> None:
    """Then the class exports what its keyword says, without a warning."""

    class Registered(Stored):
        def __init_subclass__(cls, **keywords: Any) -> None:
            super().__init_subclass__(**keywords)

    class Sub(Registered, exchange="other"):
        other = OTHER

    assert dlx.from_dlpack(Sub(GRID)).numpy().tolist() == OTHER.tolist()


def test_each_class_warns_for_itself() -> None:
    """Also a subclass of one that has warned."""
    first = unregistered()

    class Further(first):  # type: ignore[misc, valid-type]
        pass

    for kind in first, Further:
        with pytest.warns(RuntimeWarning, match=f"{kind.__name__} did not reach"):
            dlx.from_dlpack(kind(GRID))


def test_a_base_beside_the_mixin_may_be_the_reason() -> None:
    """It is named; dlx's own base and typing's, which pass the call on, are not."""

    class Sub(
        Generic[T], Forgetful, dlx.ArrayInterfaceMixin, ByMethod, exchange="other"
    ):
        pass

    made: Any = Sub(GRID)
    with pytest.warns(RuntimeWarning, match=r"to Forgetful\.__init_subclass__$"):
        assert np.asarray(made).tolist() == GRID.tolist()


def test_without_anything_to_export_each_export_says_so() -> None:
    """There is no base to export in its place."""

    class Sub(Forgetful, dlx.ExchangeMixin, exchange="data"):
        data = GRID

    made: Any = Sub()
    for export in (dlx.from_dlpack, np.from_dlpack, dlx.from_dlpack):
        with pytest.raises(TypeError, match=r"add super\(\).* to Forgetful"):
            export(made)


def test_a_warning_that_is_an_error_is_raised_each_time() -> None:
    """Nothing is exported before it."""
    made = unregistered()(GRID)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(RuntimeWarning, match="did not reach dlx"):
                dlx.from_dlpack(made)


def test_the_results_of_a_bridge_are_of_the_class() -> None:
    """As if it shared the table of its base."""

    @dlx.bridge(np.ndarray)
    def same(a: Any) -> Any:
        return a

    kind = unregistered()
    with pytest.warns(RuntimeWarning, match="did not reach dlx"):
        assert type(same(kind(GRID))) is kind
