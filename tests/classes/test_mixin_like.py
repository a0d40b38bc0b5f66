"""`__dlx_like__`: an instance like this one, over other memory."""

from __future__ import annotations

import asyncio
from typing import Any

import dlx
import numpy as np
import pytest
from support.dlx_producers import Stored
from support.optional_libraries import requires

GRID = np.arange(6.0).reshape(2, 3)


class Length(dlx.ExchangeMixin, exchange="data"):
    """An array with a unit, which the default constructor does not know."""

    def __init__(self, data: Any, unit: str = "m") -> None:
        """Keep both."""
        self.data, self.unit = data, unit

    def __dlx_like__(self, tensor: Any) -> Any:
        """Keep the unit."""
        return type(self)(tensor, self.unit)


class Width(Length):
    """A subclass, which inherits the hook."""


def unit_of(made: Any, kind: type[Length] = Length) -> Any:
    """The unit of an instance of exactly this class."""
    assert type(made) is kind
    return made.unit


@dlx.bridge(np.ndarray)
def twice(a: Any) -> Any:
    """A function of NumPy."""
    assert type(a) is np.ndarray
    return a * 2


# bridge


def test_what_a_bridge_gives_back_is_like_the_argument() -> None:
    """docs/bridge.md, Results."""
    for unit in ("km", "cm", "mm"):  # when the class is new, and when it is known
        made = twice(Length(GRID, unit))
        assert unit_of(made) == unit
        assert dlx.from_dlpack(made).numpy().tolist() == (GRID * 2).tolist()


def test_a_class_that_needs_a_unit_is_told_of_both_hooks() -> None:
    """docs/classes.md: `__dlx_like__` is the one that knows an instance."""

    class Mass(dlx.ExchangeMixin, exchange="data"):
        def __init__(self, data: Any, unit: str) -> None:
            self.data, self.unit = data, unit

    class Kept(Mass):
        def __dlx_like__(self, tensor: Any) -> Any:
            return type(self)(tensor, self.unit)

    with pytest.raises(TypeError, match=r"or def __dlx_like__\(self, tensor\)"):
        twice(Mass(GRID, "kg"))
    assert twice(Kept(GRID, "kg")).unit == "kg"


def test_of_several_arguments_of_the_class_the_first_one_counts() -> None:
    """docs/bridge.md, Results: positional arguments first, then keywords, in order."""

    @dlx.bridge(np.ndarray)
    def take(*args: Any, **kwargs: Any) -> Any:
        return GRID

    one, other = Length(GRID, "km"), Length(GRID, "mm")
    for _ in range(2):
        assert unit_of(take(one, other)) == "km"
        assert unit_of(take(1, other, one)) == "mm"
        assert unit_of(take(a=other, b=one)) == "mm"
        assert unit_of(take(other, b=one)) == "mm"
        assert unit_of(take([1, {"a": other}], [one])) == "mm"


def test_an_argument_of_another_class_is_no_model() -> None:
    """docs/bridge.md, Results: the class is that of the first tensor."""

    @dlx.bridge(np.ndarray)
    def take(*args: Any) -> Any:
        return GRID

    width, length = Width(GRID, "mm"), Length(GRID, "km")
    for _ in range(2):
        assert unit_of(take(width, length), Width) == "mm"
        assert unit_of(take(length, width)) == "km"
        assert type(take(dlx.from_dlpack(GRID), length)) is dlx.Tensor


def test_a_named_result_is_like_the_first_argument_of_that_class() -> None:
    """docs/bridge.md, Results: also if another tensor comes first."""

    @dlx.bridge(np.ndarray, result=Length)
    def take(*args: Any) -> Any:
        return GRID

    tensor = dlx.from_dlpack(GRID)
    for _ in range(2):
        assert unit_of(take(tensor, Length(GRID, "km"), Length(GRID, "mm"))) == "km"
        assert unit_of(take(tensor, [Length(GRID, "km")])) == "km"
        assert unit_of(take(tensor)) == "m"


