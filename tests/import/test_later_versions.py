"""What only a DLPack after 1.3 defines is handed on as it came, not computed with."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pytest
from support.dlpack_abi import delete, exported, from_table, table_of
from support.dlx_producers import Maker, Stored, every_producer, fields_of, inside
from support.fake_producers import Producer
from support.fake_table import BY_TABLE, table_class, without_protocol

TPU, HERE = (19, 0), (1, 0)
LATER: dict[str, dict[str, Any]] = {
    "tpu": {"device": (19, 0)},
    "tpu_host": {"device": (20, 1)},
    "ascend": {"device": (21, 0)},
    "type 99": {"device": (99, 7)},
    "bcomplex": {"dtype": (18, 32, 1)},
    "code 255": {"dtype": (255, 7, 3)},
    "both": {"device": (40, 0), "dtype": (40, 16, 1)},
}
every_later = pytest.mark.parametrize("fields", LATER.values(), ids=LATER)
by_device = pytest.mark.parametrize(
    "fields", [each for each in LATER.values() if "device" in each], ids=str
)
by_dtype = pytest.mark.parametrize(
    "fields", [each for each in LATER.values() if "dtype" in each], ids=str
)
MINORS = {0: 4, 3: 4, 4: 4, 9: 9, 2**32 - 1: 2**32 - 1}
"""The minor version of a producer, and that of exports: at least the one after 1.3."""


def later(fields: dict[str, Any], minor: int = 9) -> Producer:
    """Make a producer of a later DLPack."""
    return Producer(**fields, version=(1, minor))


@every_later
@every_producer
def test_it_goes_out_as_it_came_in(make: Maker, fields: dict[str, Any]) -> None:
    """R30, R31: every field, with an address that nothing was added to."""
    producer = later(fields | {"byte_offset": 8, "strides": (1, 2)})
    managed = exported(make(producer), stream=None)
    expected = fields_of(producer.tensor)
    if "device" not in fields:
        expected |= {"data": producer.tensor.data + 8, "byte_offset": 0}
    assert fields_of(managed.dl_tensor) == expected


@every_later
@pytest.mark.parametrize(("minor", "written"), MINORS.items())
@pytest.mark.parametrize(
    "hop", [dlx.from_dlpack, lambda x: dlx.from_dlpack(dlx.from_dlpack(x))]
)
def test_it_goes_out_with_the_minor_version_of_its_producer(
    hop: Callable[[Any], Any], fields: dict[str, Any], minor: int, written: int
) -> None:
    """R27: what DLPack 1.3 does not define is not of 1.3."""
    tensor = hop(later(fields, minor))
    for managed in exported(tensor), from_table(table_of(dlx.Tensor), tensor):
        assert (managed.version.major, managed.version.minor) == (1, written)
        assert managed.flags == 0
    delete(managed)


@pytest.mark.parametrize("flags", [1, 2, 3])
def test_flags_are_kept_beside_the_version(flags: int) -> None:
    """R42, R37: each is still itself."""
    tensor = dlx.from_dlpack(Producer(device=TPU, flags=flags, version=(1, 9)))
    assert (tensor.readonly, tensor.is_copied) == (bool(flags & 1), bool(flags & 2))
    # IS_COPIED is not handed on (R38).
    assert exported(tensor).flags == flags & 1


@pytest.mark.parametrize("minor", [4, 9])
def test_what_dlpack_1_3_defines_goes_out_as_1_3(minor: int) -> None:
    """R27: whatever the producer's version."""
    assert exported(dlx.from_dlpack(Producer(version=(1, minor)))).version.minor == 3


@every_later
def test_it_is_shown_and_compared(fields: dict[str, Any]) -> None:
    """R31, R67, R102: by the names of `DType` and `Device`."""
    tensor = dlx.from_dlpack(later(fields))
    assert tensor.dtype == dlx.DType(fields.get("dtype", (2, 32, 1)))
    assert tensor.device == dlx.Device(fields.get("device", HERE))
    assert str(tensor.dtype) in repr(tensor)
    assert str(tensor.device) in repr(tensor)
    assert str(tensor.dtype) in repr(dlx.inspect(later(fields)))


