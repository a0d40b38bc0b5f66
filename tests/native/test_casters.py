"""`dlx::view` as an argument of functions that nanobind and pybind11 bind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.extensions import casts
from support.fake_producers import Producer
from support.optional_libraries import requires

pytestmark = pytest.mark.slow


@pytest.fixture(params=["nanobind", "pybind11"])
def module(request: pytest.FixtureRequest) -> Any:
    """Give `casts.cpp`."""
    return casts(requires(request.param))


def test_a_tensor_of_any_library_is_an_argument(module: Any) -> None:
    """By its table or `__dlpack__`, whatever the strides."""
    torch, jax = requires("torch"), requires("jax")
    assert module.total(np.ones((4, 6), "f4")[::2, ::3]) == 4
    assert module.total(torch.ones(3, 2).t()) == 6
    assert module.total(jax.numpy.ones((2, 2))) == 4


def test_elements_are_written_where_they_are(module: Any) -> None:
    """Also where the GIL is released for the call."""
    x = np.zeros(4, "f4")
    assert module.fill(x[::2], 2.5) == "floats"
    assert x.tolist() == [2.5, 0, 2.5, 0]


def test_an_overload_is_chosen_by_dtype(module: Any) -> None:
    """Elements are not converted."""
    x = np.zeros(2, "i8")
    assert module.fill(x, 3) == "integers"
    assert x.tolist() == [3, 3]
    with pytest.raises(TypeError, match="incompatible function arguments"):
        module.fill(np.zeros(2, "f8"), 1)


def test_an_overload_is_chosen_by_rank_and_type_of_device(module: Any) -> None:
    """Memory that is managed, or pinned, is of both types."""
    assert module.where(np.zeros(1, "f4")) == "cpu"
    devices = {(2, 1): "cuda", (13, 0): "cuda", (3, 0): "cpu"}
    for device, name in devices.items():
        assert module.where(Producer(shape=(3,), device=device)) == name
    with pytest.raises(TypeError, match="incompatible function arguments"):
        module.where(Producer(shape=(3,), device=(10, 0)))
    assert module.where(np.zeros((1, 1), "f4")) == "anywhere"


@pytest.mark.parametrize("x", [None, 1, [1.0], np.zeros(3, "f4"), np.zeros((1, 1))])
def test_what_no_overload_takes_is_a_type_error(module: Any, x: Any) -> None:
    """The message names what each one takes."""
    with pytest.raises(TypeError, match=r"dict\(dtype='float32', ndim=2\)"):
        module.total(x)


def test_what_may_not_be_written_is_refused_by_its_reason(module: Any) -> None:
    """Another overload would not take it either."""
    x = np.zeros(3, "f4")
    x.setflags(write=False)
    for frozen in (x, x[::2], np.broadcast_to(x[:1], 3)):
        with pytest.raises(BufferError, match=r"^it is read-only, and is written to$"):
            module.fill(frozen, 1)
    assert x.tolist() == [0, 0, 0]


def test_what_a_kernel_would_read_wrongly_is_refused_by_its_reason(module: Any) -> None:
    """Of a layout, and of what `__dlpack__` raises."""
    torch = requires("torch")
    with pytest.raises(BufferError, match=r"^it is not row-major"):
        module.rows(np.zeros((2, 2), bool).T)
    with pytest.raises(BufferError, match=r"pass x\.resolve_neg\(\)"):
        module.total(torch.ones(2, 2, dtype=torch.complex64).conj().imag)
    with pytest.raises(BufferError, match="layout"):
        module.total(torch.ones(2, 2).to_sparse())


def test_a_type_error_of_the_producer_stays(module: Any) -> None:
    """No other overload would get an answer."""

    class Broken:
        def __dlpack__(self, **_: Any) -> Any:
            return len(3)  # type: ignore[arg-type]

    for take in (module.total, lambda x: module.fill(x, 1)):
        with pytest.raises(TypeError, match="has no len"):
            take(Broken())


def test_what_was_taken_is_deleted_once(module: Any) -> None:
    """Whether the function ran, another argument failed, or this one did."""
    taken = [Producer() for _ in range(5)]
    module.take(*taken[:3])
    with pytest.raises(TypeError, match="incompatible"):
        module.take(taken[3], taken[4], 1)
    with pytest.raises(BufferError, match="flags"):
        module.take(taken[3], taken[4], Producer(flags=8))
    for producer in taken:
        assert producer.deleted == len(producer.exports) > 0


def test_a_view_that_a_function_makes_raises_the_same(module: Any) -> None:
    """What the binding cannot know as an argument, such as where a result goes."""
    assert module.size(np.ones(3, "f4")) == 3
    with pytest.raises(TypeError, match=r"^x: dtype is float64, expected is float32$"):
        module.size(np.ones(3))
    with pytest.raises(TypeError, match=r"^x: it is of <class 'list'>, expected is a"):
        module.size([1.0])


def test_signatures_are_python(module: Any) -> None:
    """So a stub can be made of them."""
    text = f"{module.fill.__doc__}"
    hints = [part.split(", writable")[0] for part in text.split("typing.Any, ")[1:]]
    assert hints == ["dict(dtype='float32', ndim=1", "dict(dtype='int64', ndim=1"]
    assert "dict(dtype='bool')" in module.rows.__doc__
