"""`stream=` by device, without a GPU: fake device memory that is never read.

The tensors claim CUDA or ROCm devices; what counts is the argument that goes over.
"""

from __future__ import annotations

from typing import Any

import dlx
import numpy as np
import pytest
from support.dlx_producers import ByMethod, Maker, Stored, every_holder, every_producer
from support.fake_producers import OldProducer, Producer
from support.fake_table import table_class

CPU, CUDA, CUDA_HOST, ROCM, ROCM_HOST = (1, 0), (2, 0), (3, 0), (10, 0), (11, 0)
MANAGED, ONEAPI = (13, 0), (14, 0)
HANDLE = 0x7F12_3456_7890

OBJECT = pytest.param(object(), id="object")
NO_INTEGERS = [True, False, "1", 1.0, -1.0, np.int64(-1), OBJECT]


def cuda_tensor(**keywords: Any) -> dlx.Tensor:
    """Import a fake CUDA tensor."""
    return dlx.from_dlpack(Producer(device=CUDA), **keywords)


# Import: what the producer is told.


@pytest.mark.parametrize(
    "device", [CPU, CUDA_HOST, ROCM_HOST, ONEAPI, (8, 0), (12, 0), (18, 0)]
)
@pytest.mark.parametrize("given", [None, -1])
def test_a_producer_without_streams_is_told_none(
    device: tuple[int, int], given: int | None
) -> None:
    """R71, R87: torch and JAX want it so for pinned memory."""
    producer = Producer(device=device)
    assert dlx.from_dlpack(producer, stream=given).stream is None
    assert producer.asked == {"max_version": (1, 3)}


@pytest.mark.parametrize(
    ("device", "default"), [(CUDA, 1), ((2, 3), 1), (MANAGED, 1), (ROCM, 0)]
)
def test_the_default_stream_is_named_explicitly(
    device: tuple[int, int], default: int
) -> None:
    """R83, R84, R87: 1 on CUDA and for managed memory, 0 on ROCm."""
    producer = Producer(device=device)
    assert dlx.from_dlpack(producer).stream == default
    assert producer.asked["stream"] == default


@pytest.mark.parametrize(
    ("device", "stream"),
    [(CUDA, 1), (CUDA, 2), (CUDA, HANDLE), (MANAGED, 2), (ROCM, 0), (ROCM, HANDLE)],
)
def test_a_stream_passes_to_the_producer_and_is_remembered(
    device: tuple[int, int], stream: int
) -> None:
    """R73, R75, R83: each number that the device has."""
    producer = Producer(device=device)
    assert dlx.from_dlpack(producer, stream=stream).stream == stream
    assert producer.asked["stream"] == stream


@pytest.mark.parametrize("device", [CUDA, MANAGED, ROCM])
def test_no_order_passes_to_the_producer_and_is_no_stream(
    device: tuple[int, int],
) -> None:
    """R76: -1 is passed, and the tensor's stream is None."""
    producer = Producer(device=device)
    assert dlx.from_dlpack(producer, stream=-1).stream is None
    assert producer.asked["stream"] == -1


def test_an_old_producer_gets_the_stream_that_was_given() -> None:
    """R32, R83: as its only keyword."""
    producer = OldProducer(device=CUDA)
    dlx.from_dlpack(producer, stream=HANDLE)
    assert producer.asked == {"stream": HANDLE}


@pytest.mark.parametrize(
    ("device", "stream"),
    [
        (CUDA, 0),
        (CUDA, -2),
        (CUDA, 2**70),
        (CUDA, -(2**70)),
        (MANAGED, 0),
        (ROCM, 1),
        (ROCM, 2),
        (ROCM, -2),
        (ROCM, 2**70),
    ],
)
def test_an_integer_that_is_no_stream_is_a_bad_argument(
    device: tuple[int, int], stream: int
) -> None:
    """R74, R75, R77: the producer is not asked."""
    producer = Producer(device=device)
    with pytest.raises(ValueError, match="stream"):
        dlx.from_dlpack(producer, stream=stream)
    assert producer.exports == []


@pytest.mark.parametrize("device", [CPU, CUDA, ROCM])
@pytest.mark.parametrize("stream", NO_INTEGERS, ids=repr)
def test_what_is_no_integer_is_no_stream(device: tuple[int, int], stream: Any) -> None:
    """R78: the producer is not asked."""
    producer = Producer(device=device)
    with pytest.raises(TypeError, match="stream must be an int"):
        dlx.from_dlpack(producer, stream=stream)
    assert producer.exports == []