@every_later
@pytest.mark.parametrize("versioned", [True, False])
def test_it_comes_in_by_either_capsule(fields: dict[str, Any], versioned: bool) -> None:
    """R24, R31: and goes out by the same."""
    capsule = Producer(**fields).capsule(versioned=versioned)
    again = dlx.from_dlpack(capsule).__dlpack__(max_version=(1, 3))
    assert ("versioned" in repr(again)) is versioned


# Nothing is computed.

COMPUTED: dict[str, Callable[[Any], Any]] = {
    "copy": lambda t: t.to(copy=True),
    "copy for a consumer": lambda t: t.__dlpack__(copy=True),
    "move": lambda t: t.to(device="cuda:0"),
    "numpy": lambda t: t.numpy(),
    "asarray": np.asarray,
    "convert": lambda t: dlx.convert(t, np.ndarray),
    "convert a copy": lambda t: dlx.convert(t, np.ndarray, copy=True),
    "buffer": memoryview,
    "list": lambda t: t.tolist(),
    "bytes": lambda t: t.raw(),
    "like": lambda t: dlx.empty((2,), t.dtype, device=t.device),
}


BY_NUMPY = [COMPUTED[name] for name in ("numpy", "asarray", "convert")]


@every_later
@pytest.mark.parametrize("compute", COMPUTED.values(), ids=COMPUTED)
def test_its_elements_are_not_read(
    compute: Callable[[Any], Any], fields: dict[str, Any]
) -> None:
    """R31: no wrong numbers; the memory is not touched, though it can be here."""
    if fields.get("dtype") == (18, 32, 1) and compute in BY_NUMPY:
        pytest.skip("ml_dtypes has it")
    with pytest.raises((BufferError, TypeError)):
        compute(dlx.from_dlpack(later(fields)))


