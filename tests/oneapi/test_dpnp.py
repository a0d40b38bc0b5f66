"""dlx with dpnp, on the CPU: what the fakes of `test_oneapi.py` claim is so."""

from __future__ import annotations

import gc
from typing import Any

import dlx
import numpy as np
import pytest

from oneapi.arrays import address_of, array, by_host_memory, by_memory, dpctl, dpnp


@by_memory
def test_an_array_is_where_dpnp_says(usm_type: str) -> None:
    x = array(usm_type)
    tensor = dlx.from_dlpack(x)
    assert (str(tensor.device), tensor.data_ptr) == ("oneapi:0", address_of(x))
    assert [str(alias) for alias in tensor.device_aliases] == (
        [] if usm_type == "device" else ["cpu"]
    )


@by_host_memory
def test_host_memory_is_shared_with_the_cpu(usm_type: str) -> None:
    x = array(usm_type)
    tensor = dlx.from_dlpack(x, device="cpu", copy=False)
    assert (tensor.data_ptr, tensor.is_copied) == (address_of(x), False)
    tensor.numpy()[0] = 9
    assert dpnp.asnumpy(x)[0] == 9
    x[1] = 8
    x.sycl_queue.wait()
    assert tensor.numpy()[1] == 8
    assert tensor.to(device="oneapi:0").data_ptr == address_of(x)


@by_host_memory
def test_the_elements_are_there_when_the_import_returns(usm_type: str) -> None:
    """A kernel that takes a while is waited for."""
    x = array(usm_type, 1 << 22)
    for _ in range(20):
        x = x + 1
    found = dlx.from_dlpack(x, device="cpu").numpy()
    assert found[-1] == np.float32((1 << 22) - 1) + 20


@by_host_memory
def test_a_tensor_goes_to_the_cpu_later(usm_type: str) -> None:
    x = array(usm_type)
    tensor = dlx.from_dlpack(x)
    del x
    gc.collect()
    assert tensor.to(device="cpu", copy=False).numpy().tolist() == [0, 1, 2, 3, 4, 5]
    shared = np.from_dlpack(tensor, device="cpu")
    assert shared.ctypes.data == tensor.data_ptr


def test_memory_of_the_device_comes_as_a_copy() -> None:
    x = array("device")
    tensor = dlx.from_dlpack(x, device="cpu")
    assert tensor.is_copied
    assert tensor.numpy().tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(dlx.CopyRefused, match=r"oneapi:0.*cpu"):
        dlx.from_dlpack(x, device="cpu", copy=False)


@by_memory
def test_a_device_that_is_not_there_is_refused(usm_type: str) -> None:
    with pytest.raises(BufferError, match=r"oneapi:0.*cuda:0"):
        dlx.from_dlpack(array(usm_type), device=("cuda", 0))


@by_memory
def test_a_queue_is_the_stream(usm_type: str) -> None:
    x = array(usm_type)
    for queue in [x.sycl_queue, dpctl.SyclQueue()]:
        assert dlx.from_dlpack(x, stream=queue).data_ptr == address_of(x)
        capsule = x.__dlpack__(stream=queue, max_version=(1, 3))
        assert dlx.from_dlpack(capsule).data_ptr == address_of(x)
    for stream in [1, "queue", x]:
        with pytest.raises(TypeError, match="SyclQueue"):
            dlx.from_dlpack(x, stream=stream)


@by_host_memory
def test_dpnp_takes_the_tensor_back(usm_type: str) -> None:
    x = array(usm_type)
    back = dpnp.from_dlpack(dlx.from_dlpack(x))
    assert (address_of(back), back.usm_type) == (address_of(x), usm_type)
    on_cpu = dlx.from_dlpack(x, device="cpu")
    again = dpnp.from_dlpack(on_cpu.to(device="oneapi:0"))
    assert address_of(again) == address_of(x)


def test_a_class_of_the_mixin_hands_it_on() -> None:
    class Held(dlx.ExchangeMixin, exchange="data"):
        def __init__(self, data: Any) -> None:
            self.data = data

    x = array("shared")
    assert dlx.from_dlpack(Held(x)).device_aliases[0] == "cpu"
    assert np.from_dlpack(Held(x), device="cpu").ctypes.data == address_of(x)
    assert address_of(dpnp.from_dlpack(Held(x))) == address_of(x)
    assert dlx.convert(x, np.ndarray, device="cpu").ctypes.data == address_of(x)
