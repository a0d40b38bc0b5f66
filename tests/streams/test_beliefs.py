"""What dlx takes for granted of streams, where it is not so."""

from __future__ import annotations

from contextlib import nullcontext

import dlx
import pytest
from support.concurrent_threads import in_thread
from support.cuda_producers import DLPackArray, Framework, InterfaceArray, framework
from support.python_process import run_python
from support.simulated_contexts import green_context, second_context
from support.simulated_driver import Simulation
from support.simulated_kernels import alone, read, write
from support.simulated_objects import LEGACY, Stream


def test_memory_is_not_freed_on_a_new_stream_with_the_handle_of_the_old_one(
    sim: Simulation, library: Framework, p: Stream
) -> None:
    """H3, H4: that the library is on this handle does not mean that it was before."""

    def run() -> None:
        sim.use_device(0)
        with library.stream(p):
            dlx.from_dlpack(library.full((2,)), stream=-1)
            tensor = dlx.empty(3, "float32", device="cuda:0")
            write(p, tensor)
        p.destroy()
        again = sim.stream()
        assert again.handle == p.handle
        with library.stream(again):
            del tensor
            dlx.empty(3, "float32", device="cuda:0")

    in_thread(run)
    assert sim.races == []


GREEN_IS_GONE = """
    import sys

    import dlx
    from support.cuda_producers import TableArray, framework
    from support.simulated_contexts import green_context
    from support.simulated_driver import simulation
    from support.simulated_kernels import write

    sim = simulation()
    sim.start()
    library, green = framework(TableArray), green_context(sim)
    s = green.stream()
    with library.stream(sim.stream()):
        tensor = dlx.from_dlpack(library.full((4,)), stream=s)
        write(s, tensor)
        green.destroy()
        sys.unraisablehook = lambda report: print(report.exc_value)
        del tensor
"""


def test_the_memory_of_a_stream_of_a_green_context_that_is_gone_is_reported() -> None:
    """H3: each call answers that the stream is detached (`cuGreenCtxDestroy`)."""
    code, output, errors = run_python(GREEN_IS_GONE)
    assert (code, errors) == (0, "")
    assert "was destroyed before a tensor" in output


def test_the_stream_that_an_interface_names_at_the_release_waits(
    sim: Simulation, p: Stream, s: Stream
) -> None:
    """R150: its library has changed streams since the import."""
    library, q = framework(InterfaceArray), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        tensor = dlx.from_dlpack(array, stream=s)
        write(s, tensor)
    q.wait_for(p)
    with library.stream(q):
        del tensor
        array += 1
    assert sim.races == []


def test_memory_that_came_without_order_waits_for_its_uses(
    sim: Simulation, p: Stream, s: Stream
) -> None:
    """H4, R76: `stream=-1` says when it is ready, not when a later use of it ends."""
    library = framework(DLPackArray)
    with library.stream(p):
        array = library.full((4,))
        p.synchronize()
        tensor = dlx.from_dlpack(array, stream=-1)
        with tensor.use(stream=s) as view:
            write(s, view)
        del tensor, view
        array.free()
        library.full((4,))
    assert sim.races == []


def test_uses_of_a_tensor_that_came_without_order_wait_for_each_other(
    sim: Simulation, p: Stream, s: Stream
) -> None:
    """H2, R76: the same for the next use."""
    library, t = framework(DLPackArray), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        p.synchronize()
        tensor = dlx.from_dlpack(array, stream=-1)
        for stream in (s, t):
            with tensor.use(stream=stream) as view:
                write(stream, view)
        sim.call("cuCtxSynchronize")
    assert sim.races == []


def test_the_current_stream_of_dlx_is_that_of_its_context_in_a_block(
    sim: Simulation,
) -> None:
    """H8: `dlx.stream` remembers which context the default stream was of."""
    context = second_context(sim)
    memory = sim.allocate(16)
    with context.current():
        stream = dlx.Stream(LEGACY, device="cuda:0")
        sim.default_stream().write(memory)
    tensor = dlx.from_pointer(
        memory.address, (4,), "float32", device="cuda:0", owner=memory
    )
    with dlx.stream(stream), tensor.use() as view:
        assert view.stream is not None
        sim.clear_journal()
        view.stream.synchronize()
    assert sim.get("cuCtxGetCurrent") == sim.context(0)
    pushed = [call for call in sim.calls() if call.name == "cuCtxPushCurrent_v2"]
    assert {call.arguments["context"] for call in pushed} == {context.handle}


def test_a_tensor_of_a_view_may_die_after_its_block(
    sim: Simulation, library: Framework, p: Stream, s: Stream
) -> None:
    """H4: the array is kept until the stream of that tensor is done."""
    t = sim.stream()
    with library.stream(p):
        array = library.full((4,))
        with dlx.borrow(array, stream=s) as (tensor, _):
            other = dlx.from_dlpack(tensor, stream=t)
            read(t, other)
        del tensor, other
        array.free()
        library.full((4,))
    assert sim.races == []


@pytest.mark.parametrize("imported", [True, False])
def test_the_stream_of_a_tensor_waits_for_a_copy_on_another(
    sim: Simulation, library: Framework, p: Stream, s: Stream, imported: bool
) -> None:
    """H1: as the stream of its library does, and as after a `use`."""
    u = sim.stream()
    with library.stream(p):
        if imported:
            tensor = dlx.from_dlpack(library.full((4,)), stream=u)
        else:
            with dlx.stream(u):
                tensor = dlx.empty(4, "float32", device="cuda:0")
        copied = dlx.from_dlpack(tensor, copy=True, stream=s)
        write(u, tensor)
    assert sim.races == []
    sim.call("cuCtxSynchronize")
    del copied


@pytest.mark.parametrize("streams", [0, 1])
def test_the_host_waits_for_what_the_library_has_queued_since_the_import(
    sim: Simulation, library: Framework, p: Stream, streams: int
) -> None:
    """H11, H12: as a consumer of an export does."""
    with library.stream(p):
        array = library.full((4,))
        stream = sim.stream() if streams else None
        tensor = dlx.from_dlpack(array, stream=stream)
        array += 1
        tensor.synchronize()
        sim.fetch(array.data, 16)
    assert sim.races == []


@pytest.mark.parametrize("is_green", [False, True])
@alone
def test_memory_that_is_too_much_is_freed_after_all_blocking_streams(
    sim: Simulation, library: Framework, is_green: bool
) -> None:
    """H8: those of its own context, whichever is current where it dies."""
    p, green = sim.stream(blocking=True), green_context(sim)
    with library.stream(p):
        dlx.from_dlpack(library.full((2,)), stream=-1)
        box = [dlx.empty(16 << 20, "float32", device="cuda:0") for _ in range(5)]
        for tensor in box:
            write(p, tensor)
        del tensor
    with green.current() if is_green else nullcontext():
        box.clear()
    assert "cuMemFreeAsync" in sim.called()
    assert sim.races == []
    with library.stream(p):
        dlx.empty(1, "int8", device="cuda:0")
