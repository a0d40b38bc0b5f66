"""`dlx.bridge`: what is written in place."""

from __future__ import annotations

import asyncio
from typing import Any

import dlx
import numpy as np
import pytest
from support.optional_libraries import requires

X = np.arange(6, dtype="float32").reshape(2, 3)


@dlx.bridge(np.ndarray)
def double(a: Any, *, out: Any = None) -> Any:
    assert type(a) is np.ndarray
    return np.multiply(a, 2, out=out)


def test_out_is_written_in_place_and_given_back_itself() -> None:
    torch = requires("torch")
    x = torch.from_numpy(X)
    for _ in range(2):
        out = torch.zeros(2, 3)
        assert double(x, out=out) is out
        assert out.tolist() == (X * 2).tolist()


def test_out_none_is_no_out() -> None:
    result = double(dlx.from_dlpack(X), out=None)
    assert type(result) is dlx.Tensor


def test_out_may_be_the_argument_itself() -> None:
    torch = requires("torch")
    x = torch.from_numpy(X.copy())
    assert double(x, out=x) is x
    assert x.tolist() == (X * 2).tolist()


@pytest.mark.parametrize("result", [None, dlx.Tensor])
def test_out_of_another_kind_than_the_arguments_is_given_back_itself(
    result: Any,
) -> None:
    """It is the caller's own, whatever kind results have."""
    bridged = dlx.bridge(np.ndarray, result=result)(double.__wrapped__)
    torch = requires("torch")
    for out in torch.zeros(2, 3), np.zeros((2, 3), "float32"):
        assert bridged(dlx.from_dlpack(X), out=out) is out
        assert out.tolist() == (X * 2).tolist()


def test_a_view_of_out_is_converted_as_any_result() -> None:
    torch = requires("torch")

    @dlx.bridge(np.ndarray)
    def fill(out: Any) -> Any:
        out[:] = 7
        return out[1]

    out = torch.zeros(2, 3)
    row = fill(out=out)
    assert type(row) is torch.Tensor
    assert row.data_ptr() == out[1].data_ptr()
    assert out.tolist() == [[7] * 3] * 2


def test_a_positional_out_is_written_in_place_too() -> None:
    torch = requires("torch")
    x, out = torch.from_numpy(X), torch.zeros(2, 3)

    @dlx.bridge(np.ndarray)
    def copy(a: Any, out: Any, *more: Any) -> Any:
        out[...] = a
        return out, more

    for _ in range(2):
        assert copy(x, out)[0] is out
        assert copy(x, out, 1) == (out, (1,))
    assert out.tolist() == X.tolist()
    assert dlx.bridge(np.ndarray)(np.negative)(x, out) is out
    assert out.tolist() == (-X).tolist()


def test_a_method_has_an_out_as_well() -> None:
    class Scale:
        @dlx.bridge(np.ndarray)
        def apply(self, a: Any, out: Any) -> Any:
            return np.multiply(a, 3, out=out)

    torch = requires("torch")
    out = torch.zeros(2, 3)
    assert Scale().apply(torch.from_numpy(X), out) is out
    assert out.tolist() == (X * 3).tolist()


@pytest.mark.parametrize("form", [tuple, list, lambda outs: dict(enumerate(outs))])
def test_outs_in_a_container_are_written_in_place(form: Any) -> None:
    torch = requires("torch")

    @dlx.bridge(np.ndarray)
    def fill(value: float, *, out: Any) -> Any:
        for one in out.values() if isinstance(out, dict) else out:
            one[:] = value
        return out

    outs = [torch.zeros(2), torch.zeros(3)]
    given = form(outs)
    assert fill(4, out=given) is given
    assert [one.tolist() for one in outs] == [[4] * 2, [4] * 3]


def test_one_of_several_outs_is_given_back_itself() -> None:
    torch = requires("torch")
    modf = dlx.bridge(np.ndarray)(np.modf)
    outs = torch.zeros(2), torch.zeros(2)
    fraction, whole = modf(torch.tensor([1.5, 2.25]), out=outs)
    assert fraction is outs[0]
    assert whole is outs[1]
    assert whole.tolist() == [1, 2]


def test_out_that_would_have_to_be_copied_is_refused_and_named() -> None:
    torch = requires("torch")

    @dlx.bridge(torch.Tensor)
    def fill(*, out: Any) -> Any:
        return out.fill_(7)

    backward = np.zeros(3, "float32")[::-1]
    with pytest.raises(dlx.CopyRefused, match=r"^out is written in place") as refused:
        fill(out=backward)
    note = f"argument out of {fill.__qualname__}"
    assert refused.value.__notes__ == [note]
    told = "but torch.Tensor does not accept negative strides; pass an out that needs"
    assert told in str(refused.value)
    assert not backward.any()


def test_memory_that_must_not_be_written_is_refused_or_not_written() -> None:
    torch = requires("torch")

    @dlx.bridge(torch.Tensor)
    def fill(*, out: Any) -> Any:
        return out.fill_(7)

    constant = np.zeros(3, "float32")
    constant.flags.writeable = False
    with pytest.raises(BufferError, match=r"^out is read-only") as refused:
        fill(out=constant)
    assert refused.value.__notes__ == [f"argument out of {fill.__qualname__}"]
    with pytest.raises(ValueError, match="read-only"):  # NumPy's own
        double(X[0], out=constant)
    with pytest.raises(BufferError, match=r"^out is read-only"):
        double(X[0], out=dlx.from_dlpack(constant))
    assert not constant.any()


def test_the_first_tensor_may_be_out() -> None:
    torch = requires("torch")

    @dlx.bridge(np.ndarray)
    def fill(value: float, *, out: Any) -> Any:
        out[:] = value
        return np.array([value])

    assert type(fill(3, out=torch.zeros(2))) is torch.Tensor


def test_a_coroutine_function_writes_out() -> None:
    torch = requires("torch")

    @dlx.bridge(np.ndarray)
    async def later(a: Any, *, out: Any) -> Any:
        return np.multiply(a, 2, out=out)

    out = torch.zeros(2, 3)
    assert asyncio.run(later(torch.from_numpy(X), out=out)) is out
    assert out.tolist() == (X * 2).tolist()


def test_every_out_of_a_ufunc_may_be_passed_by_position() -> None:
    """Its signature names the first of them alone."""
    torch = requires("torch")
    modf = dlx.bridge(np.ndarray)(np.modf)
    x = torch.tensor([1.5, 2.25])
    outs = torch.zeros(2), torch.zeros(2)
    made = modf(x, *outs)
    assert all(one is out for one, out in zip(made, outs, strict=True))
    assert [out.tolist() for out in outs] == [[0.5, 0.25], [1, 2]]
    assert [out._version for out in outs] == [1, 1]


def test_an_out_of_a_ufunc_that_would_be_copied_is_refused() -> None:
    """What NumPy writes to a copy would be lost."""
    frozen = np.zeros(2, "float32")
    frozen.flags.writeable = False
    modf = dlx.bridge(np.ndarray)(np.modf)
    with pytest.raises(BufferError, match="read-only"):
        modf(X[0, :2], np.zeros(2, "float32"), dlx.from_dlpack(frozen))
