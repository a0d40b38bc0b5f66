"""How many calls of the driver each path makes, once the pool of events is warm.

The libraries work on streams of their own. Where a stream is a default one, each time
that a library names it adds `cuCtxGetCurrent`: 0, 1 and 2 depend on the context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import dlx
import pytest
from support.cuda_producers import Framework, TableArray, framework
from support.simulated_driver import Simulation
from support.simulated_objects import Stream

Row = tuple[int, int, int]
"""Records, waits, and all calls."""

ROWS: dict[str, Row] = {
    "import for the library's own stream": (0, 0, 0),
    "its release": (0, 0, 0),
    "import for another stream": (1, 1, 7),
    "its release, deferred": (1, 0, 4),
    "borrow on 1 stream, enter": (1, 1, 9),
    "borrow on 1 stream, leave": (1, 1, 6),
    "borrow on 2 streams, enter": (2, 2, 13),
    "borrow on 2 streams, leave": (1, 2, 8),
    "borrow on 3 streams, enter": (3, 3, 17),
    "borrow on 3 streams, leave": (1, 3, 10),
}


@pytest.fixture
def libraries(sim: Simulation) -> Iterator[list[Framework]]:
    """Give three libraries that work on a stream each, with a warm pool of events."""
    with ExitStack() as blocks:
        made = [framework(TableArray, f"library {index}") for index in range(3)]
        for library in made:
            blocks.enter_context(library.stream(sim.stream()))
        arrays = [library.full((1,)) for library in made * 3]
        kept = [dlx.from_dlpack(array) for array in arrays]
        kept[0].__dlpack__(stream=sim.stream().handle)
        # The first release that waits asks how much memory there is.
        dlx.from_dlpack(arrays[0], stream=sim.stream())
        del kept
        yield made


@pytest.fixture
def s(sim: Simulation, libraries: list[Framework]) -> Stream:
    """Give a stream of the caller's, to which the libraries have been joined before."""
    stream = sim.stream()
    with dlx.borrow(*[library.full((1,)) for library in libraries], stream=stream):
        pass
    return stream


def counted(sim: Simulation, call: Callable[..., Any], *arguments: Any) -> Row:
    """Count the calls that one call of dlx makes."""
    sim.clear_journal()
    call(*arguments)
    called = sim.called()
    waits = called.count("cuStreamWaitEvent")
    return called.count("cuEventRecord"), waits, len(called)


def test_an_import_and_its_release(
    sim: Simulation, libraries: list[Framework], s: Stream
) -> None:
    """R80, R81, H4: on the library's stream, and on another."""
    array, held = libraries[0].full((4,)), []

    def bring(stream: Stream | None) -> None:
        held.append(dlx.from_dlpack(array, stream=stream))

    own = libraries[0].current_stream()
    assert counted(sim, bring, own) == ROWS["import for the library's own stream"]
    assert counted(sim, held.clear) == ROWS["its release"]
    assert counted(sim, bring, s) == ROWS["import for another stream"]
    assert counted(sim, held.clear) == ROWS["its release, deferred"]


@pytest.mark.parametrize(
    ("count", "streams"),
    [(1, 1), (3, 1), (16, 1), (3, 2), (16, 2), (3, 3), (16, 3)],
)
def test_a_borrow(
    sim: Simulation, libraries: list[Framework], s: Stream, count: int, streams: int
) -> None:
    """H1, H2: an event for each distinct stream, and one for all of them at the end."""
    arrays = [libraries[index % streams].full((4,)) for index in range(count)]
    block = dlx.borrow(*arrays, stream=s)
    plural = "" if streams == 1 else "s"
    where = f"on {streams} stream{plural}"
    assert counted(sim, block.__enter__) == ROWS[f"borrow {where}, enter"]
    leave = (block.__exit__, None, None, None)
    assert counted(sim, *leave) == ROWS[f"borrow {where}, leave"]


def test_a_borrow_on_the_librarys_own_stream_calls_nothing(
    sim: Simulation, libraries: list[Framework]
) -> None:
    """R81: neither at its beginning nor at its end."""
    block = dlx.borrow(*[libraries[0].full((4,)) for _ in range(3)])
    assert counted(sim, block.__enter__) == (0, 0, 0)
    assert counted(sim, block.__exit__, None, None, None) == (0, 0, 0)
