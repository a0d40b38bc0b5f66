"""`release=`: how memory is given back that another stream has used."""

from __future__ import annotations

import gc
import os
from textwrap import dedent
from typing import Any

import dlx
import pytest
from support.concurrent_threads import in_thread
from support.cuda_producers import DLPackArray, Framework, framework
from support.python_process import run_python
from support.simulated_driver import RELEASE, Simulation, library_path
from support.simulated_kernels import read, settle, unraisable, until, violation, write
from support.simulated_objects import LEGACY

POLICIES = ["auto", "record_stream", "none"]
every_policy = pytest.mark.parametrize("release", POLICIES)


def test_auto_waits_for_the_stream_and_not_on_the_host(
    sim: Simulation, library: Framework
) -> None:
    """H4: the deleter runs once the work is done."""
    with library.stream(sim.stream()):
        array, s = library.full((4,)), sim.stream()
        tensor = dlx.from_dlpack(array, stream=s)
        read(s, tensor)
        sim.clear_journal()
        del tensor
        assert array.deleted == 0
        assert not {"cuStreamSynchronize", "cuEventSynchronize"} & set(sim.called())
        s.advance()
        until(lambda: array.deleted == 1)


def test_auto_is_bounded_in_number(sim: Simulation, library: Framework) -> None:
    """H4: beyond 1024 tensors the host waits for the oldest."""
    with library.stream(sim.stream()):
        s, arrays = sim.stream(), [library.full((1,)) for _ in range(1100)]
        for array in arrays:
            read(s, dlx.from_dlpack(array, stream=s))
        until(lambda: sum(array.deleted == 0 for array in arrays) <= 1024)
        assert arrays[-1].deleted == 0


def test_auto_is_bounded_in_bytes(sim: Simulation, library: Framework) -> None:
    """H4: beyond a tenth of the device's 10 GiB, without the last, the host waits."""
    with library.stream(sim.stream()):
        s, array = sim.stream(), library.full((4,))
        array.tensor.shape[0] = 1 << 27
        for _ in range(4):
            dlx.from_dlpack(array, stream=s)
            write(s, dlx.from_dlpack(library.full((1,)), stream=-1))
        until(lambda: array.deleted > 0)
        # The thread may look at the oldest just then, so that the second is waited for.
        assert array.deleted in (1, 2)


def test_record_stream_tells_the_producer_at_import(
    sim: Simulation, library: Framework
) -> None:
    """H4: as torch's allocator wants it; the deleter runs at any time."""
    with library.stream(sim.stream()):
        array, s = library.full((4,)), sim.stream()
        tensor = dlx.from_dlpack(array, stream=s, release="record_stream")
        assert {stream.handle for stream in array.storage.recorded} == {s.handle}
        read(s, tensor)
        del tensor
        assert array.deleted == 1


def test_none_frees_at_once(sim: Simulation, library: Framework) -> None:
    """H4: the caller's matter; nothing is called."""
    with library.stream(sim.stream()):
        array = library.full((4,))
        tensor = dlx.from_dlpack(array, stream=sim.stream(), release="none")
        sim.clear_journal()
        del tensor
        assert array.deleted == 1
        assert sim.called() == []


@pytest.mark.parametrize("release", ["", "Auto", "wait-back", "sync"])
def test_another_name_is_refused(library: Framework, release: Any) -> None:
    """R60: with the names that are accepted, before anything is exported."""
    array = library.full((4,))
    with pytest.raises(ValueError, match="'auto', 'record_stream', 'none'"):
        dlx.from_dlpack(array, release=release)
    assert array.exports == []


@pytest.mark.parametrize("release", [None, 1, b"auto"])
def test_what_is_no_name_is_refused(library: Framework, release: Any) -> None:
    """R60: `release=` of another type is a TypeError."""
    with pytest.raises(TypeError):
        dlx.from_dlpack(library.full((4,)), release=release)


FINAL = [4, 214, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911]
"""Of these `cuda.h` says that no work goes on, or that the process must end."""


@every_policy
@pytest.mark.parametrize("code", FINAL)
def test_a_driver_that_has_failed_for_good_keeps_nothing(
    sim: Simulation, library: Framework, release: Any, code: int
) -> None:
    """H5, R8: deinitialized, or an error that sticks; each deleter runs once."""
    with library.stream(sim.stream()):
        arrays = [library.full((4,)) for _ in range(3)]
        tensors = [
            dlx.from_dlpack(array, stream=sim.stream(), release=release)
            for array in arrays
        ]
        sim.set_error(code)
        tensors.clear()
        sim.set_error(0)
        assert [array.deleted for array in arrays] == [1, 1, 1]


@every_policy
@pytest.mark.parametrize(
    "call",
    ["cuCtxGetCurrent", "cuStreamIsCapturing", "cuEventRecord", "cuStreamWaitEvent"],
)
def test_a_call_that_fails_at_the_release_loses_nothing(
    sim: Simulation, library: Framework, release: Any, call: str
) -> None:
    """H5, R8: whatever fails, the deleter runs once, now or when the work is done."""
    with library.stream(sim.stream()):
        array = library.full((4,))
        tensor = dlx.from_dlpack(array, stream=sim.stream(), release=release)
        sim.fail_next(call, 1)
        del tensor
        sim.set_error(0)
        settle(sim)
        assert array.deleted == 1


