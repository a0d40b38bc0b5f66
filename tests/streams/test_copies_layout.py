"""Copies of any layout by the driver: the right values, in one call each way."""

from __future__ import annotations

import ctypes
from typing import Any

import dlx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.device_arrays import on_device, values, work
from support.simulated_driver import Simulation
from support.simulated_objects import LEGACY

GRID = np.arange(6 * 8 * 10, dtype="float32").reshape(6, 8, 10)
LONG = np.arange(8 * 1024, dtype="float32").reshape(8, 1024)


@st.composite
def views(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """Draw a view of a whole array: sliced, reversed, transposed, broadcast."""
    shape = draw(st.lists(st.integers(0, 5), max_size=4))
    dtype = draw(st.sampled_from(["int8", "float16", "float32", "complex128"]))
    whole = np.arange(int(np.prod(shape)), dtype="int32").astype(dtype)
    view: np.ndarray[Any, Any] = whole.reshape(shape)
    steps = st.sampled_from([1, 2, 3, -1, -2])
    for axis in range(view.ndim):
        step = slice(draw(st.integers(0, 1)), None, draw(steps))
        if step.step < 0:
            step = slice(None, None, step.step)
        view = view[(slice(None),) * axis + (step,)]
    view = view.transpose(draw(st.permutations(range(view.ndim))))
    for axis in draw(st.sets(st.integers(0, view.ndim), max_size=2)):
        at = min(axis, view.ndim)
        more = np.expand_dims(view, at)
        extent = draw(st.integers(1, 5))
        view = np.broadcast_to(more, (*more.shape[:at], extent, *more.shape[at + 1 :]))
    return view


any_view = settings(max_examples=300, suppress_health_check=list(HealthCheck))


@any_view
@given(view=views())
def test_any_layout_goes_to_the_device(
    sim: Simulation, view: np.ndarray[Any, Any]
) -> None:
    """R59, R98: the result is contiguous and has the same elements."""
    sim.start()
    tensor = dlx.from_dlpack(view, device="cuda:0")
    assert tensor.is_contiguous
    assert tensor.shape == view.shape
    np.testing.assert_array_equal(values(sim, tensor), view)
    assert sim.races == []


@any_view
@given(view=views())
def test_any_layout_comes_from_the_device(
    sim: Simulation, view: np.ndarray[Any, Any]
) -> None:
    """R55, R98: with the same elements, moved to the CPU."""
    sim.start()
    np.testing.assert_array_equal(values(sim, on_device(sim, view)), view)
    assert sim.races == []


@any_view
@given(view=views())
def test_any_layout_is_copied_on_the_device(
    sim: Simulation, view: np.ndarray[Any, Any]
) -> None:
    """R47, R98: the copy is contiguous and has the same elements."""
    sim.start()
    tensor = on_device(sim, view).to(copy=True)
    assert tensor.is_contiguous
    np.testing.assert_array_equal(values(sim, tensor), view)
    assert sim.races == []


OVER_THE_HOST = ["copy", "copy"]


@pytest.mark.parametrize(
    ("view", "calls"),
    [
        (GRID, ["copy"]),
        (GRID[2], ["copy"]),
        (GRID[:, 1:3], OVER_THE_HOST),
        (LONG[:, 3], OVER_THE_HOST),
        (GRID[:, :, 3], OVER_THE_HOST),
        (GRID[:, :, 2:5], OVER_THE_HOST),
        (GRID[1:3, 2:5, 4:6], OVER_THE_HOST),
        (GRID[0].T, OVER_THE_HOST),
        (GRID[0, 0, ::-1], OVER_THE_HOST),
        (np.broadcast_to(GRID[0, 0], (9, 10)), OVER_THE_HOST),
    ],
    ids=[
        "whole",
        "part",
        "long rows",
        "short rows far apart",
        "column",
        "short rows",
        "box",
        "transposed",
        "reversed",
        "repeated",
    ],
)
def test_a_copy_on_the_device_takes_one_call_or_goes_over_the_host(
    sim: Simulation, view: np.ndarray[Any, Any], calls: list[str]
) -> None:
    """R47: dlx has no kernels."""
    source = on_device(sim, view)
    sim.clear_journal()
    tensor = source.to(copy=True)
    assert [call for call in work(sim) if call.startswith("copy")] == calls
    np.testing.assert_array_equal(values(sim, tensor), view)
    assert sim.races == []


@pytest.mark.parametrize(
    ("strides", "calls"),
    [
        ((80, 10, 1), ["copy between devices"]),
        ((1, 6, 48), OVER_THE_HOST),
    ],
    ids=["whole", "transposed"],
)
def test_a_copy_between_devices_names_both(
    sim: Simulation, strides: tuple[int, ...], calls: list[str]
) -> None:
    """R50: a device need not reach memory of another (`cuMemcpyPeerAsync`)."""
    whole = dlx.from_dlpack(GRID, device="cuda:0")
    view = np.lib.stride_tricks.as_strided(
        GRID, (6, 8, 10), tuple(4 * stride for stride in strides)
    )
    source = dlx.from_pointer(
        *(whole.data_ptr, (6, 8, 10), "float32"),
        strides=strides,
        device="cuda:0",
        owner=whole,
        stream=LEGACY,
    )
    sim.clear_journal()
    tensor = source.to(device="cuda:1")
    assert [call for call in work(sim) if call.startswith("copy")] == calls
    assert tensor.device == "cuda:1"
    np.testing.assert_array_equal(values(sim, tensor), view)
    assert sim.races == []


@pytest.mark.parametrize(
    "view",
    [
        GRID[:, :, 3],
        GRID[1:3, 2:5, 4:6],
        GRID[0].T,
        GRID[::-1, ::2, ::-3],
        np.broadcast_to(GRID[:, :1], GRID.shape),
    ],
    ids=["column", "box", "transposed", "reversed", "broadcast"],
)
def test_the_host_fetches_any_layout_in_one_call(
    sim: Simulation, view: np.ndarray[Any, Any]
) -> None:
    """R55: and picks the elements out."""
    source = on_device(sim, view)
    sim.clear_journal()
    fetched = source.to(device="cpu")
    copies = [call for call in work(sim) if call.startswith("copy")]
    assert len(copies) == 1
    np.testing.assert_array_equal(fetched.numpy(), view)


def packed(sim: Simulation, strides: list[int] | None) -> Any:
    """Three rows of six elements of 4 bits, whose numbers are their places."""
    memory = sim.allocate(9)
    memory.content[:] = bytes(low % 16 | (low + 1) % 16 << 4 for low in range(0, 18, 2))
    shape = (3, 6) if strides is None or strides[0] == 6 else (6, 3)
    return dlx.from_pointer(
        memory.address, shape, "uint4", strides=strides, device="cuda:0"
    )


@pytest.mark.parametrize("strides", [None, [1, 6]], ids=["compact", "transposed"])
@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_packed_elements_arrive(
    sim: Simulation, strides: list[int] | None, device: str
) -> None:
    """R107, R110: by bytes where they are compact, else by way of the host."""
    source = packed(sim, strides)
    fetched = dlx.from_dlpack(source, device=device, copy=True).to(device="cpu")
    raw = ctypes.string_at(fetched.data_ptr, 9)
    found = [nibble for byte in raw for nibble in (byte & 15, byte >> 4)]
    places = np.arange(18).reshape(3, 6) % 16
    expected = places if strides is None else places.T
    assert found == expected.ravel().tolist()
