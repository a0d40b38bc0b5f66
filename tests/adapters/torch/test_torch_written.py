"""torch learns that dlx lent the memory of a tensor for writing."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import dlx
import numpy as np
import pytest
from support.dlx_producers import ByMethod, Stored
from support.optional_libraries import requires
from support.python_process import run_python

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


class Forward:
    """Exports what another object does, and is no tensor of torch."""

    def __init__(self, inner: Any) -> None:
        """Keep it."""
        self.inner = inner

    def __dlpack__(self, **keywords: Any) -> Any:
        """Forward to it."""
        return self.inner.__dlpack__(**keywords)

    def __dlpack_device__(self) -> Any:
        """Forward to it."""
        return self.inner.__dlpack_device__()


class Old(Forward):
    """The same, in unversioned capsules, though writable."""

    def __dlpack__(self) -> Any:  # type: ignore[override]
        """Forward to it."""
        return self.inner.__dlpack__()

    @property
    def __array_interface__(self) -> Any:
        """Say that it may be written to."""
        return self.inner.numpy().__array_interface__


class ByInterface(dlx.ArrayInterfaceMixin, exchange="data"):
    """Exports an attribute by NumPy's array interface alone."""

    def __init__(self, data: Any) -> None:
        """Keep it."""
        self.data = data


def launched(x: Any) -> None:
    """Write in a kernel."""

    def kernel(x: Any) -> None:
        np.from_dlpack(x)[...] = 7

    dlx.launcher(kernel, give="tensor", out=0)(x)


OVER: dict[str, Any] = {
    "dlx.Tensor": dlx.from_dlpack,
    "dlx.Tensor, versioned": lambda w: dlx.from_dlpack(
        w.__dlpack__(max_version=(1, 3))
    ),
    "dlx.Tensor of a parameter": lambda w: dlx.from_dlpack(
        requires("torch").nn.Parameter(w, requires_grad=False)
    ),
    "dlx.Tensor of a view": lambda w: dlx.from_dlpack(w[1:]),
    "view of a dlx.Tensor": lambda w: dlx.from_dlpack(w)[1:],
    "view of a view": lambda w: dlx.from_dlpack(w)[1:][:2],
    "dlx.Tensor of a dlx.Tensor": lambda w: dlx.from_dlpack(
        dlx.from_dlpack(w).__dlpack__(max_version=(1, 3))
    ),
    "used on a stream": lambda w: dlx.from_dlpack(w, stream=-1),
    "mixin": Stored,
    "mixin in mixin": lambda w: Stored(ByMethod(w)),
    "mixin over a dlx.Tensor": lambda w: Stored(dlx.from_dlpack(w)),
    "dlx.Tensor of a mixin": lambda w: dlx.from_dlpack(Stored(w)),
    "object that forwards": Forward,
    "dlx.Tensor of one": lambda w: dlx.from_dlpack(Forward(w)),
    "forwarded dlx.Tensor": lambda w: Forward(dlx.from_dlpack(w)),
    "old object": Old,
    "dlx.Tensor of an array interface": lambda w: dlx.from_dlpack(ByInterface(w)),
}
WRITE = {
    "borrow": by_borrow,
    "launcher": launched,
    "bridge": lambda x: fill(7, out=x),
}


@pytest.mark.parametrize("write", WRITE.values(), ids=WRITE)
@pytest.mark.parametrize("over", OVER.values(), ids=OVER)
def test_whatever_lies_over_the_memory_of_a_tensor_tells_it(
    over: Any, write: Any
) -> None:
    """docs/launcher.md, `out`: the duty follows the memory."""
    torch = requires("torch")
    x, w = torch.ones(3, requires_grad=True), torch.ones(3)
    y = (x * w).sum()
    write(over(w))
    assert w[1:].tolist() == [7, 7]
    with pytest.raises(RuntimeError, match=SAVED):
        y.backward()


@pytest.mark.parametrize("write", [by_borrow, launched])
def test_an_array_interface_of_a_mixin_tells_the_tensor_that_it_exports(
    write: Any,
) -> None:
    """docs/launcher.md, `out`: a bridge takes no such object."""
    w = requires("torch").ones(3)
    write(ByInterface(w))
    assert w._version > 0


def test_a_tensor_learns_it_while_what_holds_its_memory_is_traced() -> None:
    """A trace holds what is imported in its own way."""
    torch = requires("torch")
    w = torch.ones(3)
    with dlx.trace():
        t = dlx.from_dlpack(w)
        by_borrow(t)
    assert w._version > 0


def test_a_tensor_that_is_gone_is_told_to_its_graph() -> None:
    """The count is that of the memory, which the graph has saved."""
    torch = requires("torch")
    x = torch.ones(3, requires_grad=True)
    saved = torch.ones(3)
    y, t = (x * saved).sum(), dlx.from_dlpack(saved)
    del saved
    by_borrow(t)
    with pytest.raises(RuntimeError, match=SAVED):
        y.backward()