@pytest.mark.parametrize("device", [CPU, CUDA_HOST, ONEAPI])
@pytest.mark.parametrize("stream", [-2, 0, 1, 2, HANDLE])
def test_a_stream_is_refused_where_there_are_none(
    device: tuple[int, int], stream: int
) -> None:
    """R70, R71: the producer is not asked."""
    producer = Producer(device=device)
    with pytest.raises(BufferError, match="has no streams"):
        dlx.from_dlpack(producer, stream=stream)
    assert producer.exports == []


@pytest.mark.parametrize("stream", [None, 1, -1])
def test_the_stream_is_one_of_the_device_that_was_asked_for(stream: int | None) -> None:
    """R85: from the CPU to CUDA."""
    producer = Producer()
    with pytest.raises(BufferError, match="returned one on cpu"):
        dlx.from_dlpack(producer, device="cuda:0", stream=stream)
    assert producer.asked["stream"] == (1 if stream is None else stream)


@pytest.mark.parametrize("stream", [1, HANDLE])
def test_a_stream_of_the_source_is_refused_where_the_result_is_on_the_cpu(
    stream: int,
) -> None:
    """R55, R71, R85: before the producer is asked."""
    producer = Producer(device=CUDA)
    with pytest.raises(BufferError, match="stream"):
        dlx.from_dlpack(producer, device="cpu", stream=stream)
    assert producer.exports == []


@pytest.mark.parametrize(
    ("device", "stream"), [(CUDA, HANDLE), (MANAGED, 2), (ROCM, 0), (ONEAPI, object())]
)
@pytest.mark.parametrize("keywords", [{}, {"max_version": (1, 3)}])
def test_a_capsule_that_the_user_made_for_a_stream_is_consumed(
    device: tuple[int, int], stream: object, keywords: dict[str, Any]
) -> None:
    """array-api 829: "no function in the standard to consume the DLPack capsule"."""
    producer = Producer(device=device)
    tensor = dlx.from_dlpack(producer.__dlpack__(stream=stream, **keywords))
    assert tensor.device == dlx.Device(device)
    assert tensor.data_ptr == producer.data
    assert producer.called == ["__dlpack__"]
    assert producer.deleted == 0
    del tensor
    assert producer.deleted == 1


@pytest.mark.parametrize("stream", [1, -1, None])
def test_a_capsule_was_ordered_when_it_was_made(stream: int | None) -> None:
    """R35, R83: so `stream=` comes too late."""
    capsule = Producer(device=CUDA).capsule()
    if stream is None:
        assert dlx.from_dlpack(capsule).stream is None
    else:
        with pytest.raises(ValueError, match="does not apply to a capsule"):
            dlx.from_dlpack(capsule, stream=stream)


# Import through a table, which orders nothing.


@pytest.mark.parametrize(
    ("device", "given", "passed"),
    [(CUDA, None, 1), (CUDA, HANDLE, HANDLE), (ROCM, None, 0)],
)
def test_what_must_be_ordered_goes_from_the_table_to_the_protocol(
    device: tuple[int, int], given: int | None, passed: int
) -> None:
    """R83, R126: and the table's own export is deleted."""
    producer = table_class()(device=device)
    tensor = dlx.from_dlpack(producer, stream=given)
    assert producer.asked["stream"] == passed
    assert tensor.stream == passed
    assert producer.deleted == len(producer.exports) - 1


@pytest.mark.parametrize(("device", "stream"), [(CUDA, -1), (ROCM, -1), (CPU, None)])
def test_what_needs_no_order_comes_through_the_table_alone(
    device: tuple[int, int], stream: int | None
) -> None:
    """R76, R112: `stream=-1`, or a device without streams."""
    producer = table_class()(device=device)
    tensor = dlx.from_dlpack(producer, stream=stream)
    assert producer.calls == [("managed_tensor_from_py_object_no_sync", {})]
    assert tensor.stream is None


@pytest.mark.parametrize(
    ("device", "stream", "error"),
    [(CUDA, 0, ValueError), (CUDA, True, TypeError), (CPU, 1, BufferError)],
)
def test_a_bad_stream_is_refused_through_a_table_too(
    device: tuple[int, int], stream: Any, error: type[Exception]
) -> None:
    """R74, R78, R70: nothing that was exported stays."""
    producer = table_class()(device=device)
    with pytest.raises(error, match="stream"):
        dlx.from_dlpack(producer, stream=stream)
    assert producer.deleted == len(producer.exports)


# Export.


