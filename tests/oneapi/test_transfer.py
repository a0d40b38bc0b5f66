"""Transfers that data-apis/array-api, issue 829, asks for, with dpctl and dpnp.

One case is an array that moves between a device and the host; the other is memory that
belongs to two devices, which either of them may use in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pytest

from oneapi.arrays import (
    CPU,
    ONEAPI,
    address_of,
    by_host_memory,
    by_library,
    by_memory,
    dpctl,
    library,
    usm,
)

torch = library("torch")

VALUES = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


class Held(dlx.ExchangeMixin, exchange="data"):
    """A class of a user's own."""

    def __init__(self, data: Any) -> None:
        """Hold an array."""
        self.data = data


def address(x: Any) -> int:
    """Where the first element is, in any library."""
    if isinstance(x, np.ndarray):
        return x.ctypes.data
    return dlx.from_dlpack(x).data_ptr


# From the device to the host.

DIRECT: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda x: np.from_dlpack(x, device="cpu"),
    "numpy, of a mixin": lambda x: np.from_dlpack(Held(x), device="cpu"),
    "dpctl": lambda x: usm.from_dlpack(x, device=CPU),
    "dpctl, of a mixin": lambda x: usm.from_dlpack(Held(x), device=CPU),
    "dpctl, of a tensor on the host": lambda x: usm.from_dlpack(
        dlx.from_dlpack(x, device="cpu")
    ),
    "torch, of a tensor on the host": lambda x: torch.from_dlpack(
        dlx.from_dlpack(x, device="cpu")
    ),
    "torch, by convert": lambda x: dlx.convert(x, torch.Tensor, device="cpu"),
    "numpy, by convert": lambda x: dlx.convert(x, np.ndarray, device="cpu"),
    "dlx": lambda x: dlx.from_dlpack(x, device="cpu"),
    "dlx, of a mixin": lambda x: dlx.from_dlpack(Held(x), device="cpu"),
    "dlx, of the standard's pair": lambda x: dlx.from_dlpack(x, device=CPU),
}


def listed(x: Any) -> list[float]:
    """Give the elements, by whatever library has them."""
    return [float(value) for value in (x.numpy() if isinstance(x, dlx.Tensor) else x)]


@pytest.mark.parametrize("take", DIRECT.values(), ids=DIRECT)
@by_memory
@by_library
def test_an_array_of_a_device_comes_to_the_host(
    make: Callable[..., Any], usm_type: str, take: Callable[[Any], Any]
) -> None:
    """R54, R55: the elements are there when the call returns."""
    taken = take(make(6, dtype="float32", usm_type=usm_type))
    assert listed(taken) == VALUES


@by_memory
@by_library
def test_torch_alone_does_not_take_it(make: Callable[..., Any], usm_type: str) -> None:
    """What the conversions above are for: it knows no device of oneAPI."""
    x = make(6, dtype="float32", usm_type=usm_type)
    for keywords in ({}, {"device": "cpu"}, {"device": "cpu", "copy": False}):
        with pytest.raises((RuntimeError, ValueError)):
            torch.from_dlpack(x, **keywords)


COPIES: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda x: np.from_dlpack(x, device="cpu", copy=True),
    "numpy, of a mixin": lambda x: np.from_dlpack(Held(x), device="cpu", copy=True),
    "dpctl, of a mixin": lambda x: usm.from_dlpack(Held(x), device=CPU, copy=True),
    "dlx": lambda x: dlx.from_dlpack(x, device="cpu", copy=True).numpy(),
    "convert": lambda x: dlx.convert(x, np.ndarray, device="cpu", copy=True),
}


@pytest.mark.parametrize("take", COPIES.values(), ids=COPIES)
@by_memory
@by_library
def test_a_copy_is_memory_of_its_own(
    make: Callable[..., Any], usm_type: str, take: Callable[[Any], Any]
) -> None:
    """R54: also where the host could use the memory in place."""
    x = make(6, dtype="float32", usm_type=usm_type)
    copied = take(x)
    x[:] = 7
    x.sycl_queue.wait()
    assert copied.tolist() == VALUES


# Memory of two devices.

IN_PLACE: dict[str, Callable[[Any], Any]] = {
    "numpy, of a mixin": lambda x: np.from_dlpack(Held(x), device="cpu", copy=False),
    "numpy, of a tensor": lambda x: np.from_dlpack(
        dlx.from_dlpack(x), device="cpu", copy=False
    ),
    "dpctl, of a mixin": lambda x: usm.from_dlpack(Held(x), device=CPU, copy=False),
    "torch": lambda x: torch.from_dlpack(dlx.from_dlpack(x, device="cpu", copy=False)),
    "torch, by convert": lambda x: dlx.convert(
        x, torch.Tensor, device="cpu", copy=False
    ),
    "dlx": lambda x: dlx.from_dlpack(x, device="cpu", copy=False),
    "dlx, of a mixin": lambda x: dlx.from_dlpack(Held(x), device="cpu", copy=False),
}