def test_every_tensor_in_a_result_is_like_the_argument() -> None:
    """docs/bridge.md, Results."""

    @dlx.bridge(np.ndarray)
    def both(a: Any) -> Any:
        return {"low": a.min(keepdims=True), "high": [a.max(keepdims=True)]}

    made = both(Length(GRID, "km"))
    assert unit_of(made["low"]) == unit_of(made["high"][0]) == "km"


def test_an_instance_that_the_function_returns_stays_as_it_is() -> None:
    """docs/bridge.md, Results: the function has chosen its unit."""

    @dlx.bridge(np.ndarray)
    def area(a: Any) -> Any:
        return Length(a * a, "km2")

    assert unit_of(area(Length(GRID, "km"))) == "km2"


def test_a_coroutine_gives_back_what_is_like_its_argument() -> None:
    """docs/bridge.md, Results."""

    @dlx.bridge(np.ndarray)
    async def same(a: Any) -> Any:
        return a

    assert unit_of(asyncio.run(same(Length(GRID, "km")))) == "km"


def test_beside_an_out_results_are_like_the_argument() -> None:
    """docs/bridge.md, Results."""

    @dlx.bridge(np.ndarray)
    def both(a: Any, out: Any) -> Any:
        out[...] = a
        return out, a + 1

    out = Length(GRID.copy(), "mm")
    written, made = both(Length(GRID, "km"), out=out)
    assert written is out
    assert unit_of(made) == "km"


# convert


@pytest.mark.parametrize("make", [np.asarray, dlx.from_dlpack, Stored])
def test_an_instance_is_a_target(make: Any) -> None:
    """docs/classes.md, Hooks."""
    made = dlx.convert(make(GRID), Length(np.ones(1), "km"))
    assert unit_of(made) == "km"
    assert dlx.from_dlpack(made).data_ptr == GRID.ctypes.data


def test_an_instance_of_another_library_stands_for_its_type() -> None:
    """docs/classes.md, Hooks."""
    torch = requires("torch")
    made = dlx.convert(GRID, torch.ones(1))
    assert type(made) is torch.Tensor
    assert made.data_ptr() == GRID.ctypes.data
    assert type(dlx.convert(made, np.ones(1))) is np.ndarray
    assert type(dlx.convert(made, dlx.from_dlpack(GRID))) is dlx.Tensor
    row = requires("jax.numpy").ones(1, "f4")
    assert type(dlx.convert(made.float(), row)) is type(row)


def test_what_has_the_type_of_the_target_is_returned_as_it_is() -> None:
    """docs/classes.md, Hooks: its own unit is right, that of the other is not."""
    here = Length(GRID, "km")
    assert dlx.convert(here, Length(GRID, "mm")) is here


@pytest.mark.parametrize("target", [Length, Length(GRID, "mm"), Width(GRID, "mm")])
def test_a_copy_of_an_instance_is_like_itself(target: Any) -> None:
    """docs/classes.md, Hooks."""
    here = Width(GRID, "km")
    made = dlx.convert(here, target, copy=True)
    assert unit_of(made, Width) == "km"
    assert dlx.from_dlpack(made).data_ptr != GRID.ctypes.data


def test_a_base_class_is_made_like_the_instance_of_the_base() -> None:
    """docs/classes.md, Hooks: an instance of the base is none of the subclass."""
    assert unit_of(dlx.convert(Length(GRID, "km"), Width(GRID, "mm")), Width) == "mm"


def test_a_class_as_target_makes_instances_of_its_own() -> None:
    """docs/classes.md, Hooks: without an instance there is nothing to be like."""
    assert unit_of(dlx.convert(GRID, Length)) == "m"


def test_containers_are_converted_like_an_instance() -> None:
    """docs/classes.md, Hooks."""
    [made] = dlx.convert_tree([GRID], Length(GRID, "km"))
    assert unit_of(made) == "km"


# empty


def test_memory_is_like_the_instance() -> None:
    """docs/classes.md, Hooks."""
    made = dlx.empty((2, 3), "float32", like=Length(GRID, "km"))
    assert unit_of(made) == "km"
    assert (made.data.shape, made.data.dtype) == ((2, 3), "float32")
    assert unit_of(dlx.empty(2, "float32", like=Length)) == "m"


# The hook


