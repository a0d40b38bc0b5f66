"""Arrays of oneAPI, by producers that answer as dpnp does: host memory and queues.

`tests/oneapi` says the same of dpctl and dpnp themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pytest
from support.alias_producers import (
    CPU,
    CUDA,
    ONEAPI,
    Queue,
    TwoNames,
    Usm,
    aliases,
    names,
)
from support.dlx_producers import Stored
from support.fake_producers import Producer
from support.fake_table import table_class

host_memory = pytest.mark.parametrize("usm_type", ["host", "shared"])
IMPORTS: dict[str, Callable[[Any], dlx.Tensor]] = {
    "from_dlpack": lambda x: dlx.from_dlpack(x, device="cpu"),
    "copy=False": lambda x: dlx.from_dlpack(x, device=("cpu", 0), copy=False),
    "mixin": lambda x: dlx.from_dlpack(Stored(x), device="cpu"),
    "convert": lambda x: dlx.convert(x, dlx.Tensor, device="cpu"),
    "to": lambda x: dlx.from_dlpack(x).to(device="cpu"),
    "tensor": lambda x: dlx.from_dlpack(dlx.from_dlpack(x), device="cpu"),
    "capsule": lambda x: dlx.from_dlpack(
        dlx.from_dlpack(x).__dlpack__(max_version=(1, 3), dl_device=CPU)
    ),
    "mixin capsule": lambda x: dlx.from_dlpack(
        Stored(x).__dlpack__(max_version=(1, 3), dl_device=CPU)
    ),
}
every_import = pytest.mark.parametrize("take", IMPORTS.values(), ids=IMPORTS)


# The CPU.


@every_import
@host_memory
def test_host_memory_comes_to_the_cpu_as_it_is(
    take: Callable[[Any], dlx.Tensor], usm_type: str
) -> None:
    """R49, R54, R55: no element moves, and the queue has been waited for."""
    producer = Usm(usm_type=usm_type)
    tensor = take(producer)
    assert (str(tensor.device), tensor.data_ptr) == ("cpu", producer.data)
    assert not tensor.is_copied
    assert tensor.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert producer.sycl_queue.waited == 1
    assert all("dl_device" not in asked for asked in producer.requests)


@host_memory
def test_host_memory_shows_that_it_is_on_the_cpu_too(usm_type: str) -> None:
    """And the tensor on the CPU that it is oneAPI's; to look waits for nothing."""
    producer = Usm(usm_type=usm_type)
    tensor = dlx.from_dlpack(producer)
    assert names(tensor) == ("oneapi:0", ("cpu",))
    assert producer.sycl_queue.waited == 0
    assert aliases(tensor.to(device="cpu")) == ("oneapi:0",)


def test_other_names_are_shown_beside_the_cpu() -> None:
    """A runtime may know both."""

    class Both(Usm):
        def __dlpack_device_aliases__(self) -> Any:
            return [CUDA]

    assert aliases(dlx.from_dlpack(Both())) == ("cuda:0", "cpu")


def test_numpy_takes_host_memory_without_a_copy() -> None:
    """R57: `dlx.convert`."""
    producer = Usm()
    array = dlx.convert(producer, np.ndarray, device="cpu", copy=False)
    assert array.ctypes.data == producer.data


def test_a_copy_of_host_memory_is_made_by_dlx() -> None:
    """R59: after it has waited for the queue."""
    producer = Usm()
    tensor = dlx.from_dlpack(producer, device="cpu", copy=True)
    assert tensor.is_copied
    assert tensor.data_ptr != producer.data
    assert aliases(tensor) == ()
    assert producer.sycl_queue.waited == 1


@pytest.mark.parametrize("usm_type", ["device", "unknown", None, 3])
def test_memory_of_the_device_alone_is_copied_by_its_producer(usm_type: Any) -> None:
    """R57: what it gives for `dl_device` is used."""
    producer = Usm(usm_type=usm_type)
    tensor = dlx.from_dlpack(producer, device="cpu")
    assert (str(tensor.device), tensor.is_copied) == ("cpu", True)
    assert producer.asked["dl_device"] == CPU
    assert aliases(dlx.from_dlpack(producer)) == ()


def test_a_copy_that_nobody_allowed_is_refused_with_both_devices() -> None:
    """R48, R58: memory of the device alone."""
    with pytest.raises(dlx.CopyRefused, match="on oneapi:0 and not on cpu"):
        dlx.from_dlpack(Usm(usm_type="device"), device="cpu", copy=False)


def test_an_exception_of_the_queue_passes_and_nothing_leaks() -> None:
    """R60: a kernel failed, say."""
    error = RuntimeError("device lost")

    class Lost(Queue):
        def wait(self) -> None:
            raise error

    producer = Usm(sycl_queue=Lost())
    with pytest.raises(RuntimeError) as caught:
        dlx.from_dlpack(producer, device="cpu")
    assert caught.value is error
    assert producer.deleted == 1


