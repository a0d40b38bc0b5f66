"""`dlx.launcher` where the libraries of all tensors work on one stream."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dlx
import pytest
from support.cuda_producers import Framework, TableArray, framework
from support.simulated_contexts import second_context
from support.simulated_driver import Simulation, simulation
from support.simulated_objects import GLOBAL, LEGACY, RELAXED, Stream

NBYTES = 16
DEFAULT = "default"


def launch(stream: int, *addresses: int) -> int:
    """Queue kernels that write to four elements; return the stream."""
    for address in addresses:
        simulation().call("sim_launch", stream, 1, address, NBYTES)
    return stream


@dlx.launcher
def write(*x: int, stream: int) -> int:
    """Queue kernels that write; return their stream."""
    return launch(stream, *x)


def launch_two(x: int, y: int, stream: int) -> int:
    """Queue kernels that write to both; return their stream."""
    return launch(stream, x, y)


@contextmanager
def asks(*libraries: Framework) -> Iterator[list[str]]:
    """Note each time that a library is asked for its stream."""
    asked: list[str] = []

    def noting(library: Framework) -> Callable[[int], Stream]:
        def current_stream(device: int = 0) -> Stream:
            asked.append(library.name)
            return type(library).current_stream(library, device)

        return current_stream

    for library in libraries:
        vars(library)["current_stream"] = noting(library)
    try:
        yield asked
    finally:
        for library in libraries:
            del vars(library)["current_stream"]


@pytest.fixture
def one() -> Framework:
    """Give a library with a table."""
    return framework(TableArray, "one")


@pytest.fixture
def other() -> Framework:
    """Give another one."""
    return framework(TableArray, "other")


@pytest.mark.parametrize("number", [1, 3, 16])
@pytest.mark.parametrize("stream", [DEFAULT, "own"])
def test_a_library_is_asked_once_before_and_once_after(
    sim: Simulation, one: Framework, number: int, stream: str
) -> None:
    """docs/launcher.md, Streams: the driver is not, on a default stream either."""
    p = sim.default_stream(LEGACY, 0) if stream == DEFAULT else sim.stream()
    with one.stream(p):
        arrays = [one.full((4,)) for _ in range(number)]
        named = one.current_stream().handle
        sim.clear_journal()
        with asks(one) as asked:
            assert dlx.launcher(lambda *x, stream: stream)(*arrays) == named
    assert asked == ["one", "one"]
    assert sim.called() == []


class Mixed(dlx.ExchangeMixin, exchange="data"):
    """Exports what it keeps."""

    def __init__(self, data: Any) -> None:
        """Keep it."""
        self.data = data


@pytest.mark.parametrize("stream", [DEFAULT, "own"])
def test_a_tensor_on_the_stream_of_its_library_is_as_that_of_its_library(
    sim: Simulation, one: Framework, stream: str
) -> None:
    """R81: and so is what exports one; the driver tells on a default stream alone."""
    p = sim.default_stream(LEGACY, 0) if stream == DEFAULT else sim.stream()
    with one.stream(p):
        arrays = [one.full((4,)) for _ in range(2)]
        tensors = [dlx.from_dlpack(x, stream=p.handle) for x in arrays]
        given = [*tensors, *arrays, *map(Mixed, [*tensors, *arrays])]
        sim.clear_journal()
        with asks(one) as asked:
            assert dlx.launcher(lambda *x, stream: (stream, *x))(*given) == (
                p.handle,
                *[x.data for x in arrays] * 4,
            )
        assert asked == ["one", "one"]
        assert set(sim.called()) <= (
            {"cuCtxGetCurrent"} if stream == DEFAULT else set()
        )


def test_tensors_on_two_streams_wait_for_each_other(
    sim: Simulation, one: Framework, other: Framework
) -> None:
    """H1: each is used on that of its library."""
    p, q = sim.stream(), sim.stream()
    with one.stream(p), other.stream(q):
        x = dlx.from_dlpack(one.full((4,)), stream=p.handle)
        y = dlx.from_dlpack(other.full((4,)), stream=q.handle)
        for _ in range(3):
            assert write(x, y) == p.handle
            assert write(y, x) == q.handle
    assert sim.races == []


def test_views_of_blocks_on_two_streams_wait_for_each_other(
    sim: Simulation, one: Framework
) -> None:
    """H1: no library is asked for the stream of a view, which is that of its block."""
    p, q = sim.stream(), sim.stream()
    with one.stream(sim.stream()):
        a, b = one.full((4,)), one.full((4,))
        with (
            dlx.borrow(out=a, stream=p.handle) as (x, _),
            dlx.borrow(out=b, stream=q.handle) as (y, _),
        ):
            for _ in range(3):
                launch(p.handle, x.data_ptr)
                launch(q.handle, y.data_ptr)
                assert dlx.launcher(launch_two)(x, y) == p.handle
                assert dlx.launcher(launch_two)(y, x) == q.handle
    assert sim.races == []


def test_a_tensor_on_the_legacy_stream_waits_for_that_of_its_own_context(
    sim: Simulation, one: Framework
) -> None:
    """H8: the number of that of the current context is the same."""
    tensor = dlx.from_dlpack(one.full((4,)), stream=LEGACY)
    launch(LEGACY, tensor.data_ptr)
    with second_context(sim).current():
        dlx.launcher(launch_two)(tensor, tensor)
    assert sim.races == []


def test_a_tensor_whose_library_has_left_its_stream_waits_for_that(
    sim: Simulation, one: Framework
) -> None:
    """H1, R150: the library works on another one by then."""
    p, q = sim.stream(), sim.stream()
    with one.stream(p):
        array = one.full((4,))
        tensor = dlx.from_dlpack(array, stream=p.handle)
    q.wait_for(p)
    with one.stream(q):
        array += 1
        p.wait_for(q)
        launch(p.handle, tensor.data_ptr)
        write(tensor)
        array += 1
    assert sim.races == []


def test_a_tensor_that_another_stream_has_used_waits_for_that(
    sim: Simulation, one: Framework
) -> None:
    """H12: a view of it has."""
    p, q = sim.stream(), sim.stream()
    with one.stream(p):
        tensor = dlx.from_dlpack(one.full((4,)), stream=p.handle)
        view = dlx.from_dlpack(tensor, stream=q.handle)
        launch(q.handle, view.data_ptr)
        del view
        write(tensor)
    assert sim.races == []


def test_what_a_mixin_object_exports_lives_until_the_function_returns(
    sim: Simulation, one: Framework
) -> None:
    """H4: its export may be new each time."""

    p = sim.stream()

    class Exporting(dlx.ExchangeMixin, exchange="make"):
        @property
        def make(self) -> dlx.Tensor:
            made = dlx.from_dlpack(one.full((4,)), stream=p.handle)
            tensors.append(weakref.ref(made))
            return made

    tensors: list[weakref.ref[dlx.Tensor]] = []
    alive: list[bool] = []
    with one.stream(p):
        dlx.launcher(lambda x, stream: alive.append(tensors[-1]() is not None))(
            Exporting()
        )
    assert alive == [True]
    assert [tensor() for tensor in tensors] == [None]


@pytest.mark.parametrize("error", [ValueError, BufferError])
@pytest.mark.parametrize("written", [False, True])
def test_an_exception_of_a_mixin_object_names_the_argument(
    error: type[Exception], written: bool
) -> None:
    """R60: and what raised is asked once."""

    class Raising(dlx.ExchangeMixin, exchange="data"):
        @property
        def data(self) -> Any:
            asked.append(1)
            raise error("boom")

    asked: list[int] = []
    launched = dlx.launcher(lambda x, y: 1, out=["y"] if written else [])
    with pytest.raises(error, match="boom") as raised:
        launched(1, Raising())
    assert raised.value.__notes__[-1].startswith("argument y of")
    assert len(asked) == 1


@pytest.mark.parametrize("how", ["own stream", "capture", DEFAULT])
def test_two_libraries_on_one_stream_wait_for_nothing(
    sim: Simulation, one: Framework, other: Framework, how: str
) -> None:
    """R81: equal handles at one moment are one stream, whether or not it captures."""
    p = sim.default_stream(LEGACY, 0) if how == DEFAULT else sim.stream()
    with one.stream(p), other.stream(p):
        arrays = [one.full((4,)), other.full((4,)), one.full((4,))]
        if how == "capture":
            p.begin_capture(GLOBAL)
        sim.clear_journal()
        with asks(one, other) as asked:
            assert write(*arrays) == p.handle
        assert sorted(asked) == ["one", "one", "other", "other"]
        assert set(sim.called()) <= {"sim_launch"}
        if how == "capture":
            p.end_capture()
        for array in arrays:
            array += 1
    assert sim.races == []


def test_two_libraries_on_two_streams_wait_for_each_other(
    sim: Simulation, one: Framework, other: Framework
) -> None:
    """H1: what differs is ordered, in any number of calls."""
    p, q = sim.stream(), sim.stream()
    with one.stream(p), other.stream(q):
        x, y = one.full((4,)), other.full((4,))
        for _ in range(3):
            assert write(x, y) == p.handle
            assert write(y, x) == q.handle
            x += 1
            y += 1
    assert sim.races == []


@pytest.mark.parametrize("raises", [False, True])
def test_a_library_that_changes_its_stream_inside_waits(
    sim: Simulation, one: Framework, other: Framework, raises: bool
) -> None:
    """H1, R150: its next kernels run on the new stream, after that of the call."""
    p, q = sim.stream(), sim.stream()

    @dlx.launcher
    def switches(*x: int, stream: int) -> None:
        launch(stream, *x)
        one.work_on(q)
        if raises:
            raise KeyError(stream)

    with one.stream(p), other.stream(p):
        x, y = one.full((4,)), other.full((4,))
        if raises:
            with pytest.raises(KeyError, match=str(p.handle)):
                switches(x, y)
        else:
            switches(x, y)
        x += 1
        y += 1
    one.work_on(None)
    assert sim.races == []


def test_a_stream_that_captures_cannot_be_left_for_another(
    sim: Simulation, one: Framework
) -> None:
    """H6: as by `borrow`, and the error of the function is not lost."""
    p, q = sim.stream(), sim.stream()

    @dlx.launcher
    def switches(x: int, *, stream: int) -> None:
        launch(stream, x)
        one.work_on(q)
        raise KeyError(stream)

    with one.stream(p):
        x = one.full((4,))
        p.begin_capture(RELAXED)
        with pytest.raises(BufferError, match="captures a graph") as caught:
            switches(x)
        assert isinstance(caught.value.__context__, KeyError)
        p.discard()
    one.work_on(None)


def test_the_stream_of_a_thread_is_its_own(sim: Simulation, one: Framework) -> None:
    """H8: 2 names one stream where all name it in one thread."""
    p = sim.default_stream(2, 0)
    with one.stream(p):
        x = one.full((4,))
        sim.clear_journal()
        assert write(x) == 2
        assert set(sim.called()) <= {"sim_launch"}
        x += 1
    assert sim.races == []


def test_five_libraries_on_one_stream_are_in_order(sim: Simulation) -> None:
    """R81: a call with many libraries takes the way of all others."""
    made = [framework(TableArray, f"library {index}") for index in range(5)]
    p = sim.stream()
    for library in made:
        library.work_on(p)
    arrays: list[Any] = [library.full((4,)) for library in made]
    assert write(*arrays) == p.handle
    for array in arrays:
        array += 1
    for library in made:
        library.work_on(None)
    assert sim.races == []
