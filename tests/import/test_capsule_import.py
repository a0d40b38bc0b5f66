"""Capsules that dlx takes: who owns them, and that each deleter runs once."""

from __future__ import annotations

import ctypes
import gc
import mmap
from collections.abc import Callable
from ctypes import addressof, c_char, c_int, c_void_p
from typing import Any, NoReturn

import dlx
import numpy as np
import pytest
from support.dlpack_abi import (
    DLPACK_FLAG_BITMASK_IS_COPIED,
    DLManagedTensorVersioned,
    capsule_destructor,
    capsule_name,
    capsule_name_address,
    set_capsule_name,
)
from support.fake_producers import Claiming, Producer
from support.libc import untouchable

MALFORMED: dict[str, dict[str, Any]] = {
    "dtype code": {"dtype": (18, 0, 1)},
    "dtype bits": {"dtype": (2, 31, 1)},
    "dtype lanes": {"dtype": (2, 32, 0)},
    "device type": {"device": (5, 0)},
    "NULL data": {"data": 0},
    "negative extent": {"shape": (2, -1)},
    "overflow": {"shape": (2**62, 2**62)},
    "ndim": {"ndim": -1},
    "NULL shape": {"shape": None, "ndim": 2},
}

malformed = pytest.mark.parametrize(
    "fields", MALFORMED.values(), ids=list(MALFORMED.keys())
)


@pytest.fixture(params=[True, False], ids=["versioned", "legacy"])
def versioned(request: pytest.FixtureRequest) -> Any:
    """Export capsules of either kind."""
    return request.param


def fail() -> NoReturn:
    """Raise what a test catches."""
    raise KeyError("pending")


def test_a_consumed_capsule_bears_the_used_name(versioned: bool) -> None:
    """R7: the name that it had, after `used_`."""
    capsule = Producer().capsule(versioned=versioned)
    name = capsule_name(capsule)
    dlx.from_dlpack(capsule)
    assert capsule_name(capsule) == b"used_" + (name or b"")


def test_the_used_name_is_the_same_string_every_time(versioned: bool) -> None:
    """R2, R7: static, so that it outlives the capsule."""
    capsules = [Producer().capsule(versioned=versioned) for _ in range(2)]
    for capsule in capsules:
        dlx.from_dlpack(capsule)
    assert len({capsule_name_address(capsule) for capsule in capsules}) == 1


def test_the_deleter_is_called_once_when_the_tensor_dies(versioned: bool) -> None:
    """R8: and not again with the capsule."""
    producer = Producer()
    capsule = producer.capsule(versioned=versioned)
    tensor = dlx.from_dlpack(capsule)
    assert producer.deleted == 0
    del tensor
    assert producer.deleted == 1
    del capsule
    assert producer.deleted == 1


@pytest.mark.parametrize(
    "view",
    [
        lambda tensor: tensor.numpy(),
        lambda tensor: tensor.numpy()[1:],
        lambda tensor: memoryview(tensor),
        lambda tensor: tensor.__dlpack__(),
        lambda tensor: tensor.__dlpack__(max_version=(1, 3)),
        lambda tensor: tensor.to(device="cpu"),
        lambda tensor: dlx.from_dlpack(tensor.__dlpack__()),
        lambda tensor: np.from_dlpack(tensor),
    ],
    ids=[
        "numpy",
        "slice",
        "memoryview",
        "legacy",
        "versioned",
        "to",
        "again",
        "from_dlpack",
    ],
)
def test_the_deleter_waits_for_the_last_view(view: Callable[[dlx.Tensor], Any]) -> None:
    """R8: of arrays, buffers, capsules and tensors made of the tensor."""
    producer = Producer()
    kept = view(dlx.from_dlpack(producer))
    gc.collect()
    assert producer.deleted == 0
    del kept
    gc.collect()
    assert producer.deleted == 1


@pytest.mark.parametrize("data", [None, 0], ids=["accepted", "refused"])
def test_a_null_deleter_is_never_called(versioned: bool, data: int | None) -> None:
    """R9: by the tensor that was made, nor by the failure to make one."""
    capsule = Producer(deleter=None, data=data).capsule(versioned=versioned)
    if data is None:
        assert dlx.from_dlpack(capsule).numpy()[1, 2] == 5
    else:
        with pytest.raises(BufferError, match="NULL"):
            dlx.from_dlpack(capsule)


def test_a_capsule_cannot_be_consumed_twice(versioned: bool) -> None:
    """R10: the first consumer keeps the tensor."""
    producer = Producer()
    capsule = producer.capsule(versioned=versioned)
    first = dlx.from_dlpack(capsule)
    with pytest.raises(BufferError, match="already been consumed"):
        dlx.from_dlpack(capsule)
    assert producer.deleted == 0
    del first
    assert producer.deleted == 1


@pytest.mark.parametrize(
    "name", [b"", b"DLTensor", b"dltensor_versioned_2", b"arrow_array", b"\xff\xfe"]
)
def test_a_capsule_of_another_name_is_refused_as_it_is(name: bytes) -> None:
    """R10: neither renamed nor deleted."""
    producer = Producer()
    capsule = producer.capsule()
    set_capsule_name(capsule, name)
    with pytest.raises(BufferError, match="the capsule is named"):
        dlx.from_dlpack(capsule)
    assert (capsule_name(capsule), producer.deleted) == (name, 0)


