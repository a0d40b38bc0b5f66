"""`borrow` and `use` of objects whose interface names their stream."""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any

import dlx
import numpy as np
import pytest
from support.cuda_producers import DLPackArray, Framework, InterfaceArray, framework
from support.fake_cuda_interface import InterfaceDLPackArray, Shown
from support.simulated_driver import Simulation
from support.simulated_kernels import ordered, read, until, write


@pytest.fixture(params=[InterfaceArray, InterfaceDLPackArray])
def library(sim: Simulation, request: Any) -> Framework:
    """Give a library without a table."""
    return framework(request.param, "without a table")


def test_a_kernel_runs_on_the_stream_that_the_library_works_on(
    sim: Simulation, library: Framework
) -> None:
    """R143: nobody has to wait."""
    p = sim.stream()
    with library.stream(p):
        a, b = library.full((2, 3)), library.full((2, 3))
        with dlx.borrow(a, out=b) as (ta, tb, s):
            read(s, ta)
            write(s, tb)
        a += 1
    assert (s, ordered(sim), sim.races) == (p.handle, [], [])


def test_another_stream_is_joined_at_both_ends(
    sim: Simulation, library: Framework
) -> None:
    """H1, R150: one event before the kernel, one after it."""
    mine = sim.stream()
    with library.stream(sim.stream()):
        a = library.full((2, 3), 1.0)
        with dlx.borrow(a, stream=mine) as (ta, s):
            read(s, ta)
        a += 2
        assert a.tolist() == [3.0] * 6
    assert (ordered(sim), sim.races) == (
        ["cuEventRecord", "cuStreamWaitEvent"] * 2,
        [],
    )


def test_without_order_there_is_a_race(sim: Simulation, library: Framework) -> None:
    """R76: so that the test above can fail."""
    mine = sim.stream()
    with library.stream(sim.stream()):
        a = library.full((2, 3))
        with dlx.borrow(a, stream=-1) as (ta, _):
            read(mine, ta)
    assert len(sim.races) == 1


def test_two_libraries_on_two_streams_are_joined(
    sim: Simulation, library: Framework
) -> None:
    """H2: each of them may write after the block."""
    other = framework(InterfaceDLPackArray, "another without a table")
    with library.stream(sim.stream()), other.stream(sim.stream()):
        a, b = library.full((2, 3)), other.full((2, 3))
        with dlx.borrow(a, out=b) as (ta, tb, s):
            read(s, ta)
            write(s, tb)
        a += 1
        b += 1
    assert sim.races == []


def test_memory_may_be_freed_at_the_end(sim: Simulation, library: Framework) -> None:
    """H4: the pool gives it out again at once."""
    mine = sim.stream()
    with library.stream(sim.stream()):
        a = library.full((2, 3))
        with dlx.borrow(a, stream=mine) as (ta, s):
            read(s, ta)
            address = ta.data_ptr
            if isinstance(a, DLPackArray):
                # Its exports hold the object.
                a.free()
            del a, ta
        again = library.full((2, 3))
        assert again.data == address
    assert sim.races == []


def test_a_tensor_that_is_kept_asks_for_the_stream_of_now(
    sim: Simulation, library: Framework
) -> None:
    """docs/streams.md, Three designs: the producer is asked again at both ends."""
    p, q, r, mine = (sim.stream() for _ in range(4))
    with library.stream(p):
        a = library.full((2, 3))
        tensor = dlx.from_dlpack(a)
    q.wait_for(p)
    with library.stream(q):
        a += 1
    use = tensor.use(stream=mine)
    with library.stream(q):
        view = use.__enter__()
    read(mine, view)
    with library.stream(r):
        use.__exit__(None, None, None)
        a += 1
    assert sim.races == []


