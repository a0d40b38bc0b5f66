"""Import by `__cuda_array_interface__` where there is no driver to ask."""

from __future__ import annotations

from typing import Any

import dlx
import pytest
from support.fake_producers import ADDRESS, Producer

CUDA = (2, 0)


class Shown:
    """Memory that no test reads."""

    def __init__(self, **changed: Any) -> None:
        """Say what the interface says."""
        self.interface = {
            "version": 3,
            "shape": (2, 3),
            "typestr": "<f4",
            "data": (ADDRESS, False),
            "stream": None,
        } | changed

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The dict."""
        return self.interface


class Both(Producer):
    """Has `__dlpack__` too."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Names a stream."""
        return Shown(stream=5).interface


def test_the_device_cannot_be_told() -> None:
    """The interface does not say it; the error says what does."""
    with pytest.raises(BufferError, match=r"only a driver can tell: .* pass device="):
        dlx.from_dlpack(Shown())


@pytest.mark.parametrize("device", ["cuda:0", "cuda:3"])
def test_the_device_may_be_named(device: str) -> None:
    """The caller answers for it."""
    tensor = dlx.from_dlpack(Shown(), device=device)
    assert tensor.device == device
    assert tensor.data_ptr == ADDRESS


def test_it_is_no_memory_of_the_cpu() -> None:
    """R63: `device="cpu"` needs a driver to tell."""
    with pytest.raises(BufferError, match="only a driver can tell"):
        dlx.from_dlpack(Shown(), device="cpu")


def test_a_named_stream_cannot_be_waited_for() -> None:
    """R148: so nobody is told that it was."""
    with pytest.raises(BufferError, match="could not be loaded"):
        dlx.from_dlpack(Shown(stream=5), device="cuda:0", stream=6)
    with pytest.raises(BufferError, match="could not be loaded"):
        dlx.from_dlpack(Shown(stream=5), device="cuda:0")


@pytest.mark.parametrize(("stream", "remembered"), [(5, 5), (-1, None)])
def test_what_needs_no_order_needs_no_driver(
    stream: int, remembered: int | None
) -> None:
    """R76, R81: `stream=-1`, and the stream that the interface names."""
    tensor = dlx.from_dlpack(Shown(stream=5), device="cuda:0", stream=stream)
    assert tensor.stream == remembered


def test_a_producer_with_both_orders_by_itself() -> None:
    """R84: for the default stream."""
    producer = Both(device=CUDA)
    assert dlx.from_dlpack(producer).stream == 1
    assert producer.asked["stream"] == 1


def test_an_object_without_any_protocol_is_told_of_this_one() -> None:
    """R61: the AttributeError names the interface."""
    with pytest.raises(AttributeError, match="__cuda_array_interface__"):
        dlx.from_dlpack(object())
