"""Releases when the driver fails: for a moment, or for good."""

from __future__ import annotations

import dlx
import pytest
from support.cuda_producers import Framework
from support.python_process import run_python
from support.simulated_driver import RELEASE, Simulation
from support.simulated_kernels import read, settle, until
from support.simulated_objects import Stream

OUT_OF_MEMORY, NOT_PERMITTED, CAPTURE_UNSUPPORTED = 2, 800, 900


@pytest.mark.parametrize("code", [OUT_OF_MEMORY, NOT_PERMITTED, CAPTURE_UNSUPPORTED])
@pytest.mark.parametrize(
    "call", ["cuEventRecord", "cuStreamIsCapturing", "cuCtxPushCurrent_v2"]
)
def test_memory_waits_where_a_call_fails_for_the_moment(
    sim: Simulation, library: Framework, p: Stream, s: Stream, call: str, code: int
) -> None:
    """H4, H5: the error does not say that the stream is done."""
    with library.stream(p):
        array = library.full((4,))
        tensor = dlx.from_dlpack(array, stream=s)
        read(s, tensor)
        array.free()
        sim.use_no_device()
        sim.fail_next(call, code)
        del tensor
        sim.use_device(0)
        assert array.deleted == 0
        library.full((4,))
        assert sim.races == []
        sim.set_error(0)
        settle(sim)
        assert array.deleted == 1


@pytest.mark.parametrize("code", [OUT_OF_MEMORY, CAPTURE_UNSUPPORTED])
def test_memory_waits_where_its_event_cannot_be_asked_for_the_moment(
    sim: Simulation, library: Framework, p: Stream, s: Stream, code: int
) -> None:
    """H4: neither that of another capture, nor a lack of memory, is an answer."""
    with library.stream(p):
        array = library.full((4,))
        tensor = dlx.from_dlpack(array, stream=s)
        read(s, tensor)
        sim.fail_next("cuEventQuery", code, by=RELEASE)
        del tensor
        until(lambda: sim.called(RELEASE).count("cuEventQuery") > 1)
        assert array.deleted == 0


@pytest.mark.parametrize("code", [4, 700])
def test_a_driver_that_has_failed_for_good_is_called_a_few_times_for_each_block(
    sim: Simulation, library: Framework, p: Stream, s: Stream, code: int
) -> None:
    """H5: each is given back at once, and what waits is not asked for each time."""
    count = 50
    with library.stream(p):
        arrays = [library.full((4,)) for _ in range(2 * count)]
        tensors = [dlx.from_dlpack(array, stream=s) for array in arrays]
        for tensor in tensors:
            read(s, tensor)
        del tensor, tensors[count:]
        sim.set_error(code)
        sim.clear_journal()
        tensors.clear()
        assert [array.deleted for array in arrays[:count]] == [1] * count
        assert len(sim.calls()) <= 10 * count


@pytest.mark.parametrize("code", [4, 700])
def test_memory_of_dlx_is_freed_in_a_few_calls_for_each_block_after_an_error(
    sim: Simulation, s: Stream, code: int
) -> None:
    """H5: what could not be freed is not tried again with each block."""
    count = 50
    with dlx.stream(s):
        blocks = [dlx.empty(4, "float32", device="cuda:0") for _ in range(count)]
    for block in blocks:
        read(s, block)
    del block
    sim.set_error(code)
    sim.clear_journal()
    blocks.clear()
    calls = len(sim.calls())
    sim.set_error(0)
    assert calls <= 10 * count


def test_memory_is_given_back_after_an_illegal_address() -> None:
    """H5: nothing runs any more; each block takes as many calls as the first."""
    code, output, errors = run_python("""
        import dlx
        from support.cuda_producers import TableArray, framework
        from support.simulated_driver import simulation

        sim = simulation()
        sim.start()
        library, p, s = framework(TableArray), sim.stream(), sim.stream()
        with library.stream(p):
            arrays = [library.full((4,)) for _ in range(40)]
            tensors = [dlx.from_dlpack(array, stream=s) for array in arrays]
            s.fault()
            calls = []
            for part in (slice(20), slice(20)):
                sim.clear_journal()
                tensors[part] = []
                calls.append(len(sim.calls()))
        print([array.deleted for array in arrays] == [1] * 40)
        print(calls[1] <= calls[0] and calls[1] <= 200, calls)
    """)
    assert (code, errors) == (0, "")
    assert output.startswith("True\nTrue"), output


def test_an_illegal_address_is_reported_where_something_can_be_raised() -> None:
    """R21: with its call and code."""
    code, output, errors = run_python("""
        import dlx
        from support.cuda_producers import TableArray, framework
        from support.simulated_driver import simulation

        sim = simulation()
        sim.start()
        library, p, s = framework(TableArray), sim.stream(), sim.stream()
        with library.stream(p):
            array = library.full((4,))
            tensor = dlx.from_dlpack(array, stream=s)
            s.fault()
            for work in (
                lambda: dlx.from_dlpack(array, stream=s),
                lambda: tensor.__dlpack__(stream=p.handle),
                lambda: dlx.borrow(array, stream=s).__enter__(),
                tensor.synchronize,
                lambda: dlx.empty(4, "int8", device="cuda:0"),
                lambda: dlx.from_dlpack(array, device="cpu"),
            ):
                try:
                    work()
                except dlx.CudaError as error:
                    print(error.code)
    """)
    assert (code, errors) == (0, "")
    assert output.split() == ["700"] * 6
