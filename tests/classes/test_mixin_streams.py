"""`__dlx_stream__`, and the streams of what mixin classes export: fake devices."""

from __future__ import annotations

from ctypes import byref, c_void_p
from typing import Any

import dlx
import numpy as np
import pytest
from support.dlpack_abi import UNTOUCHED, delete, from_table, table_of, take_reference
from support.dlx_producers import ERRORS, ByMethod, Stored, with_hook
from support.fake_producers import Producer
from support.fake_table import table_class

CUDA, CUDA_1, ROCM, CPU = (2, 0), (2, 1), (10, 0), (1, 0)
HANDLE = 0x7F12_3456_7890


def current(owner: Any, device: tuple[int, int]) -> int | None:
    """What `current_work_stream` answers."""
    out = c_void_p(UNTOUCHED)
    try:
        assert table_of(owner).current_work_stream(*device, byref(out)) == 0
    except BaseException:
        assert out.value == UNTOUCHED
        raise
    return out.value


def library(stream: int, **options: Any) -> Any:
    """Make a class of a library that works on `stream` of every CUDA device."""

    def answer(device_type: int, device_id: int, out: int) -> int:
        c_void_p.from_address(out).value = stream
        return 0

    return table_class(current_work_stream=answer, **options)


@pytest.mark.parametrize("handle", [1, 2, HANDLE, 2**63 - 1])
def test_a_class_may_name_its_stream(handle: int) -> None:
    """R140: by its handle."""
    kind = with_hook("__dlx_stream__", handle)
    assert current(kind, CUDA_1) == handle
    assert kind.asked == [("cuda:1",)]
    assert type(kind.asked[0][0]) is dlx.Device


def test_a_class_may_name_the_legacy_default_stream_by_null() -> None:
    """R141: `__dlx_stream__` returns 0."""
    assert current(with_hook("__dlx_stream__", 0), CUDA) is None
    assert current(with_hook("__dlx_stream__", 0), ROCM) is None


def test_a_class_that_names_no_stream_has_the_default() -> None:
    """R141: None is no opinion."""
    kind = with_hook("__dlx_stream__", None)
    assert (current(kind, CUDA), current(kind, ROCM)) == (1, None)


@pytest.mark.parametrize("device", [CPU, (3, 0), (4, 0), (12, 0)])
def test_a_device_without_streams_is_not_asked_about(device: tuple[int, int]) -> None:
    """R139: NULL is answered without the hook."""
    kind = with_hook("__dlx_stream__", HANDLE)
    assert current(kind, device) is None
    assert kind.asked == []


NO_STREAMS = [
    *(-1, -2, True, False, "1", 1.0, np.int64(1), 2**63, -(2**70)),
    pytest.param(object(), id="object"),
]


@pytest.mark.parametrize("answer", NO_STREAMS, ids=repr)
def test_what_is_no_stream_is_a_type_error(answer: Any) -> None:
    """R74, R77, R123: naming class and method."""
    kind = with_hook("__dlx_stream__", answer)
    for device in (CUDA, ROCM):
        with pytest.raises(TypeError, match=r"Hooked\.__dlx_stream__ returned"):
            current(kind, device)


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_the_exception_of_the_hook_passes_unchanged(error: BaseException) -> None:
    """R123, R60: the very object that was raised."""
    with pytest.raises(type(error)) as caught:
        current(with_hook("__dlx_stream__", error), CUDA)
    assert caught.value is error


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_a_hook_that_fails_while_a_tensor_is_made_leaves_it_to_the_caller(
    error: BaseException,
) -> None:
    """R131, R143: neither taken nor deleted."""
    producer = Producer(device=CUDA)
    out = c_void_p(UNTOUCHED)
    table = table_of(with_hook("__dlx_stream__", error))
    address = producer.export()
    with pytest.raises(type(error)):
        table.managed_tensor_to_py_object_no_sync(address, byref(out))
    assert (out.value, producer.deleted) == (UNTOUCHED, 0)
    delete(producer.exports[-1].managed)


def test_a_tensor_that_comes_back_is_ready_on_the_named_stream() -> None:
    """R143: it remembers the stream."""
    kind = with_hook("__dlx_stream__", HANDLE)
    out = c_void_p()
    table = table_of(kind)
    table.managed_tensor_to_py_object_no_sync(
        Producer(device=CUDA).export(), byref(out)
    )
    assert take_reference(out).data.stream == HANDLE


@pytest.mark.parametrize("base", [Stored, ByMethod])
def test_the_default_is_the_stream_of_the_library_that_is_exported(base: Any) -> None:
    """R140: of the last one, where instances export different ones."""
    kind = type("Fresh", (base,), {})
    assert current(kind, CUDA) == 1
    for stream in (HANDLE, 2):
        instance = kind(library(stream)(device=CUDA))
        delete(from_table(table_of(kind), instance))
        assert current(kind, CUDA) == stream


def test_a_borrow_tells_the_stream_too() -> None:
    """R140, R143: the consumer asks for it after the borrow."""
    kind = type("Fresh", (Stored,), {})
    entry = table_of(kind).dltensor_from_py_object_no_sync
    entry(kind(library(HANDLE)(device=CUDA)), (c_void_p * 8)())
    assert current(kind, CUDA) == HANDLE