def test_what_is_no_tensor_of_torch_is_told_nothing() -> None:
    """Nor is a copy of one."""
    torch = requires("torch")
    w = torch.ones(3)
    by_borrow(dlx.from_dlpack(w, copy=True))
    by_borrow(dlx.from_dlpack(np.ones(3)))
    with dlx.borrow(out=dlx.from_dlpack(w)):
        assert w._version == 0
    assert w._version == 1


def test_a_block_that_was_not_entered_tells_nothing() -> None:
    """Nothing was written."""
    torch = requires("torch")
    w = torch.ones(3)
    read_only = np.frombuffer(bytes(12), "f4")
    with (
        pytest.raises(BufferError),
        dlx.borrow(out=[dlx.from_dlpack(w), read_only]),
    ):
        pass
    assert w._version == 0


@pytest.mark.parametrize(
    "first",
    [
        "with torch.inference_mode(): by_borrow(t)",
        "with torch.device('meta'): by_borrow(t)",
        "with Refusing(): by_borrow(t)",
        "by_borrow(dlx.from_dlpack(np.ones(3))); by_borrow(t)",
    ],
)
def test_no_mode_hides_where_torch_counts(first: str) -> None:
    """What is found in the first block is used in all later ones."""
    requires("torch")
    ran = run_python(
        f"""
        import numpy as np
        import dlx
        import torch

        def by_borrow(x):
            with dlx.borrow(out=x) as (lent, _):
                np.from_dlpack(lent)[...] = 7

        class Refusing(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                if func is torch.Tensor.__dlpack__:
                    raise BufferError("refused by the mode")
                return func(*args, **kwargs or {{}})

        w = torch.ones(3)
        t = dlx.from_dlpack(w)
        {first}
        assert w._version == 1, w._version
        """
    )
    assert ran[0] == 0, ran


def by_address(x: Any) -> None:
    """Write in a kernel that takes an address."""

    def kernel(x: int) -> None:
        (ctypes.c_float * 3).from_address(x)[:] = [7.0] * 3

    dlx.launcher(kernel, out=0)(x)


RECORDED: dict[str, Any] = {
    "a parameter": lambda w: w,
    "a result": lambda w: w * 1,
    "a mixin over one": lambda w: Stored(w * 1),
}
UNRECORDED = {"launcher, an address": by_address, **WRITE}


@pytest.mark.parametrize("write", UNRECORDED.values(), ids=UNRECORDED)
@pytest.mark.parametrize("make", RECORDED.values(), ids=RECORDED)
def test_what_torch_records_is_not_written(make: Any, write: Any) -> None:
    """A kernel records nothing: its gradient would be that of what was there before."""
    torch = requires("torch")
    x = make(torch.ones(3, requires_grad=True))
    with pytest.raises(BufferError, match=r"requires grad.*detach\(\)"):
        write(x)
    assert dlx.convert(x, np, detach=True).tolist() == [1, 1, 1]


@pytest.mark.parametrize("write", UNRECORDED.values(), ids=UNRECORDED)
def test_what_requires_grad_is_written_where_torch_does_not_record(write: Any) -> None:
    """As its optimizers do; the graph learns of it."""
    torch = requires("torch")
    w = torch.nn.Parameter(torch.ones(3))
    y = w.exp()
    with torch.no_grad():
        write(w)
        write(y)
    assert (w.tolist(), w._version, y._version) == ([7, 7, 7], 1, 1)
    with pytest.raises(RuntimeError, match=SAVED):
        y.sum().backward()


@pytest.mark.parametrize("write", UNRECORDED.values(), ids=UNRECORDED)
def test_the_detached_tensor_that_the_advice_names_is_written(write: Any) -> None:
    """It shares the memory, and the count of writes."""
    w = requires("torch").ones(3, requires_grad=True)
    y = w.exp()
    write(w.detach())
    write(y.detach())
    assert w.tolist() == [7, 7, 7]
    with pytest.raises(RuntimeError, match=SAVED):
        y.sum().backward()


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning:torch")
@pytest.mark.parametrize("write", UNRECORDED.values(), ids=UNRECORDED)
def test_a_tensor_with_a_tangent_is_not_written(write: Any) -> None:
    """Its derivative would stay behind, also where no gradients are recorded."""
    torch = requires("torch")
    forward = torch.autograd.forward_ad
    x = torch.ones(3)
    with forward.dual_level(), torch.no_grad():
        dual = forward.make_dual(x, x + 1)
        with pytest.raises(BufferError, match="has a tangent"):
            write(dual)
        write(dual.detach())
    assert x.tolist() == [7, 7, 7]


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
