"""What the exchange tables of dlx make: objects, tensors, stream handles."""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from ctypes import addressof, byref, c_void_p
from typing import Any

import pytest
from support.dlpack_abi import (
    UNTOUCHED,
    Allocation,
    DLManagedTensorVersioned,
    delete,
    table_of,
    take_reference,
)
from support.dlx_producers import OWNERS, every_table, inside
from support.fake_producers import Producer, row_major
from support.libc import untouchable

ALIGNMENT = 256


def take_over(owner: Any, address: int | None) -> Any:
    """Object that the table of `owner` makes of a managed tensor."""
    out, table = c_void_p(), table_of(owner)
    assert table.managed_tensor_to_py_object_no_sync(address, byref(out)) == 0
    return take_reference(out)


# managed_tensor_to_py_object_no_sync


@every_table
def test_the_made_object_is_of_the_class_and_over_the_same_memory(owner: Any) -> None:
    """R130: shape, strides, dtype and address are those of the tensor."""
    producer = Producer(strides=(1, 2))
    made = take_over(owner, producer.export())
    assert type(made) is owner
    tensor = inside(made)
    assert (tensor.data_ptr, tensor.shape) == (producer.data, (2, 3))
    assert (tensor.strides, str(tensor.dtype)) == ((1, 2), "float32")


@every_table
def test_success_steals_the_tensor_until_the_object_dies(owner: Any) -> None:
    """R130, R8: the one reference returned is the last."""
    producer = Producer()
    made = take_over(owner, producer.export())
    assert producer.deleted == 0
    del made
    assert producer.deleted == 1


REFUSED: dict[str, dict[str, Any]] = {
    "major 2": {"version": (2, 0)},
    "major 0": {"version": (0, 8)},
    "code 18 of 0 bits": {"dtype": (18, 0, 1)},
    "float8 of 7 bits": {"dtype": (10, 7, 1)},
    "no lanes": {"dtype": (2, 32, 0)},
    "device type 5": {"device": (5, 0)},
    "negative extent": {"shape": (2, -1)},
    "negative ndim": {"ndim": -1},
    "65 dimensions": {"shape": (1,) * 65},
    "NULL shape": {"shape": None, "ndim": 2},
    "NULL data": {"data": 0},
    "overflow": {"shape": (2**62, 2**62)},
}


@every_table
@pytest.mark.parametrize("fields", REFUSED.values(), ids=REFUSED)
def test_a_refused_tensor_stays_the_callers(owner: Any, fields: dict[str, Any]) -> None:
    """R131, R132, R123: untouched, to be deleted by the caller as ever."""
    producer = Producer(**fields)
    address = producer.export()
    managed = DLManagedTensorVersioned.from_address(address)
    before = bytes(managed)
    out = c_void_p(UNTOUCHED)
    with pytest.raises(BufferError):
        table_of(owner).managed_tensor_to_py_object_no_sync(address, byref(out))
    assert out.value == UNTOUCHED
    assert producer.deleted == 0
    assert bytes(managed) == before
    delete(managed)
    assert producer.deleted == 1


@every_table
def test_nothing_behind_the_flags_of_major_2_is_read(owner: Any) -> None:
    """R29, R132: the tensor itself is on a page that cannot be read."""
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    edge = addressof(ctypes.c_char.from_buffer(pages)) + mmap.PAGESIZE
    start = edge - DLManagedTensorVersioned.dl_tensor.offset
    address = Producer(version=(2, 0), managed_at=start).export()
    make = table_of(owner).managed_tensor_to_py_object_no_sync
    with untouchable(edge), pytest.raises(BufferError, match=r"version 2\.0"):
        make(address, byref(c_void_p()))


@every_table
def test_null_in_place_of_a_tensor_is_a_buffer_error(owner: Any) -> None:
    """R123: never a crash."""
    out = c_void_p(UNTOUCHED)
    with pytest.raises(BufferError, match="NULL"):
        table_of(owner).managed_tensor_to_py_object_no_sync(None, byref(out))
    assert out.value == UNTOUCHED


