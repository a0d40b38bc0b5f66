"""`pickle` and `copy` of `dlx.Tensor`."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import dlx
import dlx.pickling
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_producers import ADDRESS
from support.python_process import run_python
from support.random_layouts import DTYPES, taken, tensors, values

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


def out_of_band(x: object) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """Return the pickle and the buffers beside it."""
    buffers: list[pickle.PickleBuffer] = []
    return pickle.dumps(x, 5, buffer_callback=buffers.append), buffers


def through(t: dlx.Tensor, protocol: int) -> Any:
    """Return what arrives in band."""
    return pickle.loads(pickle.dumps(t, protocol))


def repeats(t: dlx.Tensor) -> bool:
    """Whether two indices are of one element."""
    moving = [axis for axis, extent in enumerate(t.shape) if extent > 1]
    offsets = {0}
    for axis in moving:
        steps = [t.strides[axis] * i for i in range(t.shape[axis])]
        offsets = {offset + step for offset in offsets for step in steps}
    return t.size > len(offsets)


@given(tensors(), st.sampled_from(PROTOCOLS))
def test_every_tensor_arrives_in_every_protocol(t: dlx.Tensor, protocol: int) -> None:
    """dlx-share/README.md, Pickling: the same bits of each element."""
    back = through(t, protocol)
    assert type(back) is dlx.Tensor
    assert (back.shape, back.dtype, back.device) == (t.shape, t.dtype, t.device)
    assert values(back) == values(t)
    assert back.is_padded == t.is_padded
    # What writes to one element writes to no other.
    assert back.readonly == (t.readonly or repeats(back))


@given(tensors())
def test_a_dense_tensor_travels_without_a_copy(t: dlx.Tensor) -> None:
    """dlx-share/README.md, Pickling: the span out of band, and the same strides."""
    text, buffers = out_of_band(t)
    back = pickle.loads(text, buffers=buffers)
    assert values(back) == values(t)
    used = taken(t.shape, t.strides, t.dtype.name, t.is_padded)
    if t.dtype.bits >= 8 and used and len(used) == max(used) - min(used) + 1:
        assert back.data_ptr == t.data_ptr
        # A row-major tensor is normal: strides of extents of 1 say nothing.
        assert t.is_contiguous or back.strides == t.strides


@given(tensors())
def test_no_byte_travels_that_is_of_no_element(t: dlx.Tensor) -> None:
    """dlx-share/README.md, Pickling: neither gaps nor what strides repeat."""
    _, [buffer] = out_of_band(t)
    assert buffer.raw().nbytes <= t.nbytes


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_arrives(dtype: str, protocol: int) -> None:
    """dlx-share/README.md, Pickling: bfloat16, float8, float4, and packed ones."""
    nbytes = dlx.empty((3, 5), dtype).nbytes
    memory = bytes(range(100, 100 + nbytes)) if nbytes < 150 else bytes(nbytes)
    t = dlx.from_buffer(bytearray(memory), (3, 5), dtype)
    back = through(t, protocol)
    assert (back.dtype, back.shape, back.readonly) == (t.dtype, (3, 5), False)
    assert back.raw() == memory


@pytest.mark.parametrize("protocol", [4, 5])
def test_a_tensor_adds_few_bytes_to_its_elements(protocol: int) -> None:
    """dlx-share/README.md, Pickling: small tensors are in band."""
    t = dlx.empty((4, 4), "bfloat16")
    assert len(pickle.dumps(t, protocol)) - t.nbytes < 140
    assert len(out_of_band(t)[0]) < 80


def test_a_view_of_much_memory_takes_its_elements_along_alone() -> None:
    """dlx-share/README.md, Pickling: not the storage around it."""
    whole = np.zeros((1000, 1000), "uint8")
    assert len(pickle.dumps(dlx.from_dlpack(whole[:, :10]), 5)) < 10_200
    assert len(pickle.dumps(dlx.from_dlpack(whole[5]), 5)) < 1_200


@pytest.mark.parametrize("step", [1, -1, 10])
def test_a_broadcast_dimension_travels_once(step: int) -> None:
    """dlx-share/README.md, Pickling: strides 0 arrive as strides 0, and read-only."""
    view = np.broadcast_to(np.arange(30.0)[::step, None], (1000, 30 // abs(step), 1000))
    text = pickle.dumps(dlx.from_dlpack(view), 5)
    assert len(text) < 350
    back = pickle.loads(text)
    assert (back.strides[0], back.strides[2], back.readonly) == (0, 0, True)
    assert np.array_equal(back.numpy(), view)


def test_windows_that_overlap_travel_once() -> None:
    """dlx-share/README.md, Pickling: a sliding window is not multiplied."""
    windows = np.lib.stride_tricks.sliding_window_view(np.arange(1000.0), 500)
    t = dlx.from_dlpack(windows)
    text = pickle.dumps(t, 5)
    assert len(text) < 8_200
    back = pickle.loads(text)
    assert (back.strides, back.readonly) == ((1, 1), True)
    assert np.array_equal(back.numpy(), windows)


# Who may write, and who holds what.


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("readonly", [False, True])
def test_read_only_stays_read_only(protocol: int, readonly: bool) -> None:
    """dlx-share/README.md, Pickling: tried by writing."""
    t = dlx.from_buffer(bytearray(8), (8,), "uint8", readonly=readonly)
    back = np.from_dlpack(through(t, protocol))
    if readonly:
        with pytest.raises(ValueError, match="read-only"):
            back[0] = 1
    else:
        back[0] = 1


def test_a_read_only_buffer_of_an_engine_stays_read_only() -> None:
    """dlx-share/README.md, Pickling: never a silent copy to make it writable."""
    text, [buffer] = out_of_band(dlx.from_buffer(bytearray(8), (2,), "float32"))
    store = bytes(buffer)
    back = pickle.loads(text, buffers=[store])
    assert back.readonly
    assert back.data_ptr == dlx.from_dlpack(store).data_ptr


def test_a_read_only_tensor_in_writable_buffers_stays_read_only() -> None:
    """dlx-share/README.md, Pickling: the flag travels, too."""
    text, [buffer] = out_of_band(dlx.from_buffer(bytes(8), (2,), "float32"))
    assert buffer.raw().readonly
    assert pickle.loads(text, buffers=[bytearray(buffer)]).readonly


def test_the_buffer_holds_the_memory_until_it_is_released() -> None:
    """dlx-share/README.md, Pickling: an engine may send it later."""
    memory = bytearray(8)
    _, [buffer] = out_of_band(dlx.from_buffer(memory, (8,), "uint8"))
    with pytest.raises(BufferError):
        memory.append(0)
    buffer.release()
    memory.append(0)


def test_one_tensor_twice_is_one_tensor() -> None:
    """dlx-share/README.md, Pickling: by the memo of pickle."""
    t = dlx.empty((2,), "float32")
    text, buffers = out_of_band([t, t])
    one, other = pickle.loads(text, buffers=buffers)
    assert one is other
    assert len(buffers) == 1


def test_two_views_of_one_memory_arrive_with_their_own() -> None:
    """dlx-share/README.md, Pickling: no tensor brings the memory of another."""
    t = dlx.from_buffer(bytearray(8), (8,), "uint8")
    one, other = pickle.loads(pickle.dumps([t, t[2:]], 5))
    np.from_dlpack(one)[2] = 7
    assert other.tolist() == [0] * 6


def test_a_misaligned_buffer_is_copied() -> None:
    """dlx-share/README.md, Pickling: dask hands out such memory."""
    t = dlx.from_dlpack(np.arange(6.0).reshape(2, 3).T)
    text, [buffer] = out_of_band(t)
    frame = bytearray(buffer.raw().nbytes + 16)
    start = next(n for n in range(8) if dlx.from_dlpack(frame).data_ptr + n & 7 == 5)
    frame[start : start + 48] = buffer.raw()
    back = pickle.loads(text, buffers=[memoryview(frame)[start : start + 48]])
    assert (back.is_copied, back.data_ptr % 8, back.strides) == (True, 0, (1, 3))
    assert back.tolist() == t.tolist()


def test_a_lent_tensor_is_pickled_in_its_block_only() -> None:
    """docs/streams.md: its memory may be gone."""
    with dlx.borrow(np.arange(3)) as (t, _):
        assert through(t, 5).tolist() == [0, 1, 2]
    with pytest.raises(BufferError, match="block that has ended"):
        pickle.dumps(t)


# Devices.


def test_memory_of_a_gpu_is_refused_with_the_two_calls_to_make() -> None:
    """dlx-share/README.md, Pickling: not silently copied to the host."""
    t = dlx.from_pointer(ADDRESS, (2,), "float32", device="cuda:1")
    with pytest.raises(BufferError) as refused:
        pickle.dumps(t)
    assert "cuda:1" in str(refused.value)
    assert 't.to(device="cpu")' in str(refused.value)
    assert 'dlx.pickling.device = "cpu"' in str(refused.value)


def test_an_unknown_setting_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """dlx-share/README.md, Pickling: a spelling mistake moves nothing."""
    monkeypatch.setattr(dlx.pickling, "device", "gpu")
    t = dlx.from_pointer(ADDRESS, (2,), "float32", device="cuda:0")
    with pytest.raises(ValueError, match="'gpu'; expected 'refuse' or 'cpu'"):
        pickle.dumps(t)


def test_pinned_memory_travels_as_that_of_the_host() -> None:
    """dlx-share/README.md, Pickling: it arrives on the CPU, and is not copied here."""
    memory = np.arange(6.0).reshape(2, 3)
    t = dlx.from_pointer(memory.ctypes.data, (2, 3), "float64", device="cuda_host")
    text, [buffer] = out_of_band(t)
    assert dlx.from_dlpack(buffer.raw()).data_ptr == memory.ctypes.data
    back = pickle.loads(text, buffers=[buffer])
    assert (back.device, back.tolist()) == ("cpu", memory.tolist())
    column = pickle.loads(pickle.dumps(t[:, 1]))
    assert (column.device, column.tolist()) == ("cpu", [1.0, 4.0])


# Copies.


def test_a_shallow_copy_is_the_tensor_itself() -> None:
    """dlx-share/README.md, Pickling: it is immutable."""
    t = dlx.empty((2,), "float32")
    assert copy.copy(t) is t
    assert copy.copy([t])[0] is t


def test_a_deep_copy_has_memory_of_its_own() -> None:
    """dlx-share/README.md, Pickling: as `copy=True`, writable and row-major."""
    t = dlx.from_dlpack(np.asfortranarray(np.arange(6).reshape(2, 3)))
    one, other = copy.deepcopy([t, t])
    assert one is other
    assert one.tolist() == t.tolist()
    assert one.data_ptr != t.data_ptr
    assert (one.is_copied, one.is_contiguous, one.readonly) == (True, True, False)


# Other picklers.


class PurePython(pickle._Pickler):
    """The pickler that is written in Python."""


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_pickler_in_python_writes_the_same(protocol: int) -> None:
    """dlx-share/README.md, Pickling: joblib's is such a one."""
    t = dlx.from_dlpack(np.arange(6.0).reshape(2, 3).T)
    file = io.BytesIO()
    PurePython(file, protocol).dump(t)
    assert pickle.loads(file.getvalue()).tolist() == t.tolist()


def test_the_module_is_imported_when_it_is_used() -> None:
    """docs/design.md: importing dlx loads neither it nor pickle."""
    code = "import dlx, sys; print({'pickle', 'dlx.pickling', 'copy'} & {*sys.modules})"
    assert run_python(code) == (0, "set()\n", "")
