"""`Tensor.use`: a tensor that is kept, used on another stream for a block."""

from __future__ import annotations

from types import SimpleNamespace

import dlx
import numpy as np
import pytest
from support.concurrent_threads import in_thread
from support.cuda_producers import DLPackArray, Framework, framework
from support.simulated_driver import Simulation
from support.simulated_kernels import OwnStream, read, write
from support.simulated_objects import Stream


def test_a_use_waits_for_what_the_producer_did_since_the_import(
    sim: Simulation, library: Framework
) -> None:
    """R80: not for what it had done then alone."""
    with library.stream(sim.stream()):
        array = library.full((4,))
        kept = dlx.from_dlpack(array)
        array += 1
        with kept.use(stream=sim.stream()) as tensor:
            read(tensor.stream, tensor)
    assert sim.races == []


def test_a_use_without_a_stream_is_on_that_of_the_producer(
    sim: Simulation, library: Framework
) -> None:
    """R143: of now."""
    p, q = sim.stream(), sim.stream()
    with library.stream(p):
        kept = dlx.from_dlpack(library.full((4,)))
    q.wait_for(p)
    with library.stream(q), kept.use() as tensor:
        assert tensor.stream == q.handle


def test_uses_of_one_tensor_come_after_each_other(
    sim: Simulation, library: Framework
) -> None:
    """H1: on whatever streams."""
    with library.stream(sim.stream()):
        kept = dlx.from_dlpack(library.full((4,)))
        for _ in range(3):
            with kept.use(stream=sim.stream()) as tensor:
                write(tensor.stream, tensor)
    assert sim.races == []


def test_a_use_where_the_producer_has_gone_elsewhere_is_waited_for(
    sim: Simulation, library: Framework
) -> None:
    """H1, H4: by later uses, exports and the release, though nobody is joined."""
    p, q, s, consumer = (sim.stream() for _ in range(4))
    with library.stream(p):
        array = library.full((4,))
        kept = dlx.from_dlpack(array)
    with library.stream(q), kept.use(stream=s) as tensor:
        write(s, tensor)
    kept.__dlpack__(stream=consumer.handle)
    read(consumer, kept)
    consumer.synchronize()
    del kept
    array.free()
    with library.stream(p):
        library.full((4,))
    assert sim.races == []


def test_the_stream_of_an_import_waits_for_a_use(
    sim: Simulation, library: Framework
) -> None:
    """H1: for work that goes on there."""
    s, t = sim.stream(), sim.stream()
    with library.stream(sim.stream()):
        kept = dlx.from_dlpack(library.full((4,)), stream=s)
        with kept.use(stream=t) as tensor:
            write(t, tensor)
        write(s, kept)
    assert sim.races == []


def test_a_use_of_a_tensor_without_a_table_joins_its_stream(sim: Simulation) -> None:
    """H1: that of the import is all that dlx knows."""
    library, s, t = framework(DLPackArray), sim.stream(), sim.stream()
    with library.stream(sim.stream()):
        kept = dlx.from_dlpack(library.full((4,)), stream=s)
        with kept.use(stream=t) as tensor:
            write(t, tensor)
        write(s, kept)
    assert sim.races == []


def test_a_use_joins_when_its_body_raises(sim: Simulation, library: Framework) -> None:
    """H1: the producer's stream waits for what was launched."""
    with library.stream(sim.stream()):
        array = library.full((4,))
        use = dlx.from_dlpack(array).use(stream=sim.stream())
        tensor = use.__enter__()
        write(tensor.stream, tensor)
        use.__exit__(KeyError, KeyError(), None)
        array += 1
    assert sim.races == []


def test_the_tensor_stays_when_the_view_is_dead(library: Framework) -> None:
    """R129: the view ends with the block, the tensor does not."""
    kept = dlx.from_dlpack(library.full((4,)))
    with kept.use() as tensor:
        assert tensor.data_ptr == kept.data_ptr
    with pytest.raises(BufferError, match="block"):
        tensor.__dlpack__()
    assert kept.data_ptr


def test_a_use_is_entered_once(library: Framework) -> None:
    """A second entry, and an exit without an entry, are RuntimeErrors."""
    use = dlx.from_dlpack(library.full((4,))).use()
    with use, pytest.raises(RuntimeError, match="entered already"):
        use.__enter__()
    with pytest.raises(RuntimeError, match="not been entered"):
        use.__exit__(None, None, None)


def test_on_the_cpu_a_use_has_no_stream() -> None:
    """R70: and refuses one."""
    kept = dlx.from_dlpack(np.arange(3))
    with kept.use() as tensor:
        assert tensor.stream is None
    with pytest.raises(BufferError, match="no streams"):
        kept.use(stream=1).__enter__()


def test_a_use_keeps_the_stream_object_alive(
    sim: Simulation, library: Framework
) -> None:
    """H3: to its end."""
    with library.stream(sim.stream()):
        array = library.full((4,))
        with dlx.from_dlpack(array).use(stream=OwnStream(sim.stream())) as tensor:
            write(tensor.stream, tensor)
        array += 1
    assert sim.races == []


def test_synchronize_waits_for_uses_too(sim: Simulation, library: Framework) -> None:
    """H11: also where nobody was joined."""
    p, q, s = sim.stream(), sim.stream(), sim.stream()
    with library.stream(p):
        kept = dlx.from_dlpack(library.full((4,)))
    with library.stream(q), kept.use(stream=s) as tensor:
        write(s, tensor)
    kept.synchronize()
    sim.fetch(kept.data_ptr, kept.nbytes)
    assert sim.races == []


def test_a_library_may_drop_its_stream_while_the_host_waits(
    sim: Simulation, library: Framework, s: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R141: it is asked for its stream when the host waits for that, not before."""
    monkeypatch.setattr(library, "_local", SimpleNamespace())  # one for all threads
    p = sim.stream()
    with library.stream(p):
        tensor = dlx.from_dlpack(library.full((4,)), stream=s)

    def drop() -> None:
        library.work_on(None)
        in_thread(p.destroy)

    library.work_on(p)
    s.host_function(drop)
    tensor.synchronize()
    assert not p.live


def test_a_use_stands_for_those_before_it(sim: Simulation, library: Framework) -> None:
    """H12: however many there were, one wait for an event is enough."""
    p, s, elsewhere = sim.stream(), sim.stream(), sim.stream()
    with library.stream(p):
        tensor = dlx.from_dlpack(library.full((4,)))
    with library.stream(elsewhere):
        for _ in range(10):
            with tensor.use(stream=s) as view:
                write(s, view)
        sim.clear_journal()
        with tensor.use(stream=s) as view:
            write(s, view)
    assert sim.called().count("cuStreamWaitEvent") <= 4
    assert sim.races == []
