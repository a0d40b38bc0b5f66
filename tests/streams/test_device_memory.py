"""Memory of dlx's own on a device: had, given back, and never lost."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dlx
import numpy as np
import pytest
from cuda_producers import Framework, TableArray, framework
from device_arrays import on_device, values, work
from dlpack_abi import Allocation, delete, take
from kernels import OwnStream, in_thread, read, write
from simulated_driver import Simulation
from simulated_objects import LEGACY, RELAXED

ARRAY = np.arange(12, dtype="float32").reshape(3, 4)
CUDA = (2, 0)


@pytest.fixture(autouse=True)
def _nothing_is_left(sim: Simulation) -> Iterator[None]:
    """Give back what waits for the streams of a test, while these are there."""
    yield
    gc.collect()
    sim.advance()
    dlx.empty(1, "int8", device="cuda:0")


# `empty`


@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 4), (2, 3, 4)], ids=str)
def test_uninitialized_memory_of_a_device(sim: Simulation, shape: Any) -> None:
    """R93, R96, R138."""
    tensor = dlx.empty(shape, "float32", device="cuda:0")
    assert (tensor.shape, tensor.dtype, tensor.device) == (shape, "float32", "cuda:0")
    assert (tensor.is_copied, tensor.readonly) == (False, False)
    assert tensor.data_ptr % 256 == 0
    assert (tensor.data_ptr == 0) == (tensor.size == 0)
    if tensor.size:
        write(sim.default_stream(LEGACY), tensor)
    del tensor
    assert work(sim) == (["allocate", "free"] if 0 not in shape else [])
    assert sim.races == []


def test_empty_memory_is_of_the_current_stream(sim: Simulation) -> None:
    """R50: there, and freed in its order."""
    s = sim.stream()
    with dlx.stream(s, device="cuda:0"):
        tensor = dlx.empty(3, "float32", device="cuda:0")
    write(s, tensor)
    del tensor
    with dlx.stream(s, device="cuda:0"):
        again = dlx.empty(3, "float32", device="cuda:0")
    write(s, again)
    assert sim.races == []


def test_another_stream_waits_for_memory_that_is_just_there(sim: Simulation) -> None:
    """R80."""
    s = sim.stream()
    tensor = dlx.empty(3, "float32", device="cuda:0")
    with tensor.use(stream=s) as used:
        write(s, used)
    del used, tensor
    gc.collect()
    dlx.empty(3, "float32", device="cuda:0")
    assert sim.races == []


def test_memory_that_runs_out_is_a_memory_error(sim: Simulation) -> None:
    for make in (
        lambda: dlx.empty(3, "float32", device="cuda:0"),
        lambda: dlx.from_dlpack(ARRAY, device="cuda:0"),
    ):
        sim.fail_next("cuMemAllocAsync", 2)
        with pytest.raises(MemoryError, match="could not allocate"):
            make()
    with pytest.raises(MemoryError):
        dlx.empty(2**60, "float32", device="cuda:0")


@pytest.mark.parametrize("device", ["cuda_managed:0", "cuda_host:0", "metal:0"])
def test_memory_of_other_kinds_is_refused(sim: Simulation, device: str) -> None:
    """R62."""
    with pytest.raises(BufferError, match="does not allocate on"):
        dlx.empty(3, "float32", device=device)
    with pytest.raises(BufferError, match="does not move it to"):
        dlx.from_dlpack(ARRAY, device=device)


# The allocator of the table.


def test_the_allocator_of_the_table_gives_device_memory(sim: Simulation) -> None:
    """R134, R135, R138."""
    made = Allocation(dlx.Tensor, (2, 3), device=CUDA)
    tensor = made.managed.dl_tensor
    assert (made.code, made.errors) == (0, [])
    assert (tensor.device.device_type, tensor.device.device_id) == CUDA
    assert (tensor.shape[:2], tensor.strides[:2]) == ([2, 3], [3, 1])
    made.delete()
    assert work(sim) == ["allocate", "free"]


def test_the_allocator_needs_no_python_of_its_caller(sim: Simulation) -> None:
    """R136: a thread that Python has not seen."""
    made = in_thread(lambda: Allocation(dlx.Tensor, (2, 3), device=CUDA))
    assert made.code == 0
    made.delete()


@pytest.mark.parametrize(
    ("code", "kind"), [(2, b"MemoryError"), (700, b"RuntimeError")]
)
def test_the_allocator_reports_by_its_callback_alone(
    sim: Simulation, code: int, kind: bytes
) -> None:
    """R135, R136, R137."""
    sim.fail_next("cuMemAllocAsync", code, 2)
    made = Allocation(dlx.Tensor, (2, 3), device=CUDA)
    assert made.code == -1
    assert [error[1] for error in made.errors] == [kind]
    assert Allocation(dlx.Tensor, (2,), device=CUDA, reports=False).code == -1


# Lifetime.


def test_memory_lives_as_long_as_its_last_view(sim: Simulation) -> None:
    """R15, R16."""
    tensor = dlx.from_dlpack(ARRAY, device="cuda:0")
    exports = [
        take(tensor.__dlpack__(stream=LEGACY, max_version=(1, 3))) for _ in range(2)
    ]
    del tensor
    sim.clear_journal()
    delete(exports[0])
    assert work(sim) == []
    delete(exports[1])
    assert work(sim) == ["free"]


def test_memory_is_freed_after_the_streams_that_used_it(sim: Simulation) -> None:
    """H4: both that of a use, and that of an import."""
    p, s, t = (sim.stream() for _ in range(3))
    tensor = dlx.from_dlpack(ARRAY, device="cuda:0", stream=p)
    other = dlx.from_dlpack(tensor, stream=s)
    read(s, other)
    with tensor.use(stream=t) as used:
        read(t, used)
    del tensor, other, used
    again = dlx.from_dlpack(ARRAY, device="cuda:0", stream=p)
    write(p, again)
    sim.advance()
    del again
    gc.collect()
    dlx.from_dlpack(ARRAY, device="cuda:0", stream=p)
    assert sim.races == []


def test_a_stream_object_lives_as_long_as_memory_of_it(sim: Simulation) -> None:
    """H3."""
    tensor = dlx.from_dlpack(ARRAY, device="cuda:0", stream=OwnStream(sim.stream()))
    gc.collect()
    assert values(sim, tensor).tolist() == ARRAY.tolist()
    del tensor
    gc.collect()
    assert sim.called()[-1] == "cuMemFreeAsync"
    assert "cuStreamDestroy_v2" in sim.called("test")


def test_memory_of_a_stream_that_may_be_gone_is_freed_elsewhere(
    sim: Simulation, library: Framework
) -> None:
    """H3, R142: after all that the device was given."""
    p = sim.stream()
    with library.stream(p):
        dlx.from_dlpack(library.full((2,)), stream=-1)
        tensor = dlx.empty(3, "float32", device="cuda:0")
        write(p, tensor)
    p.destroy()
    sim.clear_journal()
    del tensor
    frees = [call for call in sim.calls() if call.name == "cuMemFreeAsync"]
    assert [call.arguments["stream"] for call in frees] == [2]
    assert "cuCtxSynchronize" in sim.called()
    assert sim.races == []


def test_a_copy_for_a_consumer_does_not_keep_its_stream(sim: Simulation) -> None:
    """R82."""
    tensor, s = dlx.from_dlpack(ARRAY, device="cuda:0"), sim.stream()
    managed = take(tensor.__dlpack__(stream=s.handle, copy=True, max_version=(1, 3)))
    s.launch(True, managed.dl_tensor.data, tensor.nbytes)
    s.destroy()
    delete(managed)
    assert sim.races == []


def test_memory_is_freed_in_any_thread(sim: Simulation) -> None:
    """R13: without a context, and of the default stream of another thread."""
    s = sim.stream()
    box = [dlx.from_dlpack(ARRAY, device="cuda:0", stream=stream) for stream in (s, 2)]
    sim.clear_journal()
    in_thread(box.clear)
    assert work(sim).count("free") == 2


@pytest.mark.parametrize("mode", [0, RELAXED])
def test_memory_that_dies_in_a_capture_is_freed_after_it(
    sim: Simulation, mode: int
) -> None:
    """B.6: the capture is not disturbed."""
    s = sim.stream()
    tensor = dlx.from_dlpack(ARRAY, device="cuda:0", stream=s)
    with s.capture(mode):
        del tensor
        assert s.capture_status() == 1
        assert "free" not in work(sim)
    dlx.empty(3, "float32", device="cuda:0")
    assert work(sim).count("free") == 2


def test_nothing_is_lost_over_many_copies(sim: Simulation, library: Framework) -> None:
    """R8."""
    p, s = sim.stream(), sim.stream()
    before: dict[str, int] = {}
    for index in range(20):
        with library.stream(p):
            array = library.full((4,), 1.0)
            one = dlx.from_dlpack(array, copy=True, stream=s)
            two = dlx.from_dlpack(one, copy=True, stream=p)
            values(sim, two)
            del one, two
            array.free()
            del array
        sim.advance()
        dlx.from_dlpack(ARRAY, device="cuda:0", stream=s)
        counts = sim.counts
        kept = {name: counts[name] for name in ("allocations", "events", "streams")}
        if index == 5:
            before = kept
    assert kept == before
    assert sim.races == []


# Failures of the driver.


def up(sim: Simulation) -> Callable[[], Any]:
    """Copy to the device."""
    s = sim.stream()
    return lambda: dlx.from_dlpack(ARRAY[:, ::-1], device="cuda:0", stream=s)


def down(sim: Simulation) -> Callable[[], Any]:
    """Copy to the host, after another stream."""
    source = on_device(sim, ARRAY[:, 1], stream=sim.stream())
    return lambda: source.to(device="cpu")


def across(sim: Simulation) -> Callable[[], Any]:
    """Copy on the device, from a library on another stream."""
    library, p, s = framework(TableArray), sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((3, 4))

    def copy() -> Any:
        with library.stream(p):
            return dlx.from_dlpack(array, copy=True, stream=s)

    return copy


def layered(sim: Simulation) -> Callable[[], Any]:
    """Copy on the device, in several calls."""
    source = on_device(sim, ARRAY[:, ::2], stream=sim.stream())
    s = sim.stream()
    return lambda: dlx.from_dlpack(source, copy=True, stream=s)


@pytest.mark.parametrize("kind", [up, down, across, layered])
def test_a_failing_call_is_reported_and_loses_nothing(
    sim: Simulation, kind: Callable[[Simulation], Callable[[], Any]]
) -> None:
    """R21: whichever of its calls it is."""
    copy = kind(sim)
    copy()
    sim.clear_journal()
    copy()
    calls = sim.called()
    failed = set()
    for index, name in enumerate(calls):
        after = calls[:index].count(name)
        gc.collect()
        sim.advance()
        dlx.empty(1, "int8", device="cuda:0")
        allocations = sim.counts["allocations"]
        sim.fail_next(name, 700, after=after)
        try:
            copy()
        except dlx.CudaError as error:
            failed.add(name)
            assert error.call is not None
            assert error.call.removesuffix("_v2") == name.removesuffix("_v2")
            assert (error.code, error.name) == (700, "CUDA_ERROR_ILLEGAL_ADDRESS")
        sim.set_error(0)
        gc.collect()
        sim.advance()
        dlx.empty(1, "int8", device="cuda:0")
        assert sim.counts["allocations"] == allocations, name
    expected = {"cuMemAllocAsync", "cuStreamIsCapturing"} if kind is not down else set()
    assert failed >= expected
    assert sim.violations == []


# Without a driver that works.


def in_process(code: str, **environment: str) -> None:
    """Run code in a process of its own."""
    folder = Path(__file__).parent.parent
    script = f"import sys; sys.path.insert(0, {str(folder)!r})\n" + textwrap.dedent(
        code
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_without_a_driver_there_is_one_clear_error() -> None:
    """R62: and copies on the host work."""
    in_process(
        """
        import dlx, numpy as np
        for make in (
            lambda: dlx.empty(3, "float32", device="cuda:0"),
            lambda: dlx.from_dlpack(np.arange(3), device="cuda:0"),
            lambda: dlx.from_dlpack(np.arange(3)).to(device="rocm:0"),
            lambda: dlx.from_pointer(8, (3,), "int8", device="cuda:0").to(copy=True),
        ):
            try:
                make()
            except BufferError as error:
                assert "nowhere.so could not be loaded" in str(error), error
            else:
                raise AssertionError
        dlx.from_dlpack(np.arange(3), device="cpu", copy=True)
        """,
        DLX_LIBCUDA="nowhere.so",
        DLX_LIBAMDHIP="nowhere.so",
    )


def test_memory_that_a_fork_inherits_is_leaked_quietly() -> None:
    in_process(
        """
        import os, dlx, numpy as np
        from simulated_driver import simulation
        simulation().start()
        tensor = dlx.from_dlpack(np.arange(3), device="cuda:0")
        if child := os.fork():
            assert os.waitpid(child, 0)[1] == 0
        else:
            del tensor
            try:
                dlx.from_dlpack(np.arange(3), device="cuda:0")
            except RuntimeError as error:
                os._exit("fork" not in str(error))
            os._exit(2)
        """
    )


def test_memory_that_is_left_at_exit_does_no_harm() -> None:
    """R14: the driver may be gone by then."""
    in_process(
        """
        import dlx, numpy as np
        from simulated_driver import simulation
        sim = simulation()
        sim.start()
        kept = [dlx.from_dlpack(np.arange(3), device="cuda:0") for _ in range(3)]
        kept.append(dlx.from_dlpack(kept[0], copy=True, stream=sim.stream()))
        sim.set_error(4)
        """
    )
