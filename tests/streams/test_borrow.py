"""`dlx.borrow`: tensors lent to a kernel, and joined at both ends."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref
from typing import Any

import dlx
import numpy as np
import pytest
from support.concurrent_threads import in_thread
from support.cuda_producers import (
    DLPackArray,
    Framework,
    InterfaceArray,
    TableArray,
    framework,
)
from support.dlpack_abi import DLTensor, from_table, table_of
from support.optional_libraries import requires
from support.simulated_driver import Simulation
from support.simulated_kernels import read, write
from support.simulated_objects import LEGACY

READ_ONLY = 1


def test_the_lead_is_the_stream_of_the_first_tensor_on_a_device(
    sim: Simulation,
) -> None:
    """R143: those on the CPU have none."""
    one, other = framework(TableArray, "one"), framework(TableArray, "other")
    p, q = sim.stream(), sim.stream()
    with one.stream(p), other.stream(q):
        first, second = one.full((4,)), other.full((4,))
        with dlx.borrow(np.zeros(3), first, second) as (array, a, b, stream):
            assert {s and s.handle for s in (stream, a.stream, b.stream)} == {p.handle}
            assert array.stream is None


def test_a_stream_that_is_given_is_the_lead_of_all(sim: Simulation) -> None:
    """H2, R83: each library is joined at both ends."""
    one, other = framework(TableArray, "one"), framework(TableArray, "other")
    s = sim.stream()
    with one.stream(sim.stream()), other.stream(sim.stream()):
        first, second = one.full((4,)), other.full((4,))
        with dlx.borrow(first, out=[second], stream=s) as (a, b, stream):
            assert stream == s.handle
            read(stream, a)
            write(stream, b)
        first += 1
        second += 1
    assert sim.races == []


def test_a_borrow_joins_when_its_body_raises(
    sim: Simulation, library: Framework
) -> None:
    """H1: what was launched runs all the same."""
    with library.stream(sim.stream()):
        array = library.full((4,))

        def body() -> None:
            with dlx.borrow(array, stream=sim.stream()) as (tensor, stream):
                write(stream, tensor)
                raise KeyError

        with pytest.raises(KeyError):
            body()
        array += 1
    assert sim.races == []


def test_on_the_cpu_there_is_no_stream() -> None:
    """R70: and no driver."""
    array = np.arange(3)
    with dlx.borrow(array, out=np.zeros(3)) as (a, b, stream):
        assert stream is None
        assert a.numpy() is not array
        b.numpy()[:] = 1
    with pytest.raises(BufferError, match="no streams"):
        dlx.borrow(array, stream=1).__enter__()


def test_out_that_is_read_only_is_refused(sim: Simulation, library: Framework) -> None:
    """R39: it may be an input."""
    with library.stream(sim.stream()):
        array = library.full((4,), flags=READ_ONLY)
        with dlx.borrow(array) as (tensor, _):
            assert tensor.readonly
        with pytest.raises(BufferError, match="out is read-only"):
            dlx.borrow(library.full((4,)), out=array).__enter__()


@pytest.mark.parametrize("many", [list, tuple])
def test_out_may_be_several(sim: Simulation, library: Framework, many: Any) -> None:
    """R143: they come behind the others."""
    with library.stream(sim.stream()):
        arrays = [library.full((n,)) for n in (1, 2, 3)]
        with dlx.borrow(arrays[0], out=many(arrays[1:])) as (*tensors, _):
            assert [tensor.size for tensor in tensors] == [1, 2, 3]


USES: dict[str, Callable[[dlx.Tensor], object]] = {
    "data_ptr": lambda view: view.data_ptr,
    "__dlpack__": lambda view: view.__dlpack__(),
    "from_dlpack": dlx.from_dlpack,
    "numpy": lambda view: view.numpy(),
    "use": lambda view: view.use().__enter__(),
    "borrow": lambda view: dlx.borrow(view).__enter__(),
    "to": lambda view: view.to(copy=True),
    "memoryview": memoryview,
    "table, export": lambda view: from_table(table_of(view), view),
    "table, view": lambda view: table_of(view).dltensor_from_py_object_no_sync(
        view, byref(DLTensor())
    ),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_a_view_is_dead_after_the_block(
    library: Framework, kind: str, use: Any
) -> None:
    """R129, R142: its memory may be anybody's."""
    array = np.zeros(4) if kind == "cpu" else library.full((4,))
    with dlx.borrow(array) as (view, _):
        pass
    with pytest.raises(BufferError, match="block"):
        use(view)
    assert "ended" in repr(view)


def test_what_a_view_is_stays_known_after_the_block(library: Framework) -> None:
    """R129: shape, dtype and device are not memory."""
    with dlx.borrow(library.full((4,))) as (view, _):
        pass
    assert (view.shape, str(view.dtype), view.nbytes) == ((4,), "float32", 16)


def test_a_view_that_was_exported_in_the_block_stays_alive(
    sim: Simulation, library: Framework
) -> None:
    """R16: an export is a holder of its own."""
    with library.stream(sim.stream()):
        array = library.full((4,))
        with dlx.borrow(array) as (view, stream):
            kept = dlx.from_dlpack(view, stream=stream)
        array.free()
        assert kept.data_ptr == array.data


def test_a_block_is_entered_once(sim: Simulation, library: Framework) -> None:
    """R60: the first one goes on."""
    with library.stream(sim.stream()):
        block = dlx.borrow(library.full((4,)))
        with block as (view, _):
            with pytest.raises(RuntimeError, match="entered already"):
                block.__enter__()
            assert view.data_ptr


