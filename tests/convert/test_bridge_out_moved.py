"""`dlx.bridge`: an `out` to which the function gives other memory, or another shape."""

from __future__ import annotations

import asyncio
import types
import warnings
from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pytest
from support.optional_libraries import requires

REFUSED = r"^out is written in place, where its owner looks, but the function "


def set_(out: Any) -> None:
    torch = requires("torch")
    out.set_(torch.full((3,), 7.0))


def data(out: Any) -> None:
    torch = requires("torch")
    out.data = torch.full((3,), 7.0)


def shrink(out: Any) -> None:
    out.resize_(2)


def transpose(out: Any) -> None:
    out.unsqueeze_(0)


def strides(out: Any) -> None:
    out.as_strided_((3,), (0,))


def other_dtype(out: Any) -> None:
    torch = requires("torch")
    out.data = out.view(torch.int32)


MOVES = [set_, data, shrink, transpose, strides, other_dtype]


@pytest.mark.parametrize("gives_back", [True, False], ids=["returned", "not"])
@pytest.mark.parametrize("move", MOVES)
def test_an_out_that_is_moved_in_torch_is_a_buffer_error(
    move: Callable[[Any], None], gives_back: bool
) -> None:
    """What the caller holds would be stale."""
    torch = requires("torch")

    @dlx.bridge(torch.Tensor)
    def fill(*, out: Any) -> Any:
        move(out)
        return out if gives_back else None

    with pytest.raises(BufferError, match=REFUSED) as refused:
        fill(out=np.zeros(3, "float32"))
    assert refused.value.__notes__ == [f"argument out of {fill.__qualname__}"]
    assert "\n" not in str(refused.value)


def test_the_error_tells_what_it_was_and_what_it_is() -> None:
    torch = requires("torch")

    @dlx.bridge(torch.Tensor)
    def fill(out: Any) -> None:
        out.set_(torch.zeros(2, 2, dtype=torch.float32))

    with pytest.raises(BufferError, match=r"float32 \(2, 2\) .*, not float32 \(3,\)"):
        fill(np.zeros(3, "float32"))


def test_the_advice_of_the_error_leads_to_the_result() -> None:
    """Either of the two."""
    torch = requires("torch")

    @dlx.bridge(torch.Tensor)
    def assigns(*, out: Any) -> Any:
        out[...] = torch.full((3,), 7.0)

    @dlx.bridge(torch.Tensor)
    def returns(like: Any) -> Any:
        return torch.full((3,), 7.0)

    out = np.zeros(3, "float32")
    assigns(out=out)
    assert out.tolist() == returns(out).tolist() == [7, 7, 7]


