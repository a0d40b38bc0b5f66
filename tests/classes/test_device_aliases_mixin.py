"""Classes of the mixin that live under two names, or stand for what does."""

from __future__ import annotations

from typing import Any

import dlx
import numpy as np
import pytest
from support.alias_producers import CPU, CUDA, ONEAPI, OPENCL, TwoNames, aliases, names
from support.dlx_producers import ByMethod, Stored

HANDLE = 0x7F12_3456_7890


class Declaring(Stored):
    """A class that names devices of its own."""

    names: Any = (CUDA,)

    def __dlpack_device_aliases__(self) -> Any:
        """Give the names."""
        return self.names


def own(device: tuple[int, int] = ONEAPI, **options: Any) -> dlx.Tensor:
    """Make a tensor that dlx itself describes."""
    return dlx.from_pointer(HANDLE, (2, 3), "float32", device=device, **options)


def test_a_class_hands_on_what_its_inner_object_says() -> None:
    """R64: a class without aliases has none."""
    assert Stored(TwoNames()).__dlpack_device_aliases__() == (CUDA,)
    assert Stored(np.zeros(3)).__dlpack_device_aliases__() == ()


@pytest.mark.parametrize("wrap", [Declaring, lambda x: Stored(Declaring(x))])
def test_a_class_names_devices_for_a_producer_that_does_not(wrap: Any) -> None:
    """The producer is asked for them by `dl_device`."""

    class Silent(TwoNames):
        __dlpack_device_aliases__ = property()

    producer = Silent()
    tensor = dlx.from_dlpack(wrap(producer))
    found = dlx.from_dlpack(wrap(producer), device="cuda:0")
    if wrap is Declaring:
        assert aliases(tensor) == ("cuda:0",)
        assert tensor.to(device="cuda:0").data_ptr == producer.data
    assert (str(found.device), found.data_ptr) == ("cuda:0", producer.data)


def test_a_class_names_devices_for_its_own_memory() -> None:
    """The same address is valid on each of them."""
    tensor = dlx.from_dlpack(Declaring(own()))
    assert names(tensor) == ("oneapi:0", ("cuda:0",))
    there = tensor.to(device="cuda:0")
    assert (str(there.device), there.data_ptr) == ("cuda:0", HANDLE)
    assert there.to(device="oneapi:0").device == "oneapi:0"


def test_a_class_exports_its_own_memory_under_the_names() -> None:
    """`dl_device`, as any consumer passes it (R52)."""
    capsule = Declaring(own()).__dlpack__(max_version=(1, 3), dl_device=CUDA, stream=1)
    assert dlx.from_dlpack(capsule).device == "cuda:0"
    with pytest.raises(BufferError, match="cuda:1"):
        Declaring(own()).__dlpack__(dl_device=(2, 1))


def test_a_class_asks_the_exporter_of_the_tensor_that_it_holds() -> None:
    """Its address alone is not taken where somebody can be asked."""
    producer = TwoNames()
    found = dlx.from_dlpack(Declaring(dlx.from_dlpack(producer)), device="cuda:0")
    assert names(found) == ("cuda:0", ("oneapi:0",))
    assert producer.requests[-1]["dl_device"] == CUDA


def test_a_class_may_say_less_than_its_inner_object() -> None:
    """The class is what the caller gave."""
    declaring = Declaring(TwoNames())
    declaring.names = ()
    assert aliases(dlx.from_dlpack(declaring)) == ()


def test_a_handle_cannot_be_given_as_an_address() -> None:
    """R93: OpenCL's `data` is a handle, CUDA's is an address."""
    with pytest.raises(BufferError, match=r"opencl:0.*cuda:0.*handles"):
        dlx.from_dlpack(Declaring(own(OPENCL)), device="cuda:0")


def test_an_order_that_dlx_cannot_keep_is_refused() -> None:
    """R80: the elements are ready on a stream of the device that was not named."""
    declaring = Declaring(own(CUDA, stream=2))
    declaring.names = [ONEAPI]
    with pytest.raises(BufferError, match="on a stream of cuda:0"):
        dlx.from_dlpack(declaring, device=ONEAPI)
    with pytest.raises(BufferError, match="does not copy"):
        dlx.from_dlpack(Declaring(own()), device="cuda:0", copy=True)


def test_memory_of_a_class_is_copied_from_the_cpu() -> None:
    """R59: where one of the names is the CPU."""
    array = np.arange(6, dtype=np.float32)
    inner = dlx.from_pointer(array.ctypes.data, (6,), "float32", device=ONEAPI)
    declaring = Declaring(inner)
    declaring.names = [CPU]
    copied = dlx.from_dlpack(declaring, device="cpu", copy=True)
    assert copied.is_copied
    assert copied.numpy().tolist() == array.tolist()


def test_a_copy_that_is_held_is_shared_under_each_of_its_names() -> None:
    """R37: whoever asks again is not its only owner, and may refuse copies."""
    held = dlx.from_dlpack(np.arange(6, dtype=np.float32), copy=True)
    declaring = Declaring(held)
    declaring.names = [ONEAPI]
    found = dlx.from_dlpack(declaring, device=ONEAPI, copy=False)
    assert names(found) == ("oneapi:0", ("cpu",))
    assert found.to(device="cpu").data_ptr == held.data_ptr
    for device in (CPU, ONEAPI):
        capsule = found.__dlpack__(max_version=(1, 3), dl_device=device)
        assert not dlx.from_dlpack(capsule).is_copied


@pytest.mark.parametrize("device", [None, "cuda:0"])
def test_the_method_that_exports_runs_once(device: str | None) -> None:
    """`__dlx_export__` may launch kernels."""

    class Counting(ByMethod):
        exports = 0

        def __dlx_export__(self) -> Any:
            Counting.exports += 1
            return super().__dlx_export__()

    assert dlx.from_dlpack(Counting(TwoNames()), device=device).device_aliases
    assert Counting.exports == 1
