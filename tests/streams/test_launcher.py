"""`dlx.launcher`: the stream of a call, joined at both ends as by `borrow`."""

from __future__ import annotations

from typing import Any

import dlx
import numpy as np
import pytest
from support.cuda_producers import (
    DLPackArray,
    Framework,
    InterfaceArray,
    TableArray,
    framework,
)
from support.optional_libraries import requires
from support.simulated_driver import Simulation, simulation
from support.simulated_objects import Stream

READ_ONLY = 1
NBYTES = 16


def queue(stream: int, address: int, *, write: bool) -> None:
    """Queue a kernel on four elements."""
    simulation().call("sim_launch", stream, int(write), address, NBYTES)


@dlx.launcher
def read(x: int, *, stream: int) -> int:
    """Queue a kernel that reads; return its stream."""
    queue(stream, x, write=False)
    return stream


@dlx.launcher(out="out")
def copy(x: int, out: int, stream: int) -> int:
    """Queue a kernel that reads one and writes the other; return its stream."""
    queue(stream, x, write=False)
    queue(stream, out, write=True)
    return stream


def on_own_stream(s: Stream, **options: Any) -> Any:
    """Make a launcher whose kernels read, on a stream that it chooses."""

    def body(*tensors: int) -> None:
        for tensor in tensors:
            queue(s.handle, tensor, write=False)

    return dlx.launcher(body, **options)


# Races.


def test_without_order_a_launch_races(
    sim: Simulation, library: Framework, s: Stream
) -> None:
    """H1: the control."""
    with library.stream(sim.stream()):
        array = library.full((4,))
        on_own_stream(s, stream=-1)(array)
        array += 1
    assert sim.races


@pytest.mark.parametrize("kind", [TableArray, InterfaceArray])
@pytest.mark.parametrize("how", ["in the call", "of the launcher", "asked"])
def test_a_producer_waits_for_a_launch_on_another_stream(
    sim: Simulation, s: Stream, kind: Any, how: str
) -> None:
    """H1, R150: and the launch for what the producer has queued."""
    library = framework(kind)
    with library.stream(sim.stream()):
        array = library.full((4,))
        if how == "in the call":
            assert read(array, stream=s) == s.handle
        else:
            on_own_stream(s, stream=s if how == "of the launcher" else lambda: s)(array)
        array += 1
    assert sim.races == []


def test_without_order_a_launch_races_with_two_libraries(
    sim: Simulation, s: Stream
) -> None:
    """H2: the control."""
    one, other = framework(TableArray, "one"), framework(TableArray, "other")
    with one.stream(sim.stream()), other.stream(sim.stream()):
        on_own_stream(s, stream=-1)(one.full((4,)), other.full((4,)))
    assert sim.races


def test_a_launch_comes_between_the_work_of_two_libraries(sim: Simulation) -> None:
    """H2: on the stream of the first tensor's library."""
    one, other = framework(TableArray, "one"), framework(TableArray, "other")
    p, q = sim.stream(), sim.stream()
    with one.stream(p), other.stream(q):
        x, out = one.full((4,)), other.full((4,))
        assert copy(x, out) == p.handle
        out += 1
        assert copy(x, out, stream=q) == copy(x, out, q) == q.handle
        x += 1
        out += 1
    assert sim.races == []


@pytest.mark.parametrize("size", [4, 5])
def test_a_launch_whose_shapes_are_checked_is_ordered(
    sim: Simulation, library: Framework, s: Stream, size: int
) -> None:
    """docs/launcher.md, Shapes and sizes: nothing runs where one is refused."""

    @dlx.launcher(out="x", shape="n", size="n")
    def launch(x: Any, n: int, *, stream: int) -> int:
        queue(stream, x, write=True)
        return stream

    with library.stream(sim.stream()):
        array = library.full((4,))
        if size == 4:
            assert launch(array, 4, stream=s) == launch(array, n=4, stream=s)
        else:
            with pytest.raises(BufferError, match="accepts 'n', where n is 5") as no:
                launch(array, size, stream=s)
            assert "argument x of" in no.value.__notes__[0]
        array += 1
    assert sim.races == []