def test_a_library_that_has_the_dtype_shows_the_elements() -> None:
    """R104: ml_dtypes and DLPack call it alike; dlx hands the memory on."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    if not hasattr(ml_dtypes, "bcomplex32"):
        pytest.skip("this ml_dtypes has no bcomplex32")
    x = np.array([1 + 2j, -0.5], ml_dtypes.bcomplex32)
    tensor = dlx.from_dlpack(x)
    assert tensor.dtype.__dlpack_data_type__() == (18, 32, 1)
    assert tensor.numpy().tolist() == x.tolist()
    assert np.shares_memory(tensor.numpy(), x)


@by_dtype
@pytest.mark.parametrize("index", [0, slice(1), (0, 1)], ids=str)
def test_elements_that_nobody_knows_are_not_picked(
    fields: dict[str, Any], index: Any
) -> None:
    """R31, R106: later elements may be packed in another way."""
    with pytest.raises(BufferError, match=r"not defined by DLPack 1\.3"):
        dlx.from_dlpack(later(fields))[index]


@by_device
def test_a_part_is_reached_by_the_offset(fields: dict[str, Any]) -> None:
    """R95: which is in bytes; nothing is added to what may be a handle."""
    producer = later({"dtype": (2, 32, 1)} | fields | {"dtype": (2, 32, 1)})
    managed = exported(dlx.from_dlpack(producer)[1])
    assert managed.dl_tensor.data == producer.data
    assert managed.dl_tensor.byte_offset == 12
    assert managed.version.minor == 9


@by_device
def test_nothing_is_lent_where_nobody_knows_what_a_kernel_waits_for(
    fields: dict[str, Any],
) -> None:
    """R31, R71: to a block or a call."""
    with (
        pytest.raises(BufferError, match=r"after 1\.3"),
        dlx.borrow(later(fields)),
    ):
        pass
    with pytest.raises(BufferError, match=r"after 1\.3"):
        dlx.launcher(print)(later(fields))


# Nothing is ordered.


@by_device
def test_only_the_producers_own_order_counts(fields: dict[str, Any]) -> None:
    """R71, R83: it is asked without a stream, also for stream=-1."""
    for stream in None, -1:
        producer = later(fields)
        dlx.from_dlpack(producer, stream=stream)
        assert producer.asked == {"max_version": (1, 3)}


@by_device
@pytest.mark.parametrize("stream", [0, 1, 2, 7])
def test_a_stream_is_refused(fields: dict[str, Any], stream: int) -> None:
    """R71: on import and on export; dlx cannot tell what its number means."""
    with pytest.raises(BufferError, match="dlx knows no streams"):
        dlx.from_dlpack(later(fields), stream=stream)
    with pytest.raises(BufferError, match="dlx knows no streams"):
        dlx.from_dlpack(later(fields)).__dlpack__(stream=stream)
    dlx.from_dlpack(later(fields)).__dlpack__(stream=-1)


@by_device
def test_a_table_which_orders_nothing_leaves_it_to_the_protocol(
    fields: dict[str, Any],
) -> None:
    """R123, R141: unless nothing is to be ordered."""
    producer = table_class()(**fields)
    dlx.from_dlpack(producer)
    assert "__dlpack__" in producer.called
    producer = table_class()(**fields)
    dlx.from_dlpack(producer, stream=-1)
    assert producer.called == BY_TABLE
    with pytest.raises(BufferError, match="stream=-1 skips this"):
        dlx.from_dlpack(without_protocol()(**fields))


@by_device
def test_no_table_is_given_what_it_would_not_wait_for(fields: dict[str, Any]) -> None:
    """R130: `to` has a table; the call that helps is that library's own."""
    target = table_class()
    sources = later(fields), table_class()(**fields), dlx.from_dlpack(later(fields))
    for x in sources:
        with pytest.raises(BufferError, match="call the from_dlpack"):
            dlx.convert(x, target)


@by_device
@pytest.mark.parametrize("owner", [dlx.Tensor, Stored])
def test_the_tables_of_dlx_name_no_stream(owner: Any, fields: dict[str, Any]) -> None:
    """R139, R140: 0 would be a guess."""
    out = ctypes.c_void_p()
    with pytest.raises(BufferError, match="dlx knows no streams"):
        table_of(owner).current_work_stream(*fields["device"], ctypes.byref(out))


def test_a_mixin_class_hands_on_the_stream_of_its_object() -> None:
    """R141: which knows what dlx does not."""

    def seven(device_type: int, device_id: int, out: int) -> int:
        ctypes.c_void_p.from_address(out).value = 7
        return 0

    class Fresh(Stored, exchange="data"):
        pass

    producer = table_class(current_work_stream=seven)(device=TPU)
    delete(from_table(table_of(Fresh), Fresh(producer)))
    out = ctypes.c_void_p()
    assert table_of(Fresh).current_work_stream(*TPU, ctypes.byref(out)) == 0
    assert out.value == 7


def test_the_producer_may_move_what_dlx_cannot() -> None:
    """R47: to the CPU, on request."""

    class Moving(Producer):
        def __dlpack__(self, **keywords: Any) -> Any:
            if keywords.get("dl_device") == HERE:
                return Producer(flags=2).capsule()
            return super().__dlpack__(**keywords)

    tensor = dlx.from_dlpack(Moving(device=TPU), device="cpu")
    assert tensor.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_memory_of_the_callers_is_described_so_too() -> None:
    """R27: dlx is the producer of `from_pointer`."""
    tensor = dlx.from_pointer(64, (2,), "float32", device="tpu:1")
    assert inside(tensor).device == "tpu:1"
    assert exported(tensor).version.minor == 4
