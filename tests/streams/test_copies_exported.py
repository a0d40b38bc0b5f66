"""`dl_device=` and `copy=` of dlx's own exports and conversions, and captures."""

from __future__ import annotations

from typing import Any

import dlx
import numpy as np
import pytest
from support.cuda_producers import (
    CudaArray,
    DLPackArray,
    Framework,
    TableArray,
    framework,
)
from support.device_arrays import on_device, values
from support.dlpack_abi import DLPACK_FLAG_BITMASK_IS_COPIED, delete, take
from support.simulated_driver import Simulation
from support.simulated_kernels import read, refused
from support.simulated_objects import LEGACY

ARRAY = np.arange(12, dtype="float32").reshape(3, 4)


# As a producer.


def test_an_export_as_a_copy_is_made_on_the_stream_of_the_consumer(
    sim: Simulation,
) -> None:
    """R37, R47, R50, R72: also if that is the legacy stream, which None names."""
    tensor, s = (
        dlx.from_dlpack(ARRAY, device="cuda:0", stream=sim.stream()),
        sim.stream(),
    )
    for stream in (s, sim.default_stream(LEGACY)):
        given = None if stream.handle == LEGACY else stream.handle
        capsule = tensor.__dlpack__(stream=given, copy=True, max_version=(1, 3))
        managed = take(capsule)
        assert managed.dl_tensor.data != tensor.data_ptr
        assert managed.flags == DLPACK_FLAG_BITMASK_IS_COPIED
        stream.launch(True, managed.dl_tensor.data, tensor.nbytes)
        stream.synchronize()
        delete(managed)
    assert values(sim, tensor).tolist() == ARRAY.tolist()
    assert sim.races == []


def test_an_export_goes_to_the_host_and_to_a_device(sim: Simulation) -> None:
    """R54, R55: the elements are complete on the host, in stream order on a device."""
    tensor = dlx.from_dlpack(ARRAY, device="cuda:0", stream=sim.stream())
    host = dlx.from_dlpack(tensor.__dlpack__(dl_device=(1, 0), max_version=(1, 3)))
    sim.host_read(host.data_ptr, host.nbytes)
    assert host.numpy().tolist() == ARRAY.tolist()
    managed = take(host.__dlpack__(dl_device=(2, 0), stream=LEGACY, max_version=(1, 3)))
    assert managed.dl_tensor.device.device_type == 2
    delete(managed)
    assert sim.races == []


@pytest.mark.parametrize("stream", [LEGACY, -1, 5])
def test_an_export_to_the_host_takes_no_stream(sim: Simulation, stream: int) -> None:
    """R55, R70: `dl_device=(1, 0)` with a stream is refused."""
    tensor = dlx.from_dlpack(ARRAY, device="cuda:0")
    with pytest.raises(BufferError, match="cpu has no streams"):
        tensor.__dlpack__(dl_device=(1, 0), stream=stream)


def test_an_export_elsewhere_without_a_copy_is_refused(sim: Simulation) -> None:
    """R48, R54: `dl_device=(1, 0), copy=False` for memory of a device."""
    tensor = dlx.from_dlpack(ARRAY, device="cuda:0")
    with pytest.raises(dlx.CopyRefused):
        tensor.__dlpack__(dl_device=(1, 0), copy=False)


def test_numpy_gets_a_tensor_of_a_device(sim: Simulation) -> None:
    """R57: by `convert`, ready on its stream."""
    tensor = dlx.from_dlpack(ARRAY, device="cuda:0", stream=sim.stream())
    array = dlx.convert(tensor, np.ndarray, device="cpu")
    sim.host_read(array.ctypes.data, array.nbytes)
    assert array.tolist() == ARRAY.tolist()
    assert sim.races == []


class Kept:
    """A class whose importer keeps what it is given, for the default stream."""

    def __init__(self, tensor: dlx.Tensor) -> None:
        """Keep it."""
        self.tensor = tensor

    @classmethod
    def from_dlpack(cls, tensor: dlx.Tensor) -> Kept:
        """Import."""
        return cls(tensor)

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export."""
        return self.tensor.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Say where it is."""
        return self.tensor.__dlpack_device__()


@pytest.mark.parametrize("base", [TableArray, DLPackArray])
def test_an_importer_gets_a_tensor_that_its_stream_waits_for(
    sim: Simulation, base: type[CudaArray]
) -> None:
    """R83: also of a table, which does not order."""
    library = framework(base)
    with library.stream(sim.stream()):
        made = dlx.convert(library.full((4,)), Kept)
    read(sim.default_stream(LEGACY), made.tensor)
    assert sim.races == []


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_a_library_gets_what_was_on_the_host_or_a_device(
    sim: Simulation, library: Framework, device: str
) -> None:
    """R50, R57, R83: on the stream that it works on, so it goes on without waiting."""
    with library.stream(sim.stream()):
        source = dlx.from_dlpack(ARRAY, device=device)
        array = dlx.convert(source, library.Array, device="cuda:0", copy=True)
        array += 1
        assert array.tolist() == (ARRAY + 1).ravel().tolist()
    assert sim.races == []


# Captures.


def test_a_copy_is_refused_while_its_stream_captures(sim: Simulation) -> None:
    """H6: a graph would own the memory, and the host cannot wait for it."""
    tensor, s = dlx.from_dlpack(ARRAY, device="cuda:0"), sim.stream()
    ready = on_device(sim, ARRAY, stream=s)
    with s.capture():
        for make in (
            lambda: ready.to(device="cpu"),
            lambda: dlx.from_dlpack(ARRAY, device="cuda:0", stream=s),
            lambda: dlx.from_dlpack(tensor, copy=True, stream=s),
            lambda: tensor.__dlpack__(copy=True, stream=s.handle),
        ):
            with refused(s, match="captures a graph"):
                make()
        with dlx.stream(s, device="cuda:0"), refused(s, match="captures a graph"):
            dlx.empty(3, "float32", device="cuda:0")
    assert sim.races == []


def test_the_legacy_stream_is_refused_while_another_one_captures(
    sim: Simulation,
) -> None:
    """H6 (906): copies use the legacy stream where none is named."""
    tensor, s = dlx.from_dlpack(ARRAY, device="cuda:0"), sim.stream(blocking=True)
    with s.capture():
        with refused(s, match="captures a graph"):
            tensor.to(device="cpu")
        with refused(s, match="captures a graph"):
            dlx.from_dlpack(ARRAY, device="cuda:0")


def test_a_copy_on_another_stream_leaves_a_capture_alone(sim: Simulation) -> None:
    """H6: a copy to the device while another stream captures."""
    s, other = sim.stream(), sim.stream()
    with other.capture(2):
        tensor = dlx.from_dlpack(ARRAY, device="cuda:0", stream=s)
        assert values(sim, tensor).tolist() == ARRAY.tolist()