@pytest.mark.parametrize("give", ["address", "pointer", "tensor"])
def test_each_way_to_give_is_ordered(
    sim: Simulation, library: Framework, s: Stream, give: Any
) -> None:
    """H1: the address is the same."""
    with library.stream(sim.stream()):
        array = library.full((4,))

        @dlx.launcher(give=give, out="x")
        def launch(x: Any, *, stream: int) -> int:
            address = {
                "address": lambda: x,
                "pointer": lambda: x.data_ptr(),
                "tensor": lambda: x.data_ptr,
            }[give]()
            queue(stream, address, write=True)
            if give == "tensor":
                assert x.stream.handle == stream
            return int(address)

        assert launch(array, stream=s) == array.data
        array += 1
    assert sim.races == []


def test_a_function_that_raises_is_joined_back(
    sim: Simulation, library: Framework, s: Stream
) -> None:
    """H1: what it has launched runs all the same."""

    @dlx.launcher
    def fails(x: int, *, stream: int) -> None:
        queue(stream, x, write=True)
        raise KeyError(x)

    with library.stream(sim.stream()):
        array = library.full((4,))
        with pytest.raises(KeyError, match=str(array.data)):
            fails(array, stream=s)
        array += 1
    assert sim.races == []


def test_memory_that_is_dropped_in_the_call_is_not_reused_under_the_kernel(
    sim: Simulation, library: Framework, s: Stream
) -> None:
    """H4: it is given back after the library's stream waits."""
    arrays: list[Any] = []

    @dlx.launcher
    def drops(x: int, *, stream: int) -> None:
        arrays.clear()
        queue(stream, x, write=False)

    with library.stream(sim.stream()):
        arrays.append(library.full((4,)))
        drops(arrays[0], stream=s)
        library.full((4,))
    assert sim.races == []


def test_a_producer_without_a_table_is_asked_to_order_the_stream(
    sim: Simulation, s: Stream
) -> None:
    """R83: as by `borrow`."""
    library = framework(DLPackArray)
    with library.stream(sim.stream()):
        array = library.full((4,))
        assert read(array, stream=s) == s.handle
        array.free()
        library.full((4,))
    assert sim.races == []


# The stream.


def test_where_all_agree_the_driver_is_not_called(
    sim: Simulation, library: Framework, p: Stream
) -> None:
    """docs/launcher.md, Streams."""
    with library.stream(p):
        x, out = library.full((4,)), library.full((4,))
        given = dlx.launcher(lambda x, out, stream: stream, out=1)
        assert given(x, out) == p.handle
        sim.clear_journal()
        assert given(x, out) == given(x, out, stream=p) == p.handle
        assert sim.called() == []


def test_the_calls_of_the_driver_are_those_of_borrow(
    sim: Simulation, library: Framework, s: Stream, running: None
) -> None:
    """docs/streams.md, How."""
    with library.stream(sim.stream()):
        array = library.full((4,))
        given = dlx.launcher(lambda x, stream: stream)
        given(array, stream=s)
        sim.clear_journal()
        with dlx.borrow(array, stream=s):
            pass
        called = sim.called()
        sim.clear_journal()
        given(array, stream=s)
        assert sim.called() == called


def test_the_stream_is_an_int_that_cuda_core_takes(
    library: Framework, p: Stream
) -> None:
    """docs/launcher.md, `give`: as a handle; a launch needs a driver that is real."""
    core = requires("cuda.core")
    with library.stream(p):
        taken = dlx.launcher(lambda x, stream: core.Stream.from_handle(stream))
        assert taken(library.full((4,))).__cuda_stream__() == (0, p.handle)


