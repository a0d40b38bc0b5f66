"""ROCm, on the simulation: what the other files try on CUDA, by HIP."""

from __future__ import annotations

from ctypes import addressof, c_void_p

import dlx
import pytest
from support.cuda_producers import DLPackArray, Framework, TableArray, framework
from support.dlpack_abi import table_of
from support.simulated_driver import RELEASE, Simulation
from support.simulated_kernels import until, write

ROCM = 10


@pytest.fixture
def rocm(sim: Simulation) -> Framework:
    """Give a library on devices of ROCm, with a table."""
    return framework(TableArray, hip=True)


def hip_read(sim: Simulation, stream: int, tensor: dlx.Tensor) -> None:
    """Queue a kernel that reads."""
    sim.call("hip_sim_launch", stream, 0, tensor.data_ptr, tensor.nbytes)


@pytest.mark.parametrize("base", [TableArray, DLPackArray])
def test_an_import_on_rocm_is_ordered_by_hip(
    sim: Simulation, base: type[DLPackArray]
) -> None:
    """R75, R80: and no function of CUDA is called."""
    library = framework(base, hip=True)
    p, s = sim.stream(hip=True), sim.stream(hip=True)
    with library.stream(p):
        array = library.full((4,))
        sim.clear_journal()
        tensor = dlx.from_dlpack(array, stream=s)
        hip_read(sim, s.handle, tensor)
    assert sim.called()
    assert all(name.startswith("hip") for name in sim.called())
    assert sim.races == []


@pytest.mark.parametrize("stream", [1, 2])
def test_the_default_streams_of_cuda_are_none_of_rocm(
    sim: Simulation, rocm: Framework, stream: int
) -> None:
    """R75: nothing is called."""
    array = rocm.full((4,))
    sim.clear_journal()
    with pytest.raises(ValueError, match=f"stream is {stream}; expected on rocm:0"):
        dlx.from_dlpack(array, stream=stream)
    assert sim.called() == []


def test_the_default_stream_of_rocm_is_0(sim: Simulation, rocm: Framework) -> None:
    """R75, R84: 0 is accepted, remembered and passed on."""
    s, array = sim.stream(hip=True), rocm.full((4,))
    tensor = dlx.from_dlpack(array, stream=0)
    assert tensor.stream == 0
    tensor.__dlpack__(stream=s.handle)
    hip_read(sim, s.handle, tensor)
    assert sim.races == []


def test_a_borrow_on_rocm_is_joined_at_both_ends(
    sim: Simulation, rocm: Framework
) -> None:
    """H1: the producer writes after the block."""
    s = sim.stream(hip=True)
    with rocm.stream(sim.stream(hip=True)):
        array = rocm.full((4,))
        with dlx.borrow(array, stream=s) as (tensor, stream):
            hip_read(sim, stream.handle, tensor)
        array += 1
    assert sim.races == []


def test_an_event_of_hip_is_recorded_once(sim: Simulation, rocm: Framework) -> None:
    """src/driver/event.rs: while it is pending it must not be recorded again."""
    p, s = sim.stream(hip=True), sim.stream(hip=True)
    with rocm.stream(p):
        array = rocm.full((4,))
        sim.clear_journal()
        for _ in range(8):
            dlx.from_dlpack(array, stream=s, release="none")
    called = sim.called()
    calls = ("hipEventCreateWithFlags", "hipEventRecord", "hipEventDestroy")
    assert [called.count(name) for name in calls] == [8, 8, 8]


def test_memory_of_rocm_is_not_reused_before_the_kernel_is_done(
    sim: Simulation, rocm: Framework
) -> None:
    """H4: the array is freed and its memory given out again."""
    s = sim.stream(hip=True)
    with rocm.stream(sim.stream(hip=True)):
        array = rocm.full((4,))
        tensor = dlx.from_dlpack(array, stream=s)
        hip_read(sim, s.handle, tensor)
        del tensor
        array.free()
        rocm.full((4,))
    assert sim.races == []


def test_cuda_and_rocm_are_used_in_one_process(
    sim: Simulation, library: Framework, rocm: Framework
) -> None:
    """R75: each by its own driver."""
    s, t = sim.stream(), sim.stream(hip=True)
    with library.stream(sim.stream()), rocm.stream(sim.stream(hip=True)):
        write(s, dlx.from_dlpack(library.full((4,)), stream=s))
        hip_read(sim, t.handle, dlx.from_dlpack(rocm.full((4,)), stream=t))
    assert sim.races == []


def work_stream(device: int = 0) -> int | None:
    """Return the stream that dlx's table names, as a function of tvm-ffi asks."""
    place = c_void_p()
    table = table_of(dlx.Tensor)
    assert table.current_work_stream(ROCM, device, addressof(place)) == 0
    return place.value


def test_a_table_names_the_stream_of_the_tensor_passed_on_last(
    sim: Simulation, rocm: Framework
) -> None:
    """R142: of its library; tested on CUDA in test_work_stream.py."""
    p, q = sim.stream(hip=True), sim.stream(hip=True)
    with rocm.stream(p):
        dlx.from_dlpack(rocm.full((4,)))
        assert work_stream() == p.handle
    with rocm.stream(q):
        assert work_stream() == q.handle


def test_memory_of_rocm_is_released_with_no_further_call(
    sim: Simulation, rocm: Framework
) -> None:
    """H4: by the same thread."""
    s = sim.stream(hip=True)
    with rocm.stream(sim.stream(hip=True)):
        array = rocm.full((4,))
        hip_read(sim, s.handle, dlx.from_dlpack(array, stream=s))
    assert array.deleted == 0
    s.advance()
    until(lambda: array.deleted == 1)
    assert "hipEventQuery" in sim.called(RELEASE)
    assert not any(name.startswith("cu") for name in sim.called(RELEASE))


def test_an_event_of_a_device_that_was_reset_is_made_anew(
    sim: Simulation, rocm: Framework
) -> None:
    """H5: `hipDeviceReset` ends those in the pool, of which none is destroyed."""
    s = sim.stream(hip=True)
    with rocm.stream(sim.stream(hip=True)):
        array = rocm.full((4,))
        dlx.from_dlpack(array, stream=s, release="none")
        sim.advance()
        sim.fail_next("hipEventRecord", 709)
        sim.clear_journal()
        hip_read(sim, s.handle, dlx.from_dlpack(array, stream=s, release="none"))
    assert "hipEventDestroy" not in sim.called()[: sim.called().index("hipEventRecord")]
    assert sim.races == []


def test_a_kernel_of_one_device_takes_no_tensor_of_another(
    sim: Simulation, rocm: Framework
) -> None:
    """R62: nor one of the CPU, unless it says so."""
    launch = dlx.launcher(lambda *_, stream: stream, stream=None)
    arrays = [rocm.full((4,), device=device) for device in (0, 1)]
    with pytest.raises(BufferError, match="rocm:1"):
        launch(*arrays)