@pytest.mark.parametrize("take", IN_PLACE.values(), ids=IN_PLACE)
@by_host_memory
@by_library
def test_host_memory_is_used_in_place(
    make: Callable[..., Any], usm_type: str, take: Callable[[Any], Any]
) -> None:
    """R49, R54: at the address that the array has on its device."""
    x = make(6, dtype="float32", usm_type=usm_type)
    taken = take(x)
    assert (address(taken), listed(taken)) == (address_of(x), VALUES)


@by_host_memory
@by_library
def test_without_dlx_host_memory_is_refused_or_copied(
    make: Callable[..., Any], usm_type: str
) -> None:
    """docs/devices.md: what a second name of the device is for."""
    x = make(6, dtype="float32", usm_type=usm_type)
    with pytest.raises(BufferError, match="without a copy"):
        np.from_dlpack(x, device="cpu", copy=False)
    assert address(np.from_dlpack(x, device="cpu")) != address_of(x)


@pytest.mark.parametrize("take", IN_PLACE.values(), ids=IN_PLACE)
@by_library
def test_memory_of_the_device_is_not_used_in_place(
    make: Callable[..., Any], take: Callable[[Any], Any]
) -> None:
    """R54: although this device is the CPU; its runtime says "device"."""
    x = make(6, dtype="float32", usm_type="device")
    with pytest.raises(BufferError):
        take(x)


@by_host_memory
@by_library
def test_memory_comes_back_to_its_device_in_place(
    make: Callable[..., Any], usm_type: str
) -> None:
    """R49: through the host and back, which no other producer of the host can do."""
    x = make(6, dtype="float32", usm_type=usm_type)
    on_host = dlx.from_dlpack(x, device="cpu")
    back = usm.from_dlpack(on_host.to(device="oneapi:0"))
    assert (address_of(back), back.usm_type) == (address_of(x), usm_type)


@by_memory
@by_library
def test_dpctl_takes_its_memory_from_a_class_of_the_mixin(
    make: Callable[..., Any], usm_type: str
) -> None:
    """R49: with the device that it names, without one, and without a copy."""
    x = make(6, dtype="float32", usm_type=usm_type)
    for keywords in ({}, {"device": ONEAPI}, {"device": "cpu"}, {"copy": False}):
        assert address_of(usm.from_dlpack(Held(x), **keywords)) == address_of(x)


# From the host to the device.

HOSTS: dict[str, Callable[[], Any]] = {
    "numpy": lambda: np.arange(6, dtype="float32"),
    "torch": lambda: torch.arange(6, dtype=torch.float32),
}
WRAPPED: dict[str, Callable[[Any], Any]] = {
    "tensor": dlx.from_dlpack,
    "mixin": Held,
}
on_host = pytest.mark.parametrize("make", HOSTS.values(), ids=HOSTS)
wrapped = pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)


@pytest.mark.parametrize("device", ["cpu", ONEAPI, "queue"])
@pytest.mark.parametrize("copy", [None, True])
@wrapped
@on_host
def test_an_array_of_the_host_goes_to_the_device(
    make: Callable[[], Any],
    wrap: Callable[[Any], Any],
    copy: bool | None,
    device: Any,
) -> None:
    """R54: dpctl asks for the host's memory, and copies it itself."""
    place = dpctl.SyclQueue() if device == "queue" else device
    moved = usm.from_dlpack(wrap(make()), device=place, copy=copy)
    moved.sycl_queue.wait()
    assert moved.__dlpack_device__() == ONEAPI
    assert usm.asnumpy(moved).tolist() == VALUES


@wrapped
@on_host
def test_an_array_of_the_host_does_not_go_without_a_copy(
    make: Callable[[], Any], wrap: Callable[[Any], Any]
) -> None:
    """R54: the device's runtime did not allocate it."""
    with pytest.raises(BufferError):
        usm.from_dlpack(wrap(make()), device="cpu", copy=False)


@wrapped
@on_host
def test_dpctl_gives_an_array_of_the_host_to_numpy_in_place(
    make: Callable[[], Any], wrap: Callable[[Any], Any]
) -> None:
    """R49: without a device its `from_dlpack` makes an array of NumPy."""
    x = make()
    taken = usm.from_dlpack(wrap(x), copy=False)
    assert (address(taken), listed(taken)) == (address(x), VALUES)


@pytest.mark.parametrize("device", [("oneapi", 0), "oneapi:0"])
@wrapped
@on_host
def test_dlx_does_not_copy_to_a_device_of_oneapi_itself(
    make: Callable[[], Any], wrap: Callable[[Any], Any], device: Any
) -> None:
    """R54: it has no queue to do so."""
    with pytest.raises(BufferError):
        dlx.from_dlpack(wrap(make()), device=device)