def test_tensors_on_the_cpu_have_no_say_in_the_stream(
    library: Framework, p: Stream
) -> None:
    """R143: they have none."""
    given = dlx.launcher(lambda x, y, stream: (x, stream), devices="any")
    x = np.zeros(4, "f4")
    with library.stream(p):
        assert given(x, library.full((4,))) == (x.ctypes.data, p.handle)


def test_on_is_asked_once_at_each_call(library: Framework, p: Stream) -> None:
    """docs/launcher.md, Streams."""
    asked: list[Stream] = []

    def on() -> Stream:
        asked.append(p)
        return p

    launched = dlx.launcher(lambda x, y: None, stream=on)
    with library.stream(p):
        array = library.full((4,))
        launched(array, array)
        launched(array, 3)
    assert asked == [p, p]


def test_the_stream_of_the_call_comes_before_on(
    sim: Simulation, library: Framework, s: Stream
) -> None:
    """docs/launcher.md, Streams: None is none."""
    given = dlx.launcher(lambda x, stream=None: stream, stream=s)
    with library.stream(sim.stream()) as _:
        p, array = sim.stream(), library.full((4,))
        assert given(array) == s.handle
        assert given(array, stream=p) == given(array, p) == p.handle


# Refusals.


@pytest.mark.parametrize("on", [None, lambda: None])
def test_a_stream_that_nothing_names_is_refused(
    sim: Simulation, library: Framework, on: Any
) -> None:
    """docs/launcher.md, Refused: it would be ordered with none."""
    calls: list[int] = []
    launched = dlx.launcher(calls.append, stream=on)
    with library.stream(sim.stream()):
        array = library.full((4,))
        sim.clear_journal()
        with pytest.raises(BufferError, match="nothing says which stream"):
            launched(array)
        assert (calls, sim.called()) == ([], [])


def test_a_stream_that_orders_nothing_is_no_stream_to_launch_on(
    sim: Simulation, library: Framework
) -> None:
    """R76: a function that gets one needs one."""
    with library.stream(sim.stream()):
        array = library.full((4,))
        with pytest.raises(ValueError, match="stream=-1 orders nothing"):
            read(array, stream=-1)


def test_on_the_cpu_there_is_no_stream_to_name(s: Stream) -> None:
    """R70: as in `borrow`."""
    array = np.zeros(4, "f4")
    with pytest.raises(BufferError, match="no streams"):
        read(array, stream=s)
    with pytest.raises(BufferError, match="no streams"):
        on_own_stream(s, stream=s)(array)


def test_nothing_is_joined_where_an_argument_is_refused(
    sim: Simulation, library: Framework, s: Stream
) -> None:
    """H1: all are lent before the first stream waits."""
    with library.stream(sim.stream()):
        x, out = library.full((4,)), library.full((4,), flags=READ_ONLY)
        sim.clear_journal()
        with pytest.raises(BufferError, match="is read-only") as refused:
            copy(x, out, stream=s)
        assert refused.value.__notes__ == ["argument out of copy"]
        assert "cuStreamWaitEvent" not in sim.called()


def test_what_was_joined_is_joined_back_where_joining_fails(
    sim: Simulation, library: Framework, s: Stream
) -> None:
    """H1, H6: as by `borrow`."""
    other, p, q = framework(InterfaceArray), sim.stream(), sim.stream()
    with library.stream(p), other.stream(q):
        one, two = library.full((4,)), other.full((4,))
        with (
            p.capture(),
            q.capture(),
            pytest.raises(BufferError, match="capture two different graphs"),
        ):
            copy(one, two, stream=s)


def test_an_error_at_the_end_has_that_of_the_function_as_context(
    sim: Simulation, library: Framework, s: Stream
) -> None:
    """H1: as in a `with` block."""

    @dlx.launcher
    def fails(x: int, *, stream: int) -> None:
        sim.fail_next("cuStreamWaitEvent", 999)
        raise KeyError(3)

    with library.stream(sim.stream()):
        array = library.full((4,))
        with pytest.raises(dlx.CudaError, match="999") as failed:
            fails(array, stream=s)
    assert isinstance(failed.value.__context__, KeyError)