@every_table
@pytest.mark.parametrize("readonly", [False, True])
def test_read_only_is_kept(owner: Any, readonly: bool) -> None:
    """R133: and so is writable."""
    made = take_over(owner, Producer(flags=int(readonly)).export())
    assert inside(made).readonly is readonly


@every_table
@pytest.mark.parametrize(
    "fields",
    [{"version": (1, 99)}, {"strides": None}, {"deleter": None}],
    ids=["newer minor", "NULL strides", "NULL deleter"],
)
def test_what_dlpack_lets_a_producer_do_is_accepted(
    owner: Any, fields: dict[str, Any]
) -> None:
    """R30, R90, R9: a newer minor version, NULL strides, a NULL deleter."""
    producer = Producer(**fields)
    tensor = inside(take_over(owner, producer.export()))
    assert (tensor.data_ptr, tensor.strides) == (producer.data, (3, 1))


@every_table
@pytest.mark.parametrize(("device", "stream"), [((1, 0), None), ((2, 1), 1)])
def test_the_made_object_is_ready_on_the_stream_that_the_table_names(
    owner: Any, device: tuple[int, int], stream: int | None
) -> None:
    """R143: the caller worked on what `current_work_stream` said."""
    made = take_over(owner, Producer(device=device).export())
    assert inside(made).stream == stream


# managed_tensor_allocator


@pytest.fixture
def allocation(request: pytest.FixtureRequest) -> Iterator[Allocation]:
    """An allocation that succeeds, freed at the end; parametrized indirectly."""
    owner, arguments = request.param
    made = Allocation(owner, *arguments)
    assert made.code == 0
    yield made
    made.delete()


ALLOCATED: list[Any] = [
    ((3, 5),),
    ((),),
    ((1,), (6, 8, 1)),
    ((4, 0, 2), (0, 64, 1)),
    ((1,) * 64, (5, 128, 1)),
    ((7,), (17, 4, 1)),
    ((7, 3), (2, 16, 4)),
    ((1000, 1000), (4, 16, 1)),
]
allocated = pytest.mark.parametrize(
    "allocation",
    [(owner, arguments) for owner in OWNERS for arguments in ALLOCATED],
    ids=lambda param: f"{param[0].__name__}-{param[1]}",
    indirect=True,
)


@allocated
def test_new_memory_is_aligned(allocation: Allocation) -> None:
    """R96: by 256 bytes."""
    assert (allocation.managed.dl_tensor.data or 0) % ALIGNMENT == 0


@allocated
def test_nothing_is_reported_on_success(allocation: Allocation) -> None:
    """R135: SetError is called for failures alone."""
    assert allocation.errors == []


@allocated
def test_new_memory_is_writable_to_its_last_byte(allocation: Allocation) -> None:
    """R138: a heap overrun aborts when the deleter frees the memory."""
    tensor = allocation.managed.dl_tensor
    bits = tensor.dtype.bits * tensor.dtype.lanes
    size = (math.prod(tensor.shape[: tensor.ndim]) * bits + 7) // 8
    assert ctypes.memset(tensor.data, 0xFF, size) == tensor.data


@every_table
@pytest.mark.parametrize("dtype", [(2, 32, 1), (17, 4, 1), (0, 64, 2)])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (2, 0, 4)], ids=str)
def test_the_new_tensor_is_what_the_prototype_asks(
    owner: Any, shape: tuple[int, ...], dtype: tuple[int, int, int]
) -> None:
    """R134, R138, R89: only dtype, ndim, shape and device are read."""
    made = Allocation(owner, shape, dtype)
    managed, tensor = made.managed, made.managed.dl_tensor
    assert (managed.version.major, managed.version.minor) == (1, 3)
    assert managed.flags == 0
    assert managed.deleter
    assert (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) == dtype
    assert (tensor.device.device_type, tensor.device.device_id) == (1, 0)
    assert tensor.shape[: tensor.ndim] == list(shape)
    assert tensor.strides[: tensor.ndim] == row_major([max(n, 1) for n in shape])
    assert tensor.byte_offset == 0
    made.delete()


