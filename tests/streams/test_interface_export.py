"""`__cuda_array_interface__` of `dlx.Tensor` and mixin classes: who waits for whom."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import dlx
import pytest
from support.concurrent_threads import in_thread
from support.cuda_producers import Framework, TableArray, framework
from support.fake_cuda_interface import InterfaceDLPackArray, Shown
from support.simulated_driver import Simulation
from support.simulated_kernels import read, write
from support.simulated_objects import LEGACY, PER_THREAD


class Mixed(dlx.ArrayInterfaceMixin, exchange="data"):
    """Exports what it keeps."""

    def __init__(self, data: Any) -> None:
        """Keep it."""
        self.data = data


every_exporter = pytest.mark.parametrize(
    "export", [dlx.from_dlpack, Mixed], ids=["tensor", "mixin"]
)
every_library = pytest.mark.parametrize("base", [TableArray, InterfaceDLPackArray])


def named(x: Any) -> int | None:
    """The stream that the interface of `x` names."""
    stream: int | None = x.__cuda_array_interface__["stream"]
    return stream


@every_library
@every_exporter
def test_a_consumer_that_waits_for_the_named_stream_sees_the_elements(
    sim: Simulation, base: Any, export: Any
) -> None:
    """R149: as CAI's consumers do, by an event of their own."""
    library, s = framework(base), sim.stream()
    with library.stream(sim.stream()):
        array = library.full((2, 3))
        handle = named(export(array))
        assert handle
        s.wait_for(sim.default_stream(handle))
        s.launch(False, array.data, 24)
    assert sim.races == []


@every_exporter
def test_without_waiting_there_is_a_race(sim: Simulation, export: Any) -> None:
    """R149: so that the test above can fail."""
    library, s = framework(TableArray), sim.stream()
    with library.stream(sim.stream()):
        array = library.full((2, 3))
        assert named(export(array))
        s.launch(False, array.data, 24)
    assert len(sim.races) == 1


@every_exporter
def test_the_stream_of_a_library_that_names_it_is_named_again(
    sim: Simulation, export: Any
) -> None:
    """R149, R151: no other has to wait, least of all the legacy one."""
    library, p = framework(InterfaceDLPackArray), sim.stream()
    with library.stream(p):
        x = export(library.full((2, 3)))
        assert named(x) == p.handle
    assert "cuStreamWaitEvent" not in sim.called()


@every_exporter
def test_what_needs_no_waiting_names_no_stream(sim: Simulation, export: Any) -> None:
    """R148: nothing was named by the source either."""
    assert named(export(Shown(sim.allocate(24)))) is None


def test_the_stream_of_the_import_is_named(sim: Simulation) -> None:
    """R148: it waits for the source, so consumers wait for it."""
    s = sim.stream()
    tensor = dlx.from_dlpack(Shown(sim.allocate(24), sim.stream()), stream=s)
    assert named(tensor) == s.handle


def test_no_order_names_no_stream(sim: Simulation) -> None:
    """R76, R148: after `stream=-1` there is nothing to wait for."""
    shown = Shown(sim.allocate(24), sim.stream())
    assert named(dlx.from_dlpack(shown, stream=-1)) is None


def test_the_stream_of_the_import_has_seen_what_the_producer_wrote_since(
    sim: Simulation,
) -> None:
    """R149: all pending work is joined into the stream that is named."""
    memory, p, s, c = sim.allocate(24), sim.stream(), sim.stream(), sim.stream()
    tensor = dlx.from_dlpack(Shown(memory, p), stream=s)
    p.write(memory)
    assert named(tensor) == s.handle
    c.wait_for(s)
    read(c, tensor)
    assert sim.races == []


def test_the_end_of_a_use_is_joined_too(sim: Simulation) -> None:
    """R149: the named stream has waited for the work of the block."""
    memory, p, mine, c = sim.allocate(24), sim.stream(), sim.stream(), sim.stream()
    tensor = dlx.from_dlpack(Shown(memory, p))
    with tensor.use(stream=mine) as view:
        write(mine, view)
    handle = named(tensor)
    assert handle
    c.wait_for(sim.default_stream(handle))
    read(c, tensor)
    assert sim.races == []


@pytest.mark.parametrize("stream", [LEGACY, PER_THREAD])
def test_a_default_stream_goes_by_its_number(sim: Simulation, stream: int) -> None:
    """R148: never 0."""
    shown = Shown(sim.allocate(24), sim.default_stream(stream))
    assert named(dlx.from_dlpack(shown, stream=stream)) == stream


def test_the_stream_of_another_thread_has_no_name(sim: Simulation) -> None:
    """H8: 2 would be this thread's own."""
    shown = Shown(sim.allocate(24))
    tensor = in_thread(lambda: dlx.from_dlpack(shown, stream=PER_THREAD))
    with pytest.raises(BufferError, match="default stream of another thread"):
        named(tensor)


def test_a_named_stream_lives_as_long_as_the_tensor(sim: Simulation) -> None:
    """R151: dlx's own current stream stands for a library that may end its own."""

    class Owned:
        handle = sim.stream().handle

        def __cuda_stream__(self) -> tuple[int, int]:
            return (0, self.handle)

    library = framework(TableArray)
    with library.stream(sim.stream()):
        tensor = dlx.from_dlpack(library.full((2, 3)))
    stream = Owned()
    gone = weakref.ref(stream)
    with dlx.stream(stream):
        assert named(tensor) == Owned.handle
        assert named(tensor) == Owned.handle
    del stream
    gc.collect()
    assert gone() is not None
    del tensor
    assert gone() is None


@every_exporter
def test_no_elements_are_at_address_0(sim: Simulation, export: Any) -> None:
    """R152: whatever address the source gave."""
    shown = Shown(sim.allocate(24), sim.stream(), shape=(0, 3))
    interface = export(shown).__cuda_array_interface__
    assert (interface["version"], interface["data"]) == (3, (0, False))


@every_library
def test_what_was_exported_comes_in_again(sim: Simulation, base: Any) -> None:
    """R148 to R152: through an object that has nothing else."""

    class Passed:
        def __init__(self, tensor: Any) -> None:
            self.tensor = tensor

        @property
        def __cuda_array_interface__(self) -> Any:
            return self.tensor.__cuda_array_interface__

    library, s = framework(base), sim.stream()
    with library.stream(sim.stream()):
        array = library.full((2, 3))
        again = dlx.from_dlpack(Passed(dlx.from_dlpack(array)), stream=s)
    read(s, again)
    assert (again.data_ptr, again.shape) == (array.data, (2, 3))
    assert sim.races == []


def test_a_mixin_class_comes_in_by_what_it_keeps(sim: Simulation) -> None:
    """R149: in the order of that."""
    library: Framework = framework(InterfaceDLPackArray)
    s = sim.stream()
    with library.stream(sim.stream()):
        tensor = dlx.from_dlpack(Mixed(library.full((2, 3))), stream=s)
    read(s, tensor)
    assert sim.races == []
