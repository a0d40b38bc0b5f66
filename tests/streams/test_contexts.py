"""Contexts: which GPUs are touched, and whose default streams 1 and 2 are."""

from __future__ import annotations

from collections.abc import Callable

import dlx
import pytest
from support.concurrent_threads import in_thread
from support.cuda_producers import Framework
from support.python_process import run_after, run_python
from support.simulated_contexts import Context, green_context, second_context
from support.simulated_driver import Simulation
from support.simulated_kernels import read, settle, write
from support.simulated_objects import LEGACY, PER_THREAD, Stream

IMPORTS = """
    import dlx
    import numpy as np
    from support.cuda_producers import TableArray, framework
    from support.simulated_driver import library_path, simulation
    from support.concurrent_threads import in_thread

    library_path()
"""
ON_THE_SECOND_GPU = """
    sim = simulation()
    sim.call("cuInit", 0)
    sim.use_device(1)
    library, p, s = framework(TableArray), sim.stream(1), sim.stream(1)
    with library.stream(p):
        array = library.full((4,), device=1)
    sim.use_no_device()

    def work():
        with library.stream(p):
            {work}

    {run}
    print(list(sim.retained), len(sim.calls()) > 0)
    sim.advance()  # The end waits for nothing.
"""

WORK = {
    "Stream": "dlx.Stream(s)",
    "Stream of a handle": "dlx.Stream(s.handle)",
    "Stream.wait": "dlx.Stream(s).wait(p.handle)",
    "Stream.synchronize": "dlx.Stream(s).synchronize()",
    "import": "dlx.from_dlpack(array, stream=s)",
    "import of a handle": "dlx.from_dlpack(array, stream=s.handle)",
    "export": "dlx.from_dlpack(array).__dlpack__(stream=s.handle)",
    "borrow": "dlx.borrow(array, stream=s).__enter__()",
    "use": "dlx.from_dlpack(array, stream=p).use(stream=s).__enter__()",
    "copy down": "dlx.from_dlpack(array, device='cpu')",
    "copy up": "dlx.from_dlpack(np.zeros(4), device='cuda:1', stream=s)",
    "empty": "dlx.empty(4, 'float32', device='cuda:1')",
    "synchronize": "dlx.from_dlpack(array, stream=s).synchronize()",
}


@pytest.mark.parametrize("run", ["work()", "in_thread(work)"])
@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_work_on_one_gpu_touches_no_other(work: str, run: str) -> None:
    """H7: a primary context takes half a GiB (pytorch #135279)."""
    program = ON_THE_SECOND_GPU.format(work=work, run=run)
    assert run_after(IMPORTS, program) == (0, "[1] True\n", "")


MAKE = pytest.mark.parametrize("make", [second_context, green_context])
Make = Callable[[Simulation], Context]


@MAKE
def test_an_import_for_the_legacy_stream_is_for_that_of_the_current_context(
    sim: Simulation, library: Framework, p: Stream, make: Make
) -> None:
    """H8, R86: the kernel behind it runs there."""
    with library.stream(p):
        array = library.full((4,))
        with make(sim).current():
            tensor = dlx.from_dlpack(array, stream=LEGACY)
            read(sim.default_stream(LEGACY), tensor)
    assert sim.races == []


def test_an_import_for_the_threads_own_stream_is_for_that_of_the_current_context(
    sim: Simulation, library: Framework, p: Stream
) -> None:
    """H8, R86: each context has one for each thread."""
    with library.stream(p):
        array = library.full((4,))
        with second_context(sim).current():
            tensor = dlx.from_dlpack(array, stream=PER_THREAD)
            read(sim.default_stream(PER_THREAD), tensor)
    assert sim.races == []


@MAKE
def test_an_export_to_the_legacy_stream_is_to_that_of_the_current_context(
    sim: Simulation, library: Framework, p: Stream, s: Stream, make: Make
) -> None:
    """H8, H12: also where the import was ordered elsewhere."""
    with library.stream(p):
        tensor = dlx.from_dlpack(library.full((4,)), stream=s)
        write(s, tensor)
        with make(sim).current():
            capsule = tensor.__dlpack__(stream=LEGACY)
            read(sim.default_stream(LEGACY), tensor)
        del capsule
    assert sim.races == []


