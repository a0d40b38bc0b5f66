"""Tensors of torch without memory: the address of a view is nothing but its offset."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pytest
from support.dlx_producers import Stored
from support.optional_libraries import requires

torch = requires("torch")


def zero_tensor() -> Any:
    """All elements are 0, and none is stored."""
    return torch._efficientzerotensor((33,))[1:]


def resized() -> Any:
    """A view of memory that was given up."""
    x = torch.arange(33.0)
    view = x[1:]
    x.untyped_storage().resize_(0)
    return view


def wrapper() -> Any:
    """A subclass that wraps tensors, and says that it is a view."""

    class Wrapper(torch.Tensor):  # type: ignore[misc, name-defined]
        @classmethod
        def __torch_dispatch__(cls, *args: Any, **kwargs: Any) -> Any:
            return False  # it is asked whether it is pinned

    make = torch.Tensor._make_wrapper_subclass
    return make(Wrapper, (32,), strides=(1,), storage_offset=1)


def meta_subclass() -> Any:
    """A tensor without elements, of a class whose protocol is asked."""
    plain = torch.empty(3, device="meta")
    return plain.as_subclass(type("Sub", (torch.Tensor,), {}))


class Silent(torch.Tensor):  # type: ignore[misc, name-defined]
    """A subclass that answers nothing about its elements."""

    def __getattribute__(self, name: str) -> Any:
        """Refuse to tell."""
        if name in ("storage_offset", "element_size", "is_neg"):
            raise RuntimeError(name)
        return super().__getattribute__(name)


def silent() -> Any:
    """A zero tensor of this subclass."""
    return zero_tensor().as_subclass(Silent)


def freed(lazy: Any) -> Any:
    """A view whose memory was given up; every operator of torch ends the process."""
    lazy.untyped_storage().resize_(0)
    return lazy


def conjugated() -> Any:
    """Twelve numbers, still to be conjugated."""
    return torch.arange(12.0).to(torch.complex64).conj()


def negated() -> Any:
    """Twelve numbers, still to be negated."""
    return torch._neg_view(torch.arange(12.0))


WAYS: dict[str, Callable[[Any], Any]] = {
    "from_dlpack": dlx.from_dlpack,
    "copy": lambda x: dlx.from_dlpack(x, copy=True),
    "no copy": lambda x: dlx.from_dlpack(x, copy=False),
    "device": lambda x: dlx.from_dlpack(x, device="cpu"),
    "numpy": lambda x: dlx.convert(x, np.ndarray),
    "tree": lambda x: dlx.convert_tree([x], np.ndarray),
    "borrow": lambda x: dlx.borrow(x).__enter__(),
    "mixin": lambda x: dlx.from_dlpack(Stored(x)),
    "mixin, capsule": lambda x: Stored(x).__dlpack__(max_version=(1, 3)),
    "tvm": lambda x: requires("tvm_ffi").get_global_func("testing.echo")(Stored(x)),
}


@pytest.mark.parametrize("make", [zero_tensor, resized, wrapper, meta_subclass, silent])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_an_offset_is_not_taken_for_an_address(
    make: Callable[[], Any], way: Callable[[Any], Any]
) -> None:
    """R95: every way refuses it."""
    with pytest.raises(BufferError):
        way(make())


@pytest.mark.parametrize("make", [conjugated, negated])
@pytest.mark.parametrize("kind", [torch.Tensor, type("Sub", (torch.Tensor,), {})])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_no_operator_of_torch_looks_at_a_lazy_view_without_memory(
    make: Callable[[], Any], kind: type, way: Callable[[Any], Any]
) -> None:
    """R95: to say that it is not pinned, torch would resolve it."""
    with pytest.raises(BufferError, match=r"pass tensor\.resolve_(conj|neg)\(\)(\n|$)"):
        way(freed(make().as_subclass(kind)))


@pytest.mark.parametrize("make", [conjugated, negated])
def test_a_lazy_view_without_memory_is_on_the_cpu(make: Callable[[], Any]) -> None:
    """R23: as torch says of one that has memory."""
    x = make()
    device = x.__dlpack_device__()
    x = freed(x)
    assert Stored(x).__dlpack_device__() == device == (1, 0)
    assert dlx.convert(x, torch.Tensor, device="cpu") is x
    assert dlx.empty((2,), "float32", like=x).device.type == "cpu"


def test_the_error_says_what_gives_a_zero_tensor_memory() -> None:
    with pytest.raises(BufferError, match=r"pass tensor\.clone\(\)$"):
        dlx.from_dlpack(zero_tensor())
    assert dlx.convert(zero_tensor().clone(), np.ndarray).tolist() == [0] * 32


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_quantized_tensor_seen_as_another_dtype_is_refused(
    way: Callable[[Any], Any],
) -> None:
    """R125: its dtype does not tell; the advice leads to the integers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.quantize_per_tensor(torch.arange(4.0), 0.5, 1, torch.quint8)
    with pytest.raises(BufferError, match=r"int_repr\(\)"):
        way(x.view(torch.uint8))
    assert dlx.convert(x.int_repr(), np.ndarray).tolist() == [1, 3, 5, 7]


NOT_STRIDED: dict[str, tuple[Callable[[], Any], str]] = {
    "meta": (lambda: torch.empty(3, device="meta"), "meta device"),
    "meta subclass": (meta_subclass, "meta device"),
    "MKL-DNN": (lambda: torch.ones(2).to_mkldnn(), r"pass tensor\.to_dense\(\)$"),
}


@pytest.mark.parametrize(("make", "what"), NOT_STRIDED.values(), ids=NOT_STRIDED)
@pytest.mark.parametrize("consumer", ["torch", "jax.numpy", "numpy"])
def test_a_consumer_that_asks_for_the_device_reads_the_same(
    make: Callable[[], Any], what: str, consumer: str
) -> None:
    """R63: what torch raises for the device is explained as what it raises later."""
    with pytest.raises(BufferError, match=what) as caught:
        requires(consumer).from_dlpack(Stored(make()))
    assert not isinstance(caught.value.__cause__, BufferError)