def test_a_capsule_without_a_name_is_refused() -> None:
    """R10: its name is NULL."""
    capsule = Producer().capsule()
    set_name = ctypes.PYFUNCTYPE(c_int, ctypes.py_object, c_void_p)
    set_name(("PyCapsule_SetName", ctypes.pythonapi))(capsule, None)
    with pytest.raises(BufferError, match="without a name"):
        dlx.from_dlpack(capsule)


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize(
    "take", [dlx.from_dlpack, lambda x: dlx.convert(x, np.ndarray)]
)
def test_a_consumed_capsule_has_no_destructor(take: Any, versioned: bool) -> None:
    """R4, R7: it has nothing left to do, and may be slow: Warp's is in Python."""

    class Keeping(Producer):
        def __dlpack__(self, **keywords: Any) -> Any:
            self.given = super().__dlpack__(**keywords)
            return self.given

    producer = Keeping(versioned=versioned)
    tensor = take(producer)
    name = b"used_dltensor_versioned" if versioned else b"used_dltensor"
    assert capsule_name(producer.given) == name
    assert capsule_destructor(producer.given) is None
    assert producer.deleted == 0
    del tensor
    assert producer.deleted == 1


@malformed
def test_a_refused_capsule_is_still_unused(
    fields: dict[str, Any], versioned: bool
) -> None:
    """R11: so its destructor, and nobody else, calls the deleter."""
    producer = Producer(**fields)
    capsule = producer.capsule(versioned=versioned)
    name = capsule_name(capsule)
    with pytest.raises(BufferError):
        dlx.from_dlpack(capsule)
    assert (capsule_name(capsule), producer.deleted) == (name, 0)
    del capsule
    assert producer.deleted == 1


@malformed
def test_a_refused_export_of_an_object_is_deleted_once(
    fields: dict[str, Any], versioned: bool
) -> None:
    """R11: dlx holds the capsule alone, and drops it."""
    producer = Claiming(versioned=versioned, **fields)
    with pytest.raises(BufferError):
        dlx.from_dlpack(producer)
    assert (len(producer.exports), producer.deleted) == (1, 1)


def test_a_capsule_that_is_not_on_the_device_asked_for_is_deleted_once() -> None:
    """R11, R57: refused when it was consumed already."""
    producer = Producer()
    capsule = producer.capsule()
    with pytest.raises(BufferError, match="cuda:0"):
        dlx.from_dlpack(capsule, device="cuda:0")
    del capsule
    assert producer.deleted == 1


def test_an_export_that_turns_out_to_be_a_copy_is_deleted_once() -> None:
    """R11, R58: a producer that ignores `copy=False` and says so."""
    producer = Producer(flags=DLPACK_FLAG_BITMASK_IS_COPIED)
    with pytest.raises(dlx.CopyRefused):
        dlx.from_dlpack(producer, copy=False)
    assert producer.deleted == 1


def test_an_export_that_is_too_large_to_copy_is_deleted_once() -> None:
    """R11: 2**60 elements, all the same byte."""
    producer = Producer(shape=(2**60,), strides=(0,), dtype=(1, 8, 1))
    with pytest.raises(MemoryError):
        dlx.from_dlpack(producer, copy=True)
    assert producer.deleted == 1


def test_a_capsule_that_its_producer_drops_by_raising_is_deleted_once() -> None:
    """R11: by its destructor, with an exception pending."""

    class Raising(Producer):
        def __dlpack__(self, **keywords: Any) -> Any:
            return super().__dlpack__(**keywords), fail()

    producer = Raising()
    with pytest.raises(KeyError, match="pending"):
        dlx.from_dlpack(producer)
    assert (len(producer.exports), producer.deleted) == (1, 1)


@pytest.mark.parametrize(
    "wrong", [{"device": "nonsense"}, {"device": 1.5}, {"stream": 1}, {"copy": "yes"}]
)
def test_a_bad_argument_leaves_the_capsule_alone(wrong: dict[str, Any]) -> None:
    """R11: arguments are read before the capsule is consumed."""
    producer = Producer()
    capsule = producer.capsule()
    with pytest.raises((TypeError, ValueError)):
        dlx.from_dlpack(capsule, **wrong)
    assert (capsule_name(capsule), producer.deleted) == (b"dltensor_versioned", 0)


def test_imported_elements_outlive_the_capsule(versioned: bool) -> None:
    """R18: the tensor has taken them over."""
    capsule = Producer().capsule(versioned=versioned)
    tensor = dlx.from_dlpack(capsule)
    del capsule
    gc.collect()
    assert tensor.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_nothing_behind_flags_is_touched_where_the_major_version_is_unknown() -> None:
    """R29: `dl_tensor` lies in a page that cannot be read."""
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    border = addressof(c_char.from_buffer(pages)) + mmap.PAGESIZE
    start = border - DLManagedTensorVersioned.dl_tensor.offset
    producer = Producer(version=(2, 0), managed_at=start)
    capsule = producer.capsule()
    with untouchable(border):
        with pytest.raises(BufferError, match=r"version 2\.0"):
            dlx.from_dlpack(capsule)
        del capsule
    assert producer.deleted == 1
