"""torch learns of the memory that was lent, whatever the object says by then."""

from __future__ import annotations

from typing import Any

import dlx
import numpy as np
import pytest
from support.dlx_producers import Stored
from support.optional_libraries import requires

SAVED = "has been modified by an inplace operation"


def by_borrow(x: Any) -> None:
    """Write in a block."""
    with dlx.borrow(out=x) as (lent, _):
        np.from_dlpack(lent)[...] = 7


def launched(x: Any) -> None:
    """Write in a kernel."""

    def kernel(x: Any) -> None:
        np.from_dlpack(x)[...] = 7

    dlx.launcher(kernel, give="tensor", out=0)(x)


@dlx.bridge(np.ndarray)
def fill(out: Any) -> None:
    """Write."""
    out[...] = 7


def bridged(x: Any) -> None:
    """Write in a bridged function."""
    fill(out=x)


WRITE = {"borrow": by_borrow, "launcher": launched, "bridge": bridged}
ways = pytest.mark.parametrize("write", WRITE.values(), ids=WRITE)


def wrapped(w: Any) -> Any:
    """Return a tensor of torch that wraps another, and exports that."""
    torch = requires("torch")

    class Wrapper(torch.Tensor):  # type: ignore[misc, name-defined]
        @staticmethod
        def __new__(cls: Any, inner: Any) -> Any:
            made = torch.Tensor._make_wrapper_subclass(cls, inner.shape)
            made.inner = inner
            return made

        @classmethod
        def __torch_dispatch__(cls, *of: Any) -> Any:
            raise NotImplementedError

        def __dlpack__(self, **keywords: Any) -> Any:
            return self.inner.__dlpack__(**keywords)

        def __dlpack_device__(self) -> Any:
            return self.inner.__dlpack_device__()

    return Wrapper(w)


def standing_in(w: Any) -> Any:
    """Return a tensor that was told to export another."""
    x = requires("torch").zeros(3)
    x.__dlpack__ = w.__dlpack__
    return x


OTHERS = {"wrapper": wrapped, "own __dlpack__": standing_in}


@ways
@pytest.mark.parametrize("over", OTHERS.values(), ids=OTHERS)
def test_a_tensor_that_exports_another_tells_that(over: Any, write: Any) -> None:
    """A graph has saved the tensor inside."""
    torch = requires("torch")
    x, w = torch.ones(3, requires_grad=True), torch.ones(3)
    y = (x * w).sum()
    write(over(w))
    assert w.tolist() == [7, 7, 7]
    with pytest.raises(RuntimeError, match=SAVED):
        y.backward()


@ways
def test_a_subclass_is_told_once(write: Any) -> None:
    """It is read through its ``__dlpack__``, and is the tensor itself."""
    torch = requires("torch")

    class Sub(torch.Tensor):  # type: ignore[misc, name-defined]
        pass

    x = torch.ones(3).as_subclass(Sub)
    write(x)
    assert x._version == 1


class Changing(Stored):
    """A mixin instance that may be given another tensor."""


def test_a_mixin_that_is_given_another_tensor_in_the_block_tells_the_first() -> None:
    """That is what was lent."""
    torch = requires("torch")
    w, other = torch.ones(3), torch.ones(3)
    x = Changing(w)
    with dlx.borrow(out=x):
        x.data = other
    assert (w._version, other._version) == (1, 0)


def test_a_mixin_that_is_given_another_tensor_in_the_launch_tells_the_first() -> None:
    """As in a block."""
    torch = requires("torch")
    w, other = torch.ones(3), torch.ones(3)
    x = Changing(w)

    def kernel(address: int) -> None:
        x.data = other

    dlx.launcher(kernel, out=0)(x)
    assert (w._version, other._version) == (1, 0)


def test_a_mixin_that_is_given_another_tensor_in_the_call_tells_the_first() -> None:
    """As in a block."""
    torch = requires("torch")
    w, other = torch.ones(3), torch.ones(3)
    x = Changing(w)

    @dlx.bridge(np.ndarray)
    def write(out: Any) -> None:
        x.data = other

    write(out=x)
    assert (w._version, other._version) == (1, 0)


@ways
@pytest.mark.parametrize("part", [slice(None), slice(1, None)], ids=["all", "part"])
def test_a_lent_view_tells_the_tensor_that_lent_it(write: Any, part: Any) -> None:
    """The outer block only reads, and what is called in it writes."""
    torch = requires("torch")
    w = torch.ones(3)
    with dlx.borrow(w) as (lent, _):
        write(lent[part])
    assert w._version == 1


@ways
def test_memory_that_a_tensor_owns_tells_it(write: Any) -> None:
    """`from_pointer` says who owns it."""
    w = requires("torch").ones(3)
    write(dlx.from_pointer(w.data_ptr(), (3,), "float32", owner=w))
    assert w._version == 1


class Failing:
    """Counts what is written to it, and fails."""

    def __init__(self) -> None:
        """Keep memory."""
        self.array = np.zeros(3, "float32")

    def _bump_inplace_version(self) -> None:
        raise RuntimeError("no count")

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export it."""
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        """On the CPU."""
        return (1, 0)


def in_a_block(*out: Any) -> None:
    """Lend all."""
    with dlx.borrow(out=out):
        pass


@dlx.launcher(out=(0, 1))
def launch(a: int, b: int) -> None:
    """Take all."""


@dlx.bridge(np.ndarray)
def take(out: list[Any]) -> None:
    """Take all."""


ALL = {"borrow": in_a_block, "launcher": launch, "bridge": lambda *of: take([*of])}


@pytest.mark.parametrize("write", ALL.values(), ids=ALL)
def test_a_tensor_is_told_also_if_another_one_fails(write: Any) -> None:
    """The first error is raised once all have been told."""
    w = requires("torch").ones(3)
    with pytest.raises(RuntimeError, match="no count"):
        write(Failing(), w)
    assert w._version == 1


def test_a_tensor_that_exports_another_exports_that_with_detach() -> None:
    """What ``detach()`` makes of it would not."""
    x = standing_in(requires("torch").ones(3))
    assert dlx.convert(x, np, detach=True).tolist() == [1, 1, 1]
