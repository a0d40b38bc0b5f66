"""Objects with `__dlpack__` and an interface that names their stream, like CuPy's."""

from __future__ import annotations

from typing import Any

import dlx
import pytest
from support.cuda_producers import DLPackArray, Framework, framework
from support.fake_cuda_interface import InterfaceDLPackArray
from support.simulated_driver import Simulation
from support.simulated_kernels import ordered, read
from support.simulated_objects import LEGACY


@pytest.fixture
def cupy(sim: Simulation) -> Framework:
    """Give a library whose arrays have both."""
    return framework(InterfaceDLPackArray, "cupy")


def handles(sim: Simulation) -> set[Any]:
    """The streams that any call but the test's own was about."""
    calls = [call for call in sim.journal if call.caller != "test"]
    return {call.arguments.get("stream") for call in calls} - {None}


def test_without_a_stream_only_the_point_is_noted(
    sim: Simulation, cupy: Framework
) -> None:
    """R76, R149: on the stream that is named; the legacy one is left alone."""
    p = sim.stream()
    with cupy.stream(p):
        array = cupy.full((2, 3), 1.5)
        tensor = dlx.from_dlpack(array)
    assert array.asked["stream"] == -1
    assert ordered(sim) == ["cuEventRecord"]
    assert handles(sim) == {p.handle}
    assert tensor.stream is None


def test_what_was_written_comes_before_a_later_consumer(
    sim: Simulation, cupy: Framework
) -> None:
    """H12: the export waits for the point that the import noted."""
    s = sim.stream()
    with cupy.stream(sim.stream()):
        array = cupy.full((2, 3), 1.5)
        tensor = dlx.from_dlpack(array)
    capsule = tensor.__dlpack__(stream=s)
    read(s, tensor)
    assert sim.races == []
    del capsule


def test_the_point_covers_what_the_export_itself_has_queued(sim: Simulation) -> None:
    """H12: a copy that the producer makes for it, say."""

    class Late(InterfaceDLPackArray):
        def __dlpack__(self, **keywords: Any) -> Any:
            self.fill(1.0)
            return super().__dlpack__(**keywords)

    late, s = framework(Late, "late"), sim.stream()
    with late.stream(sim.stream()):
        tensor = dlx.from_dlpack(late.full((2, 3)))
    capsule = tensor.__dlpack__(stream=s)
    read(s, tensor)
    assert sim.races == []
    del capsule


def test_without_an_interface_the_legacy_stream_waits(sim: Simulation) -> None:
    """R84: nothing else is known."""
    library = framework(DLPackArray)
    with library.stream(sim.stream()):
        array = library.full((2, 3))
        tensor = dlx.from_dlpack(array)
    assert array.asked["stream"] == LEGACY
    assert tensor.stream == LEGACY


@pytest.mark.parametrize("wrong", [None, 0, True, "1"])
def test_an_interface_that_names_no_stream_changes_nothing(
    sim: Simulation, wrong: Any
) -> None:
    """R84, R148: `__dlpack__` knows the order."""

    class Wrong(InterfaceDLPackArray):
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return super().__cuda_array_interface__ | {"stream": wrong}

    library = framework(Wrong, f"wrong {wrong}")
    with library.stream(sim.stream()):
        array = library.full((2, 3))
        dlx.from_dlpack(array)
    assert array.asked["stream"] == LEGACY


@pytest.mark.parametrize("error", [AttributeError, RuntimeError, BufferError])
def test_an_interface_that_fails_changes_nothing(
    sim: Simulation, error: type[Exception]
) -> None:
    """R84: torch's raises for tensors that require grad."""

    class Failing(InterfaceDLPackArray):
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            raise error

    library = framework(Failing, f"failing {error.__name__}")
    array = library.full((2, 3))
    dlx.from_dlpack(array)
    assert array.asked["stream"] == LEGACY


def test_an_interrupt_is_not_lost(sim: Simulation) -> None:
    """R60: only an Exception of the property counts as "no stream"."""

    class Interrupted(InterfaceDLPackArray):
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            raise KeyboardInterrupt

    array = framework(Interrupted, "interrupted").full((2, 3))
    with pytest.raises(KeyboardInterrupt):
        dlx.from_dlpack(array)


def test_a_stream_that_was_given_is_ordered_by_the_protocol(
    sim: Simulation, cupy: Framework
) -> None:
    """R83: `__dlpack__` gets the stream, and dlx calls no driver."""
    s = sim.stream()
    with cupy.stream(sim.stream()):
        array = cupy.full((2, 3))
        tensor = dlx.from_dlpack(array, stream=s)
    read(s, tensor)
    assert array.asked["stream"] == s.handle
    assert (ordered(sim), sim.races) == ([], [])
    assert tensor.stream == s.handle


def test_the_same_stream_calls_no_driver(sim: Simulation, cupy: Framework) -> None:
    """R81: the import names the stream that the library works on."""
    p = sim.stream()
    with cupy.stream(p):
        array = cupy.full((2, 3))
        tensor = dlx.from_dlpack(array, stream=p)
        del tensor
    assert sim.called() == []


def test_no_order_asks_nobody(sim: Simulation, cupy: Framework) -> None:
    """R76: `stream=-1` goes to `__dlpack__`, and the interface is not read."""
    array = cupy.full((2, 3))
    tensor = dlx.from_dlpack(array, stream=-1)
    assert (array.asked["stream"], tensor.stream) == (-1, None)
    assert sim.called() == []


@pytest.mark.parametrize(("release", "races"), [("auto", 0), ("none", 1)])
def test_the_stream_can_be_made_to_wait_back(
    sim: Simulation, cupy: Framework, release: Any, races: int
) -> None:
    """H1: as with a table; the object that names the stream is held (R151)."""
    s = sim.stream()
    with cupy.stream(sim.stream()):
        array = cupy.full((2, 3))
        tensor = dlx.from_dlpack(array, stream=s, release=release)
        read(s, tensor)
        del tensor
        array += 2
    assert len(sim.races) == races


def test_a_capture_goes_on(sim: Simulation, cupy: Framework) -> None:
    """H6: `stream=None` is the classic breakage; here it is a node of the graph."""
    p = sim.stream(blocking=True)
    with cupy.stream(p):
        array = cupy.full((2, 3))
        with p.capture():
            array += 1
            tensor = dlx.from_dlpack(array)
            capsule = tensor.__dlpack__(stream=p.handle)
            del capsule, tensor