def test_exports_on_the_cpu_do_not_change_the_stream() -> None:
    """R140: it stays that of the library exported on CUDA before."""
    kind = type("Fresh", (Stored,), {})
    for device in (CUDA, CPU):
        instance = kind(library(HANDLE)(device=device))
        delete(from_table(table_of(kind), instance))
    assert current(kind, CUDA) == HANDLE


def test_each_class_has_its_own_stream() -> None:
    """R140: a subclass exports something else."""
    base = type("Base", (Stored,), {})
    child = type("Child", (base,), {})
    delete(from_table(table_of(base), base(library(HANDLE)(device=CUDA))))
    assert (current(base, CUDA), current(child, CUDA)) == (HANDLE, 1)


def test_an_own_hook_may_fall_back_on_the_default() -> None:
    """R140: `super()` follows the library that is exported."""

    class Counting(Stored):
        count = 0

        @classmethod
        def __dlx_stream__(cls, device: dlx.Device) -> int | None:
            cls.count += 1
            return super().__dlx_stream__(device)

    delete(from_table(table_of(Counting), Counting(library(HANDLE)(device=CUDA))))
    assert current(Counting, CUDA) == HANDLE
    assert Counting.count == 1


def test_the_error_of_the_library_is_the_error_of_the_class() -> None:
    """R123: a library's table fails to name a stream."""
    broken = table_class(current_work_stream=lambda device_type, device_id, out: -1)
    kind = type("Fresh", (Stored,), {})
    delete(from_table(table_of(kind), kind(broken(device=CUDA))))
    with pytest.raises(BufferError, match="no stream on cuda:0") as caught:
        current(kind, CUDA)
    assert "current_work_stream" in str(caught.value.__cause__)


@pytest.mark.parametrize("base", [Stored, ByMethod])
def test_a_producer_without_a_table_waits_for_the_stream_that_is_named(
    base: Any,
) -> None:
    """R80, R126: its work is ordered before what the table names."""
    kind = type("Named", (base,), {"__dlx_stream__": classmethod(lambda *_: HANDLE)})
    producer = Producer(device=CUDA)
    delete(from_table(table_of(kind), kind(producer)))
    assert producer.asked["stream"] == HANDLE


@pytest.mark.parametrize("base", [Stored, ByMethod])
@pytest.mark.parametrize("wrap", [lambda x: x, Stored, ByMethod])
def test_a_table_is_asked_without_order(base: Any, wrap: Any) -> None:
    """R126: its stream is named instead, also of an object within another."""
    kind = type("Fresh", (base,), {})
    producer = library(HANDLE)(device=CUDA)
    delete(from_table(table_of(kind), kind(wrap(producer))))
    assert producer.requests == []
    assert current(kind, CUDA) == HANDLE


def test_a_tensor_that_is_ready_on_another_stream_is_refused() -> None:
    """R80, R125: the order would be lost."""
    tensor = dlx.from_dlpack(Producer(device=CUDA), stream=HANDLE)
    fresh, kind = type("Fresh", (Stored,), {}), with_hook("__dlx_stream__", HANDLE)
    with pytest.raises(BufferError, match="ready on stream"):
        from_table(table_of(fresh), fresh(tensor))
    delete(from_table(table_of(kind), kind(tensor)))


def test_a_tensor_that_is_ready_on_another_stream_is_not_lent() -> None:
    """R80, R125: the borrow asks for the named stream as the export does."""
    tensor = dlx.from_dlpack(Producer(device=CUDA), stream=HANDLE)
    fresh, kind = type("Fresh", (Stored,), {}), with_hook("__dlx_stream__", HANDLE)
    out = (c_void_p * 8)()
    with pytest.raises(BufferError, match="ready on stream"):
        table_of(fresh).dltensor_from_py_object_no_sync(fresh(tensor), out)
    assert table_of(kind).dltensor_from_py_object_no_sync(kind(tensor), out) == 0


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("ready", [1, HANDLE])
def test_an_accepted_tensor_is_ready_on_the_stream_that_is_named_next(
    first: bool, ready: int
) -> None:
    """R80, R140, R143: whatever was exported before it."""
    kind = type("Fresh", (Stored,), {})
    if first:
        delete(from_table(table_of(kind), kind(library(HANDLE)(device=CUDA))))
    tensor = dlx.from_dlpack(Producer(device=CUDA), stream=ready)
    try:
        delete(from_table(table_of(kind), kind(tensor)))
    except BufferError:
        return
    assert current(kind, CUDA) == ready


def test_a_producer_without_a_table_waits_for_the_stream_that_is_named_next() -> None:
    """R80, R126, R140: whatever was exported before it."""
    kind = type("Fresh", (Stored,), {})
    delete(from_table(table_of(kind), kind(library(HANDLE)(device=CUDA))))
    producer = Producer(device=CUDA)
    delete(from_table(table_of(kind), kind(producer)))
    assert producer.asked["stream"] == current(kind, CUDA)
