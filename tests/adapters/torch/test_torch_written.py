"""torch learns that dlx lent the memory of a tensor for writing."""

from __future__ import annotations

import threading
from typing import Any

import dlx
import numpy as np
import pytest
from support.optional_libraries import requires

SAVED = "has been modified by an inplace operation"


@dlx.bridge(np.ndarray)
def fill(value: float, out: Any) -> None:
    """Write one value."""
    out[...] = value


@dlx.bridge(np.ndarray)
def fail(out: Any) -> None:
    """Write, and fail after that."""
    out[...] = 7
    raise RuntimeError("failed")


@dlx.bridge(np.ndarray)
def fill_all(value: float, out: list[Any]) -> None:
    """Write one value to each."""
    for each in out:
        each[...] = value


def by_borrow(x: Any) -> None:
    """Write in a block."""
    with dlx.borrow(out=x) as (lent, _):
        np.from_dlpack(lent)[...] = 7


def by_failing_block(x: Any) -> None:
    """Write in a block that raises."""

    def body() -> None:
        with dlx.borrow(out=x) as (lent, _):
            np.from_dlpack(lent)[...] = 7
            raise RuntimeError("failed")

    with pytest.raises(RuntimeError, match="failed"):
        body()


def by_failing_function(x: Any) -> None:
    """Write in a function that raises."""
    with pytest.raises(RuntimeError, match="failed"):
        fail(out=x)


WAYS = {
    "borrow": by_borrow,
    "borrow, raises": by_failing_block,
    "bridge": lambda x: fill(7, out=x),
    "bridge, raises": by_failing_function,
    "bridge, a list": lambda x: fill_all(7, out=[x]),
}


@pytest.mark.parametrize("write", WAYS.values(), ids=WAYS)
def test_backward_refuses_what_was_overwritten(write: Any) -> None:
    """As after `w.mul_(2)`: the graph has saved `w`."""
    torch = requires("torch")
    x, w = torch.ones(3, requires_grad=True), torch.ones(3)
    y = (x * w).sum()
    write(w)
    with pytest.raises(RuntimeError, match=SAVED):
        y.backward()


def test_a_tensor_of_a_graph_may_be_lent() -> None:
    """A kernel records no gradients, but the graph learns of it."""
    torch = requires("torch")
    y = torch.ones(3, requires_grad=True).exp()
    by_borrow(y)
    with pytest.raises(RuntimeError, match=SAVED):
        y.sum().backward()


def test_what_is_only_read_is_not_written() -> None:
    """Its gradients are as before."""
    torch = requires("torch")
    x, w = torch.ones(3, requires_grad=True), torch.ones(3)
    y = (x * w).sum()
    with dlx.borrow(w):
        pass
    y.backward()
    assert x.grad.tolist() == [1, 1, 1]


def test_a_mixin_over_a_tensor_passes_it_on() -> None:
    """The tensor inside is the one that a graph may have saved."""
    torch = requires("torch")

    class Box(dlx.ExchangeMixin, exchange="inner"):
        def __init__(self, inner: Any) -> None:
            self.inner = inner

    x, w = torch.ones(3, requires_grad=True), torch.ones(3)
    y = (x * w).sum()
    by_borrow(Box(w))
    with pytest.raises(RuntimeError, match=SAVED):
        y.backward()


def test_tensors_without_a_version_are_written_too() -> None:
    """Those of inference mode."""
    torch = requires("torch")
    with torch.inference_mode():
        x = torch.ones(3)
        by_borrow(x)
        fill(5, out=x)
    assert x.tolist() == [5, 5, 5]


def test_many_threads_may_write_to_their_own() -> None:
    """The version is counted without the lock of dlx."""
    torch = requires("torch")
    tensors = [torch.zeros(4) for _ in range(4)]

    def work(x: Any) -> None:
        for _ in range(200):
            by_borrow(x)

    threads = [threading.Thread(target=work, args=(x,)) for x in tensors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(x._version == 200 for x in tensors)