def test_memory_without_a_queue_to_wait_for_is_not_taken_for_ready() -> None:
    """R55: so the producer makes the copy."""
    producer = Usm(sycl_queue=None)
    assert dlx.from_dlpack(producer, device="cpu").is_copied


def test_an_array_that_is_elsewhere_than_it_says_is_refused() -> None:
    """R64: it is not taken for host memory."""

    class Lying(Usm):
        def __dlpack_device__(self) -> tuple[int, int]:
            return (14, 1)

    producer = Lying()
    with pytest.raises(BufferError, match="oneapi:1 and returned one on oneapi:0"):
        dlx.from_dlpack(producer, device="cpu")
    assert producer.deleted == 1


# Other devices.


@pytest.mark.parametrize("device", ["cuda:1", ("cuda", 1), (2, 1)])
def test_another_device_is_had_where_the_producer_gives_it(device: Any) -> None:
    """R57: an array of oneAPI on a CUDA card, with a stream of CUDA."""
    producer = TwoNames(aliases=[(2, 1)])
    tensor = dlx.from_dlpack(producer, device=device)
    assert (str(tensor.device), tensor.data_ptr) == ("cuda:1", producer.data)
    assert producer.asked == {
        "max_version": (1, 3),
        "dl_device": (2, 1),
        "stream": 1,
    }


@pytest.mark.parametrize("there", ["cuda:0", "cpu"])
@pytest.mark.parametrize(
    "error",
    [
        BufferError("no"),
        ValueError("no"),
        RuntimeError("no"),
        NotImplementedError("no"),
        TypeError("unexpected keyword argument 'dl_device'"),
    ],
    ids=repr,
)
def test_a_refusal_names_both_devices(error: Exception, there: str) -> None:
    """R52: a `BufferError` whose cause is what the producer raised."""
    producer = TwoNames(aliases=[], refusal=error)
    with pytest.raises(BufferError, match=f"is on oneapi:0, .* to {there}") as caught:
        dlx.from_dlpack(producer, device=there)
    assert caught.value.__cause__ is error


def test_an_exception_that_is_no_refusal_passes() -> None:
    """R60: the very object that was raised."""
    error = MemoryError()
    with pytest.raises(MemoryError) as caught:
        dlx.from_dlpack(TwoNames(aliases=[], refusal=error), device="cpu")
    assert caught.value is error


def test_a_producer_that_ignores_dl_device_is_refused_with_both_devices() -> None:
    """R57: the error names both."""
    with pytest.raises(BufferError, match="on cuda:0 and returned one on oneapi:0"):
        dlx.from_dlpack(Producer(device=ONEAPI), device="cuda:0")


# stream=.


@pytest.mark.parametrize("make", [lambda x: x, Stored])
def test_a_queue_goes_to_the_producer_as_it_is(make: Any) -> None:
    """R83: the object itself, of the producer's own or of the consumer."""
    producer = Usm()
    for queue in [producer.sycl_queue, Queue()]:
        tensor = dlx.from_dlpack(make(producer), stream=queue)
        assert tensor.stream is None
        assert producer.requests[-1]["stream"] is queue
        assert make(producer).__dlpack__(stream=queue) is not None
        assert producer.requests[-1]["stream"] is queue


def test_a_queue_goes_past_a_table() -> None:
    """R83: a table orders nothing."""
    kind: Any = type("Kind", (table_class(), Usm), {})
    producer = kind()
    dlx.from_dlpack(producer)
    assert producer.requests == []
    dlx.from_dlpack(producer, stream=producer.sycl_queue)
    assert producer.asked["stream"] is producer.sycl_queue


@pytest.mark.parametrize("stream", [None, -1])
def test_no_order_is_no_queue(stream: int | None) -> None:
    """R71, R76: `stream` is not passed at all."""
    producer = Usm()
    dlx.from_dlpack(producer, stream=stream)
    assert "stream" not in producer.asked


@pytest.mark.parametrize("stream", [0, 1, 2, -2, True, "queue", object(), 1.0])
def test_what_is_no_queue_is_a_type_error(stream: object) -> None:
    """R78: it says what is accepted, and the producer is not asked."""
    producer = Usm()
    with pytest.raises(
        TypeError, match=r"oneapi:0 expects a queue \(support.alias_producers.Queue\)"
    ):
        dlx.from_dlpack(producer, stream=stream)
    assert producer.requests == []


@pytest.mark.parametrize("stream", [1, "queue", Queue()])
def test_a_producer_without_a_queue_takes_none(stream: object) -> None:
    """R70: the only stream accepted is None."""
    with pytest.raises((BufferError, TypeError), match="None"):
        dlx.from_dlpack(
            Producer(device=ONEAPI),
            stream=stream,
        )


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_a_queue_is_refused_for_another_device(device: str) -> None:
    """R85: the stream belongs to the device that is asked for."""
    producer = Usm()
    with pytest.raises(TypeError, match="Queue"):
        dlx.from_dlpack(
            producer,
            device=device,
            stream=producer.sycl_queue,
        )
    assert producer.requests == []
