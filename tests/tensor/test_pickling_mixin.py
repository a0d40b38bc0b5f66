"""Pickles and copies of mixin classes."""

from __future__ import annotations

import copy
import pickle
import types
from typing import Any

import dlx
import numpy as np
import pytest
from support.pickled_classes import (
    Bare,
    Choosy,
    Data,
    Derived,
    FrozenUnit,
    Importing,
    Labelled,
    LabelledSlots,
    More,
    Needing,
    OwnCopy,
    Signal,
    Slotted,
    Unit,
)

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
ARRAY = np.arange(60.0).reshape(20, 3)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", [Bare, Derived, Slotted, Data])
def test_the_tensor_travels_and_the_class_makes_the_instance(
    kind: Any, protocol: int
) -> None:
    """dlx-share/README.md, Pickling: `pickle=True`, by `__dlx_import__`."""
    back = pickle.loads(pickle.dumps(kind(ARRAY), protocol))
    assert type(back) is kind
    assert type(back.data) is dlx.Tensor
    assert np.array_equal(np.from_dlpack(back), ARRAY)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", [Unit, FrozenUnit, Slotted])
def test_other_attributes_travel_with_the_tensor(kind: Any, protocol: int) -> None:
    """dlx-share/README.md, Pickling: `pickle=True` beside `exchange=`."""
    text = pickle.dumps(kind(ARRAY, "km"), protocol)
    alone = len(pickle.dumps(Bare(ARRAY), protocol))
    assert len(text) < alone + ARRAY.nbytes  # it is not there again
    back = pickle.loads(text)
    assert type(back) is kind
    assert (back.note if kind is Slotted else back.unit) == "km"
    assert np.array_equal(np.from_dlpack(back), ARRAY)


def test_the_memory_travels_out_of_band() -> None:
    """dlx-share/README.md, Pickling: as that of a `dlx.Tensor`."""
    buffers: list[pickle.PickleBuffer] = []
    text = pickle.dumps(Bare(ARRAY), 5, buffer_callback=buffers.append)
    back = pickle.loads(text, buffers=buffers)
    assert back.data.data_ptr == ARRAY.ctypes.data


def test_an_extension_type_as_base_is_no_obstacle() -> None:
    """dlx-share/README.md, Pickling: NumPy's own pickle of the base is not used."""
    back = pickle.loads(pickle.dumps(ARRAY.view(Signal), 5))
    assert type(back) is Signal
    assert np.array_equal(back, ARRAY)


@pytest.mark.parametrize("kind", [Labelled, LabelledSlots])
def test_a_class_with_more_state_keeps_the_pickles_of_python(kind: Any) -> None:
    """dlx-share/README.md, Pickling: by `__dict__` and slots, the tensor among them."""
    back = pickle.loads(pickle.dumps(kind(dlx.from_dlpack(ARRAY), "degrees")))
    assert (type(back), back.label) == (kind, "degrees")
    assert back.data.tolist() == ARRAY.tolist()


def test_a_subclass_with_more_state_says_what_it_pickles() -> None:
    """dlx-share/README.md, Pickling: by a `__reduce_ex__` of its own."""
    back = pickle.loads(pickle.dumps(More(ARRAY, "degrees")))
    assert (type(back), back.label) == (More, "degrees")


def test_what_the_class_raises_passes() -> None:
    """dlx-share/README.md, Pickling: the class knows why."""
    text = pickle.dumps(Choosy(ARRAY))
    with pytest.raises(LookupError, match="there is no place"):
        pickle.loads(text)


def test_what_cannot_be_exported_is_refused_when_it_is_pickled() -> None:
    """docs/classes.md, Errors: with the name of the class."""
    with pytest.raises(TypeError, match="Bare"):
        pickle.dumps(Bare(5))


@pytest.mark.parametrize("kind", [Bare, Slotted])
def test_a_shallow_copy_has_the_same_attributes(kind: Any) -> None:
    """dlx-share/README.md, Pickling: copies are those of any class."""
    x = kind(ARRAY)
    x.note = "changed"
    other = copy.copy(x)
    assert type(other) is kind
    assert other is not x
    assert (other.data is ARRAY, other.note) == (True, "changed")


@pytest.mark.parametrize("kind", [Bare, Slotted])
def test_a_deep_copy_has_copies_of_the_attributes(kind: Any) -> None:
    """dlx-share/README.md, Pickling: copies are those of any class."""
    x = kind(ARRAY)
    x.note = ["changed"]
    other, same, note = copy.deepcopy([x, x, x.note])
    assert other is same
    assert other.note is note
    assert type(other.data) is np.ndarray
    assert other.data is not ARRAY