class Counted(InterfaceDLPackArray):
    """An array that has `__dlpack__`, too."""

    reads = 0

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Count the reads."""
        self.reads += 1
        return super().__cuda_array_interface__


@pytest.mark.parametrize("count", [1, 3, 16])
@pytest.mark.parametrize("stream", ["the library's", "another"])
@pytest.mark.parametrize(("kind", "entry"), [("bare", 2), ("counted", 1)])
def test_an_interface_is_read_once_at_each_end_for_its_stream(
    sim: Simulation, kind: str, entry: int, stream: str, count: int
) -> None:
    """R150: once more where it is the export, too, and where another one came after."""

    def reads(arrays: list[Any]) -> list[int]:
        return [x.reads for x in arrays]

    p, library = sim.stream(), framework(Counted)
    launch = dlx.launcher(lambda *arguments, stream: None)
    wanted = p if stream == "the library's" else sim.stream()
    with library.stream(p):
        for by in "borrow", "launcher":
            arrays: list[Any] = (
                [Shown(sim.allocate(24), p) for _ in range(count)]
                if kind == "bare"
                else [library.full((2, 3)) for _ in range(count)]
            )
            if by == "borrow":
                with dlx.borrow(*arrays, stream=wanted):
                    assert reads(arrays) == [entry + 1] * (count - 1) + [entry]
            else:
                launch(*arrays, stream=wanted)
            assert reads(arrays) == [entry + 2] * (count - 1) + [entry + 1]


def test_a_stream_that_another_argument_has_changed_is_asked_for_again(
    sim: Simulation,
) -> None:
    """R150: code of others has run since it was read."""
    p, q, mine = sim.stream(), sim.stream(), sim.stream()
    memory = sim.allocate(24)
    p.write(memory)
    x = Shown(memory, p)

    class Lazy:
        @property
        def __array_interface__(self) -> Any:
            q.wait_for(p)
            q.write(memory)
            x.interface["stream"] = q.handle
            return np.zeros(4).__array_interface__

    with dlx.borrow(x, Lazy(), stream=mine) as (view, _, s):
        write(s, view)
    assert sim.races == []


def test_a_stream_that_another_array_of_the_class_has_changed_is_asked_for_again(
    sim: Simulation,
) -> None:
    """R150: arrays that are computed when they are looked at."""
    p, q, mine = sim.stream(), sim.stream(), sim.stream()
    memory = sim.allocate(24)
    p.write(memory)

    class Lazy(Shown):
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            if self is not x and x.interface["stream"] == p.handle:
                q.wait_for(p)
                q.write(memory)
                x.interface["stream"] = q.handle
            return super().__cuda_array_interface__

    x = Lazy(memory, p)
    other = Lazy(sim.allocate(24), p)
    with dlx.borrow(x, other, stream=mine) as (view, _, s):
        write(s, view)
    assert sim.races == []


def test_a_stream_that_another_object_of_a_mixin_class_has_changed_is_asked_for_again(
    sim: Simulation,
) -> None:
    """R150: what the class exports may be made when it is asked for."""
    p, q, mine = sim.stream(), sim.stream(), sim.stream()
    memory = sim.allocate(24)
    p.write(memory)
    x = Shown(memory, p)

    class Made(dlx.ExchangeMixin, exchange="make"):
        def __init__(self, shown: Shown) -> None:
            self.shown = shown

        @property
        def make(self) -> Shown:
            if self.shown is not x:
                q.wait_for(p)
                q.write(memory)
                x.interface["stream"] = q.handle
            return self.shown

    other = Shown(sim.allocate(24), p)
    with dlx.borrow(Made(x), Made(other), stream=mine) as (view, _, s):
        write(s, view)
    assert sim.races == []


def test_a_hidden_interface_names_no_stream(sim: Simulation) -> None:
    """R143: the type has one, the object has not."""

    class Hidden(Shown):
        @property
        def __cuda_array_interface__(self) -> Any:
            raise AttributeError

        @property
        def __array_interface__(self) -> Any:
            return np.zeros(4).__array_interface__

    with dlx.borrow(Hidden(sim.allocate(24))) as (view, stream):
        assert (str(view.device), stream) == ("cpu", None)


def test_an_array_without_elements_gives_the_block_its_stream(sim: Simulation) -> None:
    """R143: also to tensors that come after it."""
    p = sim.stream()
    with dlx.borrow(Shown(sim.allocate(24), p, shape=(0, 3))) as (_, stream):
        assert stream == p.handle


def test_an_array_without_a_named_stream_is_used_where_the_block_is(
    sim: Simulation,
) -> None:
    """R148: it is ready; only the end is noted."""
    memory, mine = sim.allocate(24), sim.stream()
    with dlx.borrow(Shown(memory), stream=mine) as (view, s):
        write(s, view)
    assert (ordered(sim), sim.races) == (["cuEventRecord"], [])


@pytest.mark.parametrize("is_kept", [False, True])
def test_an_array_without_a_named_stream_is_held_until_the_block_is_done(
    sim: Simulation, is_kept: bool
) -> None:
    """R151, H4: that nothing is to be waited for says nothing of the end."""
    memory, mine = sim.allocate(24), sim.stream()
    shown = Shown(memory)
    gone = weakref.ref(shown)
    lent: Any = dlx.from_dlpack(shown).use if is_kept else partial(dlx.borrow, shown)
    with lent(stream=mine) as entered:
        read(mine, entered if is_kept else entered[0])
    del shown, lent, entered
    assert gone() is not None
    mine.advance()
    until(lambda: gone() is None)
