"""Blocks that were allocated on another stream than the one their library works on.

A caching allocator gives a block back to the stream that it was allocated on (H4).
"""

from __future__ import annotations

from collections.abc import Callable

import dlx
import pytest
from support.concurrent_threads import in_thread
from support.cuda_producers import Framework, TableArray
from support.simulated_driver import Simulation
from support.simulated_kernels import read, settle, write
from support.simulated_objects import LEGACY, Stream


@pytest.fixture
def home(sim: Simulation) -> Stream:
    """Give the stream that blocks are allocated on."""
    return sim.stream()


def reused(library: Framework, home: Stream, first: int) -> bool:
    """Allocate on the stream of the blocks; return whether it is the first block."""
    with library.stream(home):
        again: TableArray = library.full((4,))
    return again.data == first


@pytest.mark.parametrize("release", ["auto", "record_stream"])
@pytest.mark.parametrize("leaves", [True, False])
def test_memory_of_another_stream_is_not_reused_before_the_kernel_is_done(
    sim: Simulation,
    library: Framework,
    p: Stream,
    s: Stream,
    home: Stream,
    release: str,
    leaves: bool,
) -> None:
    """H4: imported for a stream of the user's, wherever the library goes then."""
    with library.stream(p):
        array = library.full((4,), home=home)
        first = array.data
        array.record_stream(p)
        tensor = dlx.from_dlpack(array, stream=s, release=release)  # type: ignore[arg-type]
        write(s, tensor)
        if not leaves:
            del tensor
            array.free()
    if leaves:
        del tensor
        array.free()
    p.advance()
    assert not reused(library, home, first)
    assert sim.races == []
    settle(sim)
    assert reused(library, home, first)


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("release", ["auto", "record_stream"])
def test_work_on_the_librarys_own_stream_is_told_to_its_allocator(
    sim: Simulation,
    library: Framework,
    p: Stream,
    home: Stream,
    release: str,
    told: bool,
) -> None:
    """H4: the library's rule, which `release="record_stream"` keeps, too."""
    with library.stream(p):
        array = library.full((4,), home=home)
        first = array.data
        if told:
            array.record_stream(p)
        tensor = dlx.from_dlpack(array, stream=p, release=release)  # type: ignore[arg-type]
        write(p, tensor)
        del tensor
        array.free()
    is_safe = told or release == "record_stream"
    assert reused(library, home, first) == (not is_safe)
    assert bool(sim.races) == (not is_safe)


def test_a_block_is_told_to_the_allocator_of_a_stream_that_it_joins(
    sim: Simulation, library: Framework, p: Stream, s: Stream, home: Stream
) -> None:
    """H1, H4: the library's stream waits for the block, and that is what it tells."""
    with library.stream(p):
        array = library.full((4,), home=home)
        first = array.data
        with dlx.borrow(array, stream=s) as (tensor, stream):
            write(stream, tensor)
        array.record_stream(p)
        del tensor
        array.free()
    assert not reused(library, home, first)
    assert sim.races == []


def switched(library: Framework, s: Stream, drop: Callable[[], None]) -> None:
    """Drop while the library works on the tensor's stream."""
    with library.stream(s):
        drop()


def elsewhere(library: Framework, s: Stream, drop: Callable[[], None]) -> None:
    """Drop in a thread in which the library works on the default stream."""
    in_thread(drop)


@pytest.mark.parametrize(
    ("stream", "die"), [(None, switched), (LEGACY, elsewhere)], ids=["stream", "thread"]
)
def test_a_tensor_may_die_where_its_library_works_on_its_stream(
    sim: Simulation,
    library: Framework,
    p: Stream,
    s: Stream,
    stream: int | None,
    die: Callable[[Framework, Stream, Callable[[], None]], None],
) -> None:
    """H4: it was imported for a stream of the user's, which the block is not of.

    With torch it is enough that the last reference dies in another thread, where the
    default stream is the current one, or in the block of `torch.cuda.stream(s)`.
    """
    used = s if stream is None else sim.default_stream(stream)
    with library.stream(p):
        array = library.full((4,))
        held = [dlx.from_dlpack(array, stream=used)]
        write(used, held[0])
        array.free()
        die(library, s, held.clear)
        again = library.full((4,))
        read(p, dlx.from_dlpack(again, stream=p))
    assert sim.races == []