@MAKE
def test_a_library_on_the_legacy_stream_is_on_that_of_the_current_context(
    sim: Simulation, library: Framework, s: Stream, make: Make
) -> None:
    """H8, R141: torch's GreenContext.set_context (pytorch #185527)."""
    array = library.full((4,))
    sim.advance()
    sim.call("cuCtxSynchronize")
    with make(sim).current():
        sim.default_stream(LEGACY).launch(True, array.data, 16)
        read(s, dlx.from_dlpack(array, stream=s))
    assert sim.races == []


@MAKE
def test_a_borrow_on_the_legacy_stream_is_on_that_of_the_current_context(
    sim: Simulation, library: Framework, p: Stream, make: Make
) -> None:
    """H1, H8: at both ends."""
    with library.stream(p):
        array = library.full((4,))
        with make(sim).current():
            with dlx.borrow(array, out=array, stream=LEGACY) as (tensor, _, stream):
                assert stream is not None
                write(stream, tensor)
            array += 1
    assert sim.races == []


@MAKE
def test_a_release_waits_for_the_legacy_stream_of_the_import(
    sim: Simulation, library: Framework, p: Stream, make: Make
) -> None:
    """H4, H8: whatever is current then."""
    context = make(sim)
    with library.stream(p):
        array = library.full((4,))
        with context.current():
            held = [dlx.from_dlpack(array, stream=LEGACY)]
            read(sim.default_stream(LEGACY), held[0])
        array.free()
        held.clear()
        library.full((4,))
        assert sim.races == []
        settle(sim)
        assert array.deleted == 1


def test_the_threads_own_stream_of_a_green_context_is_refused(
    sim: Simulation, library: Framework, p: Stream
) -> None:
    """H8: it has none (`cuStreamGetCtx_v2`); that of the primary one is another."""
    with library.stream(p):
        array = library.full((4,))
        with green_context(sim).current():
            sim.clear_journal()
            with pytest.raises((BufferError, ValueError, dlx.CudaError)):
                dlx.from_dlpack(array, stream=PER_THREAD)
            waits = [call for call in sim.calls() if call.name == "cuStreamWaitEvent"]
    assert waits == []
    assert sim.violations == []


def test_a_thread_without_a_context_means_the_primary_one(
    sim: Simulation, library: Framework, p: Stream
) -> None:
    """H5, R86: nothing else can be meant."""

    def work() -> None:
        with library.stream(p):
            tensor = dlx.from_dlpack(library.full((4,)), stream=LEGACY)
            with sim.on_device(0):
                read(sim.default_stream(LEGACY), tensor)

    in_thread(work)
    assert sim.races == []


def test_streams_are_ordered_after_a_device_is_reset() -> None:
    """H5: `cudaDeviceReset` ends the events of dlx's pool, whose handles it may reuse.

    None of them is destroyed: by then it may be somebody else's.
    """
    code, output, errors = run_python(
        """
        import os
        from support.simulated_driver import library_path, simulation
        os.environ["DLX_LIBCUDA"] = str(library_path())
        import dlx
        from support.cuda_producers import TableArray, framework
        from support.simulated_kernels import read

        sim = simulation()
        sim.start()
        library = framework(TableArray)

        def order():
            p, s = sim.stream(), sim.stream()
            with library.stream(p):
                tensors = [dlx.from_dlpack(library.full((4,))) for _ in range(3)]
                for tensor in tensors:
                    with tensor.use(stream=s) as view:
                        read(s, view)
            s.synchronize()
            p.synchronize()

        order()
        with library.stream(sim.stream()):
            kept = [dlx.from_dlpack(library.full((4,))) for _ in range(3)]
        sim.reset_device(0)
        library.allocator.__init__(sim)
        sim.clear_journal()
        for _ in range(5):
            sim.use_device(0)
            order()
            kept[:1] = []  # Its event is one of the dead.
        records = [call for call in sim.calls() if call.name == "cuEventRecord"]
        failed = [call.code for call in records if call.code]
        print(failed, "cuEventDestroy_v2" in sim.called(), sim.races, sim.violations)
    """
    )
    assert (code, output, errors) == (0, "[] False [] []\n", "")
