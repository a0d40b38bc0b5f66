"""A tensor for the stream that its library works on, of which dlx notes a handle."""

from __future__ import annotations

import weakref
from ctypes import c_void_p, cast

import dlx
import pytest
from support.concurrent_threads import in_thread
from support.cuda_producers import Framework, TableArray, framework
from support.dlpack_abi import for_ever, table_of
from support.simulated_contexts import second_context
from support.simulated_driver import Simulation
from support.simulated_kernels import OwnStream, read, until, write
from support.simulated_objects import LEGACY, PER_THREAD


class SilentArray(TableArray):
    """An array whose table may name no stream."""

    is_silent = False

    @classmethod
    def finish(cls) -> None:
        """Make the table."""
        super().finish()
        table = table_of(cls)
        kind = type(table.current_work_stream)
        ask = kind(cast(table.current_work_stream, c_void_p).value or 0)

        def answer(*arguments: int) -> int:
            return -1 if cls.is_silent else ask(*arguments)

        table.current_work_stream = for_ever(kind(answer))


def test_it_is_given_back_at_once_while_the_library_works_there(
    sim: Simulation, library: Framework
) -> None:
    """H3: what the library frees on its stream, it uses there after that."""
    s = sim.stream()
    with library.stream(s):
        array = library.full((4,))
        tensor = dlx.from_dlpack(array, stream=s.handle)
        write(s, tensor)
        sim.clear_journal()
        del tensor
        assert array.deleted == 1
        assert sim.called() == []


def test_it_is_kept_once_the_library_works_elsewhere(
    sim: Simulation, library: Framework
) -> None:
    """H3: its stream is waited for, which the library no longer orders."""
    s = sim.stream()
    with library.stream(s):
        array = library.full((4,))
        tensor = dlx.from_dlpack(array, stream=s.handle)
        write(s, tensor)
        library.work_on(sim.stream())
        del tensor
        assert array.deleted == 0
        s.advance()
        until(lambda: array.deleted == 1)


def test_it_is_kept_where_the_library_cannot_say(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H3, R8: what is unknown is waited for."""
    s, library = sim.stream(), framework(SilentArray)
    with library.stream(s):
        array = library.full((4,))
        tensor = dlx.from_dlpack(array, stream=s.handle)
        write(s, tensor)
        with monkeypatch.context() as patch:
            patch.setattr(library.Array, "is_silent", True)
            del tensor
        assert array.deleted == 0
        s.advance()
        until(lambda: array.deleted == 1)


def test_a_view_on_another_stream_is_waited_for(
    sim: Simulation, library: Framework
) -> None:
    """H3: the library works on the first stream alone."""
    s, other = sim.stream(), sim.stream()
    with library.stream(s):
        array = library.full((4,))
        tensor = dlx.from_dlpack(array, stream=s.handle)
        view = dlx.from_dlpack(tensor, stream=other.handle)
        read(other, view)
        del view
        del tensor
        assert array.deleted == 0
        other.advance()
        until(lambda: array.deleted == 1)


def test_a_consumer_elsewhere_waits_for_the_work_queued_since(
    sim: Simulation, library: Framework
) -> None:
    """H12: the import is ordered by nothing, and so its export is."""
    s, other = sim.stream(), sim.stream()
    with library.stream(s):
        tensor = dlx.from_dlpack(library.full((4,)), stream=s.handle)
        write(s, tensor)
        consumer = dlx.from_dlpack(tensor, stream=other.handle)
        read(other, consumer)
        other.synchronize()


def test_what_the_caller_vouches_for_is_given_back_at_once(
    sim: Simulation, library: Framework
) -> None:
    """H4: also where the library has left the stream by then."""
    s = sim.stream()
    with library.stream(s):
        array = library.full((4,))
        tensor = dlx.from_dlpack(array, stream=s.handle, release="none")
        library.work_on(sim.stream())
        sim.clear_journal()
        del tensor
        assert array.deleted == 1
        assert sim.called() == []


def test_an_object_that_names_the_stream_lives_as_long_as_the_tensor(
    sim: Simulation, library: Framework
) -> None:
    """S18: the handle is used when the tensor is given back."""
    s = OwnStream(sim.stream())
    gone = weakref.ref(s)
    with library.stream(s.stream):
        tensor = dlx.from_dlpack(library.full((4,)), stream=s)
        del s
        assert gone() is not None
        del tensor
        assert gone() is None


def test_the_stream_of_a_thread_is_that_of_the_import(
    sim: Simulation, library: Framework
) -> None:
    """H8: its number names another stream in the thread of the consumer."""
    s, own = sim.stream(), sim.default_stream(PER_THREAD)
    with library.stream(own):
        tensor = dlx.from_dlpack(library.full((4,)), stream=PER_THREAD)

    def consume() -> None:
        with pytest.raises(BufferError, match="of another thread"):
            dlx.from_dlpack(tensor, stream=s.handle)

    in_thread(consume)


def test_the_legacy_stream_is_that_of_the_context_of_the_import(
    sim: Simulation, library: Framework
) -> None:
    """H8: its number names another stream in each context."""
    s = sim.stream()
    with second_context(sim).current():
        tensor = dlx.from_dlpack(library.full((4,)), stream=LEGACY)
        write(sim.default_stream(LEGACY), tensor)
    read(s, dlx.from_dlpack(tensor, stream=s.handle))


def test_managed_memory_is_ready_on_a_stream_of_the_device(
    sim: Simulation, library: Framework
) -> None:
    """R86: the memory has no streams of its own."""
    s = sim.stream()
    with library.stream(s):
        array = library.full((4,))
        array.tensor.device.device_type = dlx.DeviceType.CUDA_MANAGED
        tensor = dlx.from_dlpack(array, stream=s.handle)
        assert str(tensor.device) == "cuda_managed:0"
        assert tensor.stream == dlx.Stream(s)