def test_a_copy_that_the_class_defines_counts() -> None:
    """dlx-share/README.md, Pickling: `pickle=True` replaces no method."""
    copied: object = copy.copy(OwnCopy(ARRAY))
    assert copied == "its own"
    assert np.array_equal(copy.copy(ARRAY.view(Signal)), ARRAY)


def test_a_class_that_does_not_ask_is_left_alone() -> None:
    """dlx-share/README.md, Pickling: `pickle=True` is the only way in."""
    assert "__reduce_ex__" not in vars(Labelled)
    assert Labelled.__reduce_ex__ is object.__reduce_ex__


@pytest.mark.parametrize(
    "name", ["__reduce__", "__reduce_ex__", "__getstate__", "__setstate__"]
)
def test_hooks_that_would_be_ignored_are_refused(name: str) -> None:
    """dlx-share/README.md, Pickling: state is not lost without a word."""
    hook: dict[str, Any] = {name: lambda self, *arguments: None}
    with pytest.raises(TypeError, match=name):
        types.new_class(
            "Own",
            (dlx.ExchangeMixin,),
            {"exchange": "data", "pickle": True},
            lambda body: body.update(hook),
        )


@pytest.mark.parametrize(
    "name", ["__reduce__", "__reduce_ex__", "__getstate__", "__setstate__"]
)
def test_hooks_of_a_base_that_would_be_ignored_are_refused(name: str) -> None:
    """dlx-share/README.md, Pickling: state is not lost without a word."""
    base = type("Base", (), {name: lambda self, *arguments: None})
    with pytest.raises(TypeError, match=f"Own has {name} of Base, which pickle=True"):
        types.new_class(
            "Own",
            (base, dlx.ExchangeMixin),
            {"exchange": "data", "pickle": True},
        )


def test_what_no_tensor_alone_makes_is_not_pickled() -> None:
    """dlx-share/README.md, Pickling: nobody could read it."""
    with pytest.raises(TypeError, match=r"needs more than a tensor.*__dlx_import__"):
        pickle.dumps(Needing(ARRAY, "km"))
    assert copy.copy(Needing(ARRAY, "km")).unit == "km"
    made = pickle.loads(pickle.dumps(Importing(ARRAY, "km")))
    assert (type(made), made.unit) == (Importing, "km")


def test_a_subclass_defines_how_it_is_pickled() -> None:
    """dlx-share/README.md, Pickling: by `__reduce_ex__` alone."""

    class Base(dlx.ExchangeMixin, exchange="data", pickle=True):
        data: object = None

    class Own(Base):
        def __reduce_ex__(self, protocol: Any) -> Any:
            return (str, ("own",))

    assert pickle.loads(pickle.dumps(Own())) == "own"
    with pytest.raises(TypeError, match="__getstate__"):
        types.new_class(
            "Other", (Base,), {}, lambda body: body.update(__getstate__=object)
        )


def test_attributes_beside_an_export_are_not_left_out() -> None:
    """dlx-share/README.md, Pickling: which one has the memory is not known."""

    class Exporting(dlx.ExchangeMixin, pickle=True):
        def __init__(self, data: Any, unit: str = "") -> None:
            self.data = data
            if unit:
                self.unit = unit

        def __dlx_export__(self) -> Any:
            return self.data

    assert Exporting(ARRAY).__reduce_ex__(4)
    with pytest.raises(TypeError, match="has 'unit' beside what it exports"):
        pickle.dumps(Exporting(ARRAY, "km"))
    assert copy.copy(Exporting(ARRAY, "km")).unit == "km"

    class Own(Exporting):
        def __reduce_ex__(self, protocol: Any) -> Any:
            return str, ("own",)

    assert pickle.loads(pickle.dumps(Own(ARRAY, "km"))) == "own"


@pytest.mark.parametrize("kind", [Bare, Unit])
def test_a_second_name_of_what_is_exported_is_kept(kind: Any) -> None:
    """dlx-share/README.md, Pickling: it names what is exported at the other end."""
    x = kind(ARRAY)
    x.alias = ARRAY
    made = pickle.loads(pickle.dumps(x))
    assert made.alias is made.__dlx_export__()
    assert np.array_equal(np.from_dlpack(made), ARRAY)