def test_what_waits_is_given_back_when_its_event_cannot_be_asked(
    sim: Simulation, library: Framework
) -> None:
    """H5: a context that is lost runs nothing any more."""
    with library.stream(sim.stream()):
        array, s = library.full((4,)), sim.stream()
        tensor = dlx.from_dlpack(array, stream=s)
        read(s, tensor)
        sim.fail_next("cuEventQuery", 709, by=RELEASE)
        del tensor
        until(lambda: array.deleted == 1)


def test_a_view_on_another_stream_outlives_the_tensor_and_its_stream(
    sim: Simulation, library: Framework
) -> None:
    """H3: no bare handle is used once the last tensor is gone."""
    p, s, t = sim.stream(), sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        first = dlx.from_dlpack(array, stream=s.handle)
        second = dlx.from_dlpack(first, stream=t.handle)
        write(t, second)
        del second
        del first
        s.destroy()
        t.destroy()
        assert array.deleted == 0
        settle(sim)
        assert array.deleted == 1


@pytest.mark.parametrize("capsule", [True, False])
def test_an_export_keeps_the_memory_until_its_deleter(
    sim: Simulation, library: Framework, capsule: bool
) -> None:
    """H4, R16: the last of both is the release."""
    with library.stream(sim.stream()):
        array, s = library.full((4,)), sim.stream()
        tensor = dlx.from_dlpack(array, stream=s)
        held: list[Any] = [tensor.__dlpack__(stream=s.handle), tensor]
        del tensor
        read(s, held[1])
        del held[1 if capsule else 0]
        assert array.deleted == 0
        sim.clear_journal()
        held.clear()
        assert sim.called().count("cuEventRecord") == 1


def test_memory_on_the_default_stream_of_a_thread_is_released_by_another(
    sim: Simulation, library: Framework
) -> None:
    """H8: after the legacy default stream, which waits for that of each thread."""
    with library.stream(sim.stream()):
        array = library.full((4,))
        held = [dlx.from_dlpack(array, stream=2)]
        write(held[0].stream, held[0])
        sim.clear_journal()
        in_thread(held.clear)
        [record] = [call for call in sim.calls() if call.name == "cuEventRecord"]
        assert record.arguments["stream"] == LEGACY
        assert array.deleted == 0
        settle(sim)
        assert array.deleted == 1


def test_a_thread_without_a_context_keeps_none(
    sim: Simulation, library: Framework
) -> None:
    """H5: what was current before the release is current after it."""
    with library.stream(sim.stream()):
        held = [dlx.from_dlpack(library.full((4,)), stream=sim.stream())]

    def drop() -> int:
        held.clear()
        return sim.get("cuCtxGetCurrent")

    assert in_thread(drop) == 0


def test_the_interpreter_ends_with_memory_that_waits() -> None:
    """H5, R14: it is waited for and given back; no driver is missed."""
    code = """
        import sys
        sys.path.insert(0, {tests!r})
        import os
        os.environ["DLX_LIBCUDA"] = {library!r}
        import dlx
        from support.cuda_producers import TableArray, framework
        from support.simulated_kernels import write
        from support.simulated_driver import simulation

        sim = simulation()
        sim.start()
        library = framework(TableArray)
        p, s = sim.stream(), sim.stream()
        with library.stream(p):
            array = library.full((4,))
            tensor = dlx.from_dlpack(array, stream=s)
            write(s, tensor)
            del tensor
            assert array.deleted == 0
            kept = dlx.from_dlpack(array, stream=s)
            {end}
        """
    tests = os.path.dirname(os.path.dirname(__file__))
    for end in ["", "sim.set_error(4)", "s.begin_capture()"]:
        text = dedent(code).format(tests=tests, library=str(library_path()), end=end)
        assert run_python(text) == (0, "", ""), end
    gc.collect()


def test_the_memory_of_a_destroyed_stream_is_kept(
    sim: Simulation, library: Framework
) -> None:
    """H3, H4: its handle is the caller's to keep; nothing tells when its work ends."""
    with library.stream(sim.stream()):
        array, s = library.full((4,)), sim.stream()
        tensor = dlx.from_dlpack(array, stream=s.handle)
        s.destroy()
        with (
            violation(sim, "dead stream"),
            unraisable(BufferError, "Keep a stream alive as long as its tensors"),
        ):
            del tensor
            settle(sim)
            assert array.deleted == 0


def test_the_default_stream_counts_for_a_producer_that_is_elsewhere(
    sim: Simulation,
) -> None:
    """H4: without a table it does not say where it gives memory out again."""
    library = framework(DLPackArray)
    with library.stream(sim.stream()):
        array = library.full((4,))
        tensor = dlx.from_dlpack(array)
        assert tensor.stream == LEGACY
        read(tensor.stream, tensor)
        array.free()
        del tensor
        library.full((4,))
    assert sim.races == []