@every_producer
@pytest.mark.parametrize("device", [CPU, CUDA_HOST, ONEAPI])
@pytest.mark.parametrize("stream", [-2, -1, 0, 1, 2, HANDLE])
def test_an_export_of_memory_without_streams_takes_only_none(
    make: Maker, device: tuple[int, int], stream: int
) -> None:
    """R70: the error says so."""
    producer = make(Producer(device=device))
    with pytest.raises(BufferError, match="expected None"):
        producer.__dlpack__(stream=stream)


@every_producer
@pytest.mark.parametrize("device", [CPU, CUDA, ROCM])
@pytest.mark.parametrize("stream", NO_INTEGERS, ids=repr)
def test_an_export_takes_no_stream_that_is_no_integer(
    make: Maker, device: tuple[int, int], stream: Any
) -> None:
    """R78: a TypeError."""
    producer = make(Producer(device=device))
    with pytest.raises(TypeError, match="stream must be an int"):
        producer.__dlpack__(stream=stream)


@every_producer
@pytest.mark.parametrize(
    ("device", "stream"),
    [(CUDA, 0), (CUDA, -2), (CUDA, 2**70), (ROCM, 1), (ROCM, 2), (ROCM, -2)],
)
def test_an_export_takes_no_integer_that_is_no_stream(
    make: Maker, device: tuple[int, int], stream: int
) -> None:
    """R74, R75, R77: a ValueError."""
    producer = make(Producer(device=device))
    with pytest.raises(ValueError, match="stream"):
        producer.__dlpack__(stream=stream)


@every_holder
@pytest.mark.parametrize(
    ("ready", "consumer"),
    [
        (None, None),
        (None, 1),
        (1, None),
        (2, 2),
        (HANDLE, HANDLE),
        (None, -1),
        (2, -1),
        (-1, None),
        (-1, 1),
        (-1, HANDLE),
    ],
)
def test_a_cuda_tensor_goes_to_the_stream_that_it_is_ready_on(
    make: Maker, ready: int | None, consumer: int | None
) -> None:
    """R72, R76, R81: and anywhere on the word of either side that it is ordered."""
    capsule = make(cuda_tensor(stream=ready)).__dlpack__(stream=consumer)
    assert dlx.from_dlpack(capsule).device == "cuda:0"


@every_holder
@pytest.mark.parametrize(
    ("ready", "consumer"), [(None, 2), (2, None), (2, 1), (HANDLE, HANDLE + 1)]
)
def test_a_cuda_tensor_does_not_go_to_another_stream(
    make: Maker, ready: int | None, consumer: int | None
) -> None:
    """R80: dlx has no events yet, so the order would be lost."""
    with pytest.raises(BufferError, match="ready on stream"):
        make(cuda_tensor(stream=ready)).__dlpack__(stream=consumer)


@every_holder
def test_a_rocm_tensor_is_exported_for_the_default_stream(make: Maker) -> None:
    """R75: None is the default stream, which is 0."""
    producer = make(dlx.from_dlpack(Producer(device=ROCM), stream=0))
    producer.__dlpack__()
    producer.__dlpack__(stream=0)
    with pytest.raises(BufferError, match="ready on stream 0"):
        producer.__dlpack__(stream=HANDLE)


@pytest.mark.parametrize(
    ("device", "stream", "passed"),
    [
        (CPU, None, None),
        (CUDA, None, 1),
        (CUDA, 2, 2),
        (CUDA, HANDLE, HANDLE),
        (CUDA, -1, -1),
        (ROCM, None, 0),
        (MANAGED, None, 1),
        (CUDA_HOST, None, None),
    ],
)
@pytest.mark.parametrize("kind", [Stored, ByMethod])
def test_the_stream_of_a_consumer_passes_to_what_a_mixin_exports(
    kind: Any, device: tuple[int, int], stream: int | None, passed: int | None
) -> None:
    """R72, R73, R80, R83: which orders its own work."""
    producer = Producer(device=device)
    kind(producer).__dlpack__(stream=stream, max_version=(1, 3))
    assert producer.asked.get("stream") == passed


@pytest.mark.parametrize(("wanted", "accepted"), [(2, True), (-1, True), (1, False)])
def test_importing_a_tensor_of_dlx_again_keeps_the_order(
    wanted: int, accepted: bool
) -> None:
    """R80, R83: the same stream, or none; others need a driver."""
    tensor = cuda_tensor(stream=2)
    if accepted:
        assert dlx.from_dlpack(tensor, stream=wanted).data_ptr == tensor.data_ptr
    else:
        with pytest.raises(BufferError, match="ready on stream 2"):
            dlx.from_dlpack(tensor, stream=wanted)