def test_a_pointer_waits_for_its_producer(
    sim: Simulation, library: Framework, s: Stream
) -> None:
    """docs/launcher.md, A single pointer: and its memory for the stream."""
    with library.stream(sim.stream()):
        array = library.full((4,))
        pointer = dlx.as_pointer(array, s)
        queue(s.handle, pointer.data_ptr(), write=False)
        array.free()
        del array, pointer
        library.full((4,))
    assert sim.races == []


# Devices.


def mixed(sim: Simulation, library: Framework) -> list[tuple[Any, Any]]:
    """Return pairs of tensors that no kernel can take."""
    here, there = library.full((4,)), library.full((4,), device=1)
    host = np.zeros(4, "f4")
    return [(here, there), (there, here), (here, host), (host, here)]


@pytest.mark.parametrize("give", ["address", "pointer", "tensor"])
def test_tensors_of_two_devices_are_refused(
    sim: Simulation, library: Framework, give: Any
) -> None:
    """H7: the kernel would end with error 700, and all work of the device with it."""

    @dlx.launcher(give=give)
    def launch(x: Any, y: Any, *, stream: int) -> None:
        raise AssertionError("not reached")

    for number, (x, y) in enumerate(mixed(sim, library)):
        with pytest.raises(
            BufferError, match="a kernel takes tensors of one"
        ) as caught:
            launch(x, y)
        [note] = caught.value.__notes__
        assert f"argument {'x' if number == 3 else 'y'} of" in note


def test_a_tensor_of_torch_on_the_cpu_is_refused_beside_one_on_a_gpu(
    sim: Simulation, library: Framework
) -> None:
    """H7: also before it, where it is taken without a question."""
    torch = requires("torch")
    for pair in (
        (library.full((4,)), torch.ones(4)),
        (torch.ones(4), library.full((4,))),
    ):
        with pytest.raises(BufferError, match="the tensor is on cpu"):
            copy(*pair)


def test_the_advice_for_a_tensor_of_another_device_is_good(
    sim: Simulation, library: Framework
) -> None:
    """R60: what is copied there is accepted."""
    host, here = np.zeros(4, "f4"), library.full((4,))
    with pytest.raises(BufferError, match=r"device='cuda:0'"):
        copy(host, here)
    copy(dlx.from_dlpack(host, device="cuda:0"), here)
    assert sim.races == []


def test_a_function_that_takes_several_devices_says_so(
    sim: Simulation, library: Framework
) -> None:
    """docs/launcher.md, Refused."""
    seen = []

    @dlx.launcher(devices="any")
    def launch(x: int, y: int, *, stream: int) -> None:
        seen.append((x, y))

    for x, y in mixed(sim, library):
        launch(x, y)
    assert len(seen) == 4


def test_the_devices_are_one_or_any() -> None:
    """R60: a typing error is told at the decorator."""
    with pytest.raises(ValueError, match="devices is 'all'; expected one of"):
        dlx.launcher(devices="all")(print)  # type: ignore[call-overload]


def test_pinned_and_managed_memory_passes_with_every_device(
    sim: Simulation, library: Framework
) -> None:
    """R66: kernels reach it from each GPU."""
    here = library.full((4,))
    for kind in (3, 13):
        memory = sim.allocate(NBYTES, kind="pinned" if kind == 3 else "managed")
        other = dlx.from_pointer(memory.address, (4,), "float32", device=(kind, 0))
        assert read_both(here, other) == read_both(other, here)


@dlx.launcher
def read_both(x: int, y: int, *, stream: int) -> int:
    """Queue kernels that read; return their stream."""
    queue(stream, x, write=False)
    queue(stream, y, write=False)
    return stream