@pytest.mark.parametrize("gives_back", [True, False], ids=["returned", "not"])
def test_an_out_of_another_shape_in_numpy_is_a_buffer_error(gives_back: bool) -> None:
    @dlx.bridge(np.ndarray)
    def fill(out: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            out.shape = (3, 2)
        return out if gives_back else None

    with pytest.raises(BufferError, match=REFUSED + r"gave it float64 \(3, 2\)"):
        fill(dlx.from_dlpack(np.zeros((2, 3))))


def test_numpy_resizes_no_out_of_another_library() -> None:
    """Its memory is not NumPy's."""
    torch = requires("torch")

    @dlx.bridge(np.ndarray)
    def fill(out: Any) -> None:
        out.resize((4, 4), refcheck=False)

    with pytest.raises(ValueError, match="own its data"):
        fill(torch.zeros(2, 3))


def test_an_out_of_the_functions_own_kind_is_the_callers_and_may_be_moved() -> None:
    """The caller sees it."""
    torch = requires("torch")

    @dlx.bridge(torch.Tensor)
    def fill(out: Any) -> Any:
        out.set_(torch.full((2,), 7.0))
        return out

    out = torch.zeros(3)
    assert fill(out) is out
    assert out.tolist() == [7, 7]


def test_a_name_that_is_bound_again_gives_a_result_like_any_other() -> None:
    torch = requires("torch")

    @dlx.bridge(np.ndarray)
    def fill(out: Any) -> Any:
        out = np.full(3, 7.0)
        return out

    out = torch.zeros(3)
    result = fill(out)
    assert result is not out
    assert result.tolist() == [7] * 3
    assert out.tolist() == [0] * 3


def rebind(out: Any) -> None:
    out[0] = np.full(2, 7.0)


def rebind_inside(out: Any) -> None:
    out[1]["x"] = np.full(2, 7.0)


def append(out: Any) -> None:
    out.append(1)


def swap(out: Any) -> None:
    out[1]["y"] = out[1].pop("x")


@pytest.mark.parametrize("change", [rebind, rebind_inside, append, swap])
def test_what_is_put_into_a_container_of_outs_is_a_buffer_error(
    change: Callable[[Any], None],
) -> None:
    """The container is the function's own."""
    torch = requires("torch")

    @dlx.bridge(np.ndarray)
    def fill(out: Any) -> Any:
        change(out)
        return out

    given = [torch.zeros(2), {"x": torch.zeros(2)}]
    with pytest.raises(BufferError, match=REFUSED + "put something else into it"):
        fill(given)
    assert len(given) == 2


def test_a_container_that_is_the_callers_own_may_be_filled() -> None:
    torch = requires("torch")

    @dlx.bridge(np.ndarray)
    def fill(out: Any) -> Any:
        out["log"].append("filled")
        out["x"][:] = 7
        return out

    given: dict[str, Any] = {"x": torch.zeros(2), "log": []}
    assert fill(given) is given
    assert given["log"] == ["filled"]
    assert given["x"].tolist() == [7, 7]


def test_a_coroutine_that_moves_its_out_is_a_buffer_error() -> None:
    torch = requires("torch")

    @dlx.bridge(torch.Tensor)
    async def fill(*, out: Any) -> Any:
        out.set_(torch.full((3,), 7.0))
        return out

    with pytest.raises(BufferError, match=REFUSED):
        asyncio.run(fill(out=np.zeros(3, "float32")))


def test_what_the_function_raises_passes_through() -> None:
    torch = requires("torch")

    @dlx.bridge(torch.Tensor)
    def fill(*, out: Any) -> Any:
        out.set_(torch.full((3,), 7.0))
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fill(out=np.zeros(3, "float32"))


def test_an_object_that_exports_other_memory_each_time_is_no_out() -> None:
    """What is written there is seen by nobody."""

    class Computed(dlx.ExchangeMixin):
        def __dlx_export__(self) -> Any:
            kept.append(np.zeros(3))
            return kept[-1]

    kept: list[Any] = []

    @dlx.bridge(np.ndarray)
    def fill(*, out: Any) -> None:
        out[:] = 7

    with pytest.raises(dlx.CopyRefused, match="exports other memory each time"):
        fill(out=Computed())


def test_each_of_several_outs_is_written_in_place() -> None:
    """docs/bridge.md: `*out` is a parameter of that name."""

    @dlx.bridge(np.ndarray)
    def fill(x: Any, *out: Any) -> None:
        for each in out:
            each[:] = x

    first, second = dlx.empty(3, "float64"), dlx.empty(3, "float64")
    fill(np.ones(3), first, second)
    assert first.tolist() == second.tolist() == [1, 1, 1]
    sealed = dlx.from_dlpack(np.broadcast_to(np.float64(0), (1,)))
    for given in ((sealed,), (first, sealed)):
        with pytest.raises(BufferError, match="is read-only"):
            fill(np.ones(3), *given)


@pytest.mark.parametrize("size", [0, 1, 3])
def test_an_out_that_stays_where_it_is_is_given_back(size: int) -> None:
    torch = requires("torch")

    @dlx.bridge(torch.Tensor)
    def fill(*, out: Any) -> Any:
        return out.fill_(7)

    for out in np.zeros(size, "float32"), dlx.from_dlpack(np.zeros(size, "float32")):
        assert fill(out=out) is out
        assert np.from_dlpack(out).tolist() == [7] * size


# Classes that are hard to remember.


def test_classes_whose_metaclass_has_no_hash_are_bridged() -> None:
    class Meta(type):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(cls, other: object) -> bool:
            raise AssertionError

    class Own(dlx.ExchangeMixin, exchange="data", metaclass=Meta):
        def __init__(self, data: Any) -> None:
            self.data = data

    class Plain(metaclass=Meta):
        pass

    @dlx.bridge(np.ndarray)
    def same(a: Any, b: Any = None) -> Any:
        return a

    array, plain = np.arange(3.0), Plain()
    for _ in range(3):
        result = same(Own(array), plain)
        assert type(result) is Own
        assert result.data.data_ptr == array.ctypes.data
        assert same(plain) is plain
        assert same(array) is array


def test_classes_that_call_themselves_equal_are_told_apart() -> None:
    class Meta(type):
        def __eq__(cls, other: object) -> bool:
            return True

        def __hash__(cls) -> int:
            return hash(np.ndarray)

    def make(name: str) -> Any:
        def __init__(self: Any, data: Any) -> None:
            self.data = data

        body = {"__init__": __init__}
        keywords = {"metaclass": Meta, "exchange": "data"}
        return types.new_class(
            name,
            (dlx.ExchangeMixin,),
            keywords,
            lambda ns: ns.update(body),
        )

    @dlx.bridge(np.ndarray)
    def same(a: Any) -> Any:
        assert type(a) is np.ndarray
        return a

    array = np.arange(3.0)
    for _ in range(2):
        for kind in make("A"), make("B"):
            assert type(same(array)) is np.ndarray
            assert type(same(kind(array))) is kind


def test_more_classes_than_are_remembered_are_bridged() -> None:
    @dlx.bridge(dlx.Tensor)
    def same(a: Any) -> Any:
        assert isinstance(a, dlx.Tensor)
        return a

    kinds = [type(f"A{i}", (np.ndarray,), {}) for i in range(100)]
    for _ in range(2):
        for kind in kinds:
            result = same(np.arange(3.0).view(kind))
            assert type(result) is np.ndarray
            assert result.tolist() == [0, 1, 2]


def test_one_instance_does_not_tell_about_its_class() -> None:
    """What is an instance may be a matter of the instance: the next one is asked."""

    class Meta(type(np.ndarray)):  # type: ignore[misc]
        def __instancecheck__(cls, x: object) -> bool:
            return isinstance(x, np.ndarray) and x.size == 3

    class Three(np.ndarray, metaclass=Meta):
        pass

    @dlx.bridge(Three)
    def kind(a: Any) -> Any:
        return type(a)

    array = np.arange(3.0)
    assert kind(array) in (np.ndarray, Three)
    assert kind(np.arange(4.0)) is Three