def test_a_block_that_was_left_is_entered_again(
    sim: Simulation, library: Framework
) -> None:
    """R60: with new views."""
    with library.stream(sim.stream()):
        block = dlx.borrow(library.full((4,)))
        with block as (first, _):
            pass
        with block as (second, _):
            assert second.data_ptr
        with pytest.raises(RuntimeError, match="not been entered"):
            block.__exit__(None, None, None)
        assert "ended" in repr(first)


def test_nothing_is_joined_where_lending_fails(
    sim: Simulation, library: Framework
) -> None:
    """H1: all are lent before the first stream waits."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        sim.clear_journal()
        with pytest.raises(AttributeError):
            dlx.borrow(array, object(), stream=s).__enter__()
    assert "cuStreamWaitEvent" not in sim.called()


def test_what_was_joined_is_joined_back_where_joining_fails(
    sim: Simulation, library: Framework
) -> None:
    """H1, H6: the first library captures, the second one a graph of its own."""
    other, p, q, s = framework(InterfaceArray), *(sim.stream() for _ in range(3))
    with library.stream(p), other.stream(q):
        one, two = library.full((4,)), other.full((4,))
        with (
            p.capture(),
            q.capture(),
            pytest.raises(BufferError, match="capture two different graphs"),
        ):
            dlx.borrow(one, two, stream=s).__enter__()


def test_every_tensor_is_joined_back_where_one_cannot_be(sim: Simulation) -> None:
    """H2: and the first error is raised."""
    libraries = [framework(TableArray, name) for name in ("one", "other")]
    streams, s = [sim.stream(), sim.stream()], sim.stream()
    with libraries[0].stream(streams[0]), libraries[1].stream(streams[1]):
        block = dlx.borrow(*(library.full((4,)) for library in libraries), stream=s)
        block.__enter__()
        sim.clear_journal()
        sim.fail_next("cuStreamWaitEvent", 999)
        with pytest.raises(dlx.CudaError, match="999"):
            block.__exit__(None, None, None)
    waits = [call for call in sim.calls() if call.name == "cuStreamWaitEvent"]
    assert [wait.arguments["stream"] for wait in waits] == [s.handle for s in streams]


def test_a_producer_without_a_table_is_asked_to_order_the_lead(
    sim: Simulation,
) -> None:
    """R83: it cannot be made to wait, so its array is not reused under the kernel."""
    library, s = framework(DLPackArray), sim.stream()
    with library.stream(sim.stream()):
        array = library.full((4,))
        with dlx.borrow(array, stream=s) as (tensor, stream):
            read(stream, tensor)
        array.free()
        library.full((4,))
    assert sim.races == []


def test_no_order_is_kept_where_none_is_asked_for(
    sim: Simulation, library: Framework
) -> None:
    """R76: with `stream=-1`, `borrow` calls no driver and names no stream."""
    with library.stream(sim.stream()):
        array = library.full((4,))
        sim.clear_journal()
        with dlx.borrow(array, stream=-1) as (tensor, stream):
            assert (stream, tensor.stream) == (None, None)
        assert sim.called() == []


def test_tensors_of_two_devices_are_joined_with_the_lead(
    sim: Simulation, library: Framework
) -> None:
    """H2, H7: each event is recorded in the context of its stream."""
    p, q = sim.stream(), sim.stream(device=1)
    sim.enable_peers()
    with library.stream(p), library.stream(q):
        array, other = library.full((4,)), library.full((4,), device=1)
        with dlx.borrow(array, out=other) as (a, b, stream):
            assert stream == p.handle
            read(stream, a)
            write(stream, b)
        array += 1
        other += 1
    assert sim.races == []


@pytest.mark.parametrize("is_default", [False, True])
def test_the_views_of_two_devices_are_ready_on_the_stream_of_the_block(
    sim: Simulation, library: Framework, is_default: bool
) -> None:
    """H2: the stream of one of them, which has its number on the other device, too."""
    p, q = (
        sim.default_stream(LEGACY, at) if is_default else sim.stream(device=at)
        for at in (0, 1)
    )
    sim.enable_peers()
    with library.stream(p), library.stream(q):
        array, other = library.full((4,)), library.full((4,), device=1)
        with dlx.borrow(array, out=other) as (a, b, stream):
            assert (a.stream, b.stream) == (stream, stream)
            write(stream, b)
            dlx.from_dlpack(b, device="cpu")
            with sim.on_device(1):
                capsule = b.__dlpack__(stream=q.handle)
                read(q, b)
                del capsule
    assert sim.races == []


def test_what_is_lent_is_given_back(sim: Simulation, library: Framework) -> None:
    """R8: each deleter has run when the block is left."""
    with library.stream(sim.stream()):
        array = library.full((4,))
        with dlx.borrow(array, array) as (_, _, _):
            pass
        assert array.deleted == len(array.exports)


def test_a_block_may_be_left_in_another_thread(
    sim: Simulation, library: Framework
) -> None:
    """H5: a generator or a pool may do so; the library's stream there is joined."""
    p, s = sim.stream(), sim.stream()
    with library.stream(p):
        array = library.full((4,))
        block = dlx.borrow(array, stream=s)
        tensor, stream = block.__enter__()
        write(stream, tensor)

        def leave() -> None:
            with library.stream(p):
                block.__exit__(None, None, None)

        in_thread(leave)
        array += 1
    assert sim.races == []


def test_a_tensor_that_requires_grad_is_lent_as_it_is() -> None:
    """R125: a kernel records none; an import refuses it."""
    torch = requires("torch")
    tensor = torch.ones(3, requires_grad=True)
    with dlx.borrow(tensor) as (view, stream):
        assert stream is None
        assert view.data_ptr == tensor.data_ptr()
    with pytest.raises(BufferError):
        dlx.from_dlpack(tensor)