@every_table
def test_a_device_id_is_kept_or_refused(owner: Any) -> None:
    """R138, R66: a tensor asked for on cpu:7 is not given on cpu:0."""
    made = Allocation(owner, (2,), device=(1, 7))
    if made.code == 0:
        found = made.managed.dl_tensor.device.device_id
        made.delete()
        assert found == 7
    else:
        assert [kind for _, kind, _ in made.errors] == [b"BufferError"]


@every_table
def test_an_empty_tensor_has_no_memory(owner: Any) -> None:
    """R93: its `data` is NULL."""
    made = Allocation(owner, (3, 0))
    assert made.managed.dl_tensor.data is None
    made.delete()


FAILURES: dict[str, tuple[dict[str, Any], bytes, str]] = {
    "negative extent": ({"shape": (2, -1)}, b"BufferError", "negative"),
    "cuda": ({"shape": (2,), "device": (2, 0)}, b"BufferError", "cuda:0"),
    "device type 99": ({"shape": (2,), "device": (99, 0)}, b"BufferError", "99"),
    "no memory": ({"shape": (2**60,)}, b"MemoryError", str(2**62)),
    "overflow": ({"shape": (2**62,)}, b"BufferError", str(2**62)),
    "code 99": ({"shape": (2,), "dtype": (99, 8, 1)}, b"BufferError", "99"),
    "no lanes": ({"shape": (2,), "dtype": (2, 32, 0)}, b"BufferError", "lanes"),
    "65 dimensions": ({"shape": (1,) * 65}, b"BufferError", "65"),
    "negative ndim": ({"shape": (), "ndim": -1}, b"BufferError", "-1"),
    "NULL shape": ({"shape": None, "ndim": 2}, b"BufferError", "NULL"),
}
every_failure = pytest.mark.parametrize(
    ("arguments", "kind", "message"), FAILURES.values(), ids=FAILURES
)


@every_table
@every_failure
def test_a_failure_is_reported_exactly_once(
    owner: Any, arguments: dict[str, Any], kind: bytes, message: str
) -> None:
    """R135, R136: to SetError, with the caller's context; `out` stays as it was."""
    failed = Allocation(owner, **arguments)
    assert (failed.code, failed.address) == (-1, UNTOUCHED)
    [(context, reported, text)] = failed.errors
    assert (context, reported) == (0xC0, kind)
    assert message in text.decode()


@every_table
@every_failure
def test_a_failure_without_set_error_is_survived(
    owner: Any, arguments: dict[str, Any], kind: bytes, message: str
) -> None:
    """R137: SetError is NULL; the allocator answers -1."""
    failed = Allocation(owner, **arguments, reports=False)
    assert (failed.code, failed.address) == (-1, UNTOUCHED)


@every_table
def test_threads_without_the_gil_allocate_and_free(owner: Any) -> None:
    """R136, R145: ctypes lets go of the GIL for each call."""

    def work(number: int) -> bool:
        made = Allocation(owner, (number, 3))
        right: bool = made.managed.dl_tensor.shape[:2] == [number, 3]
        made.delete()
        return right and Allocation(owner, (-number,)).code == -1

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(1, 401)))


# current_work_stream


@every_table
@pytest.mark.parametrize(
    ("device", "stream"),
    [((1, 0), None), ((3, 0), None), ((2, 0), 1), ((2, 3), 1), ((10, 0), None)],
    ids=str,
)
def test_the_current_stream_is_the_default_one(
    owner: Any, device: tuple[int, int], stream: int | None
) -> None:
    """R139, R141: NULL on the CPU, the legacy default stream on CUDA, 0 on ROCm."""
    out = c_void_p(UNTOUCHED)
    assert table_of(owner).current_work_stream(*device, byref(out)) == 0
    assert out.value == stream