def test_the_default_is_the_import_of_the_class() -> None:
    """docs/classes.md, Hooks."""

    class Labelled(dlx.ExchangeMixin, exchange="data"):
        def __init__(self, data: Any, labels: list[str]) -> None:
            self.data, self.labels = data, labels

        @classmethod
        def __dlx_import__(cls, tensor: Any) -> Any:
            return cls(tensor, ["none"])

    here = Labelled(GRID, ["rows", "columns"])
    for made in (
        twice(here),
        dlx.convert(GRID, here),
        dlx.convert(here, Labelled, copy=True),
        dlx.empty(3, "int8", like=here),
    ):
        assert made.labels == ["none"]


def test_a_hook_that_gives_something_else_is_a_type_error() -> None:
    """docs/classes.md, Errors."""

    class Wrong(Stored):
        def __dlx_like__(self, tensor: Any) -> Any:
            return tensor

    with pytest.raises(TypeError, match=r"Wrong\.__dlx_like__ returned .*dlx\.Tensor"):
        dlx.convert(GRID, Wrong(GRID))


def test_an_exception_of_the_hook_passes_through() -> None:
    """docs/classes.md, Errors."""

    class Failing(Stored):
        def __dlx_like__(self, tensor: Any) -> Any:
            raise KeyError("unit")

    with pytest.raises(KeyError, match="unit"):
        dlx.convert(GRID, Failing(GRID))
    with pytest.raises(KeyError, match="unit"):
        twice(Failing(GRID))


def test_a_hook_that_asks_for_itself_ends() -> None:
    """docs/classes.md, Errors."""

    class Endless(Stored):
        def __dlx_like__(self, tensor: Any) -> Any:
            return dlx.convert(tensor, self)

    with pytest.raises(RecursionError):
        dlx.convert(GRID, Endless(GRID))


def test_a_hook_that_a_class_gets_later_is_called() -> None:
    """docs/bridge.md: a class may change after its first tensor was bridged."""

    class Late(dlx.ExchangeMixin, exchange="data"):
        def __init__(self, data: Any, unit: str = "m") -> None:
            self.data, self.unit = data, unit

    @dlx.bridge(np.ndarray)
    def double(a: Any, *rest: Any) -> Any:
        return a * 2

    x = Late(np.ones(2), "km")
    assert double(x).unit == "m"
    setattr(  # noqa: B010
        Late, "__dlx_like__", lambda self, tensor: Late(tensor, self.unit)
    )
    assert double(x).unit == "km"
    assert double(x, [1.0]).unit == "km"
    del Late.__dlx_like__
    assert double(x).unit == "m"


class Foot(Length):
    """A subclass, whose instances are of the class, too."""


@pytest.mark.parametrize("own", [Length, Foot])
@pytest.mark.parametrize("to", [Length, Length(GRID, "km")], ids=["class", "instance"])
@pytest.mark.parametrize(
    "options",
    [
        {"copy": True},
        {"dtype": "float32"},
        {"dtype": {"float64": "float32"}},
        {"detach": True},
        {"detach": True, "dtype": "float32"},
    ],
    ids=str,
)
def test_an_instance_of_the_target_keeps_its_unit(
    own: Any, to: Any, options: Any
) -> None:
    """docs/classes.md: it is its own model, whatever has to be done with it."""
    torch = requires("torch")
    data = torch.ones(3, requires_grad="detach" in options, dtype=torch.float64)
    made = dlx.convert(own(data, "ft"), to, **options)
    assert (type(made), made.unit) == (own, "ft")
    assert dlx.from_dlpack(made).tolist() == [1, 1, 1]


def test_a_class_with_a_hook_for_instances_is_told_to_pass_one() -> None:
    """The advice works, and names no hook that is there."""

    class Unit(dlx.ExchangeMixin, exchange="data"):
        def __init__(self, data: Any, unit: str) -> None:
            self.data, self.unit = data, unit

        def __dlx_like__(self, tensor: dlx.Tensor) -> Unit:
            return Unit(tensor, self.unit)

    x = np.ones(3)
    with pytest.raises(TypeError, match=r"or pass an instance, by whose __dlx_like__"):
        dlx.convert(x, Unit)
    assert dlx.convert(x, Unit(x, "km")).unit == "km"
