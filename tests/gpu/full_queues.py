"""Programs in which a call waits for room in the queues of P and S.

Both are full behind a closed gate, or behind a host function of Python. Only a thread
of Python can open either: a call that waits with the GIL waits until the gate gives up,
or for ever.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Event, Thread
from typing import Any, NamedTuple

import dlx

from gpu.clients import CLIENTS
from gpu.machine import COUNT, OLD, Machine, Stream, machine

STALLED_S = 0.1
"""A thread that has launched nothing for so long waits for room."""
WAIT_S = 0.3
"""Time from the beginning of the call to the opening."""
LAUNCHES = 20_000
"""A queue that takes more does not get full."""


class Filler(Thread):
    """Launches kernels on a stream until there is no room, and on."""

    def __init__(self, gpu: Machine, stream: Stream) -> None:
        """Take the stream."""
        super().__init__(daemon=True)
        self.gpu, self.stream = gpu, stream
        self.launches, self.stop = 0, False

    def run(self) -> None:
        """Launch."""
        self.gpu.driver.call("cuCtxSetCurrent", self.gpu.context)
        while not self.stop and self.launches < LAUNCHES:
            self.gpu.fill(self.gpu.memory[3], OLD, self.stream)
            self.launches += 1

    def waits(self) -> bool:
        """Whether it waits for room, after a while; False if it never has to."""
        while self.is_alive():
            before = self.launches
            time.sleep(STALLED_S)
            if self.launches == before and self.is_alive():
                return True
        return False


class Opener(Thread):
    """Opens what the streams are behind, which needs the GIL."""

    def __init__(self, fillers: list[Filler], open_it: Callable[[], None]) -> None:
        """Take both."""
        super().__init__(daemon=True)
        self.fillers, self.open_it = fillers, open_it
        self.opened = float("inf")

    def run(self) -> None:
        """Open."""
        time.sleep(WAIT_S)
        for filler in self.fillers:
            filler.stop = True
        self.opened = time.perf_counter()
        self.open_it()


@contextmanager
def behind_gate(gpu: Machine) -> Iterator[Callable[[], None]]:
    """Block P until the host opens a gate; raise if it gave up."""
    with gpu.gate.closed(gpu.p) as gate:
        yield gate.open


@contextmanager
def behind_function(gpu: Machine) -> Iterator[Callable[[], None]]:
    """Block P until a host function of Python ends."""
    go = Event()
    kept = gpu.driver.launch_host_function(gpu.p.handle, go.wait)
    try:
        yield go.set
    finally:
        go.set()
        gpu.p.synchronize()
        del kept


BLOCKERS = {"gate": behind_gate, "host function": behind_function}


class Operation(NamedTuple):
    """What is made before the queues are full, and what is done then."""

    prepare: Callable[[Machine, Any], Any]
    work: Callable[[Machine, Any, Any], object]


def nothing(_gpu: Machine, _x: Any) -> None:
    """Prepare nothing."""


def imported(gpu: Machine, x: Any) -> list[dlx.Tensor]:
    """Prepare an import for S."""
    return [dlx.from_dlpack(x, stream=gpu.s)]


def entered(gpu: Machine, x: Any) -> Any:
    """Prepare a block on S."""
    block = dlx.borrow(x, stream=gpu.s)
    block.__enter__()
    return block


def on_host(_gpu: Machine, _x: Any) -> Any:
    """Prepare elements on the host."""
    import numpy as np

    return np.zeros(COUNT, np.float32)


def empty(gpu: Machine, *_: Any) -> list[dlx.Tensor]:
    """Allocate memory of dlx, in the order of S."""
    with dlx.stream(gpu.s):
        return [dlx.empty(COUNT, "float32", device="cuda:0")]


def with_gil(name: str, *arguments: int) -> None:
    """Call the driver as a library would that holds the GIL."""
    function = getattr(ctypes.PyDLL(machine().driver.file), name)
    code = function(*map(ctypes.c_size_t, arguments))
    assert code == 0, f"{name} returned {code}"


OPERATIONS = {
    "import": Operation(nothing, lambda g, x, _: dlx.from_dlpack(x, stream=g.s)),
    "import for the legacy stream": Operation(
        nothing, lambda _, x, __: dlx.from_dlpack(x, stream=1)
    ),
    "export": Operation(
        lambda _, x: dlx.from_dlpack(x),
        lambda g, _, made: made.__dlpack__(stream=g.s.handle),
    ),
    "borrow, enter": Operation(nothing, lambda g, x, _: entered(g, x)),
    "borrow, exit": Operation(entered, lambda _, __, m: m.__exit__(None, None, None)),
    "use": Operation(imported, lambda g, _, made: made[0].use(stream=g.p).__enter__()),
    "release": Operation(imported, lambda _, __, made: made.clear()),
    "copy down": Operation(nothing, lambda _, x, __: dlx.from_dlpack(x, device="cpu")),
    "copy up": Operation(
        on_host, lambda g, _, m: dlx.from_dlpack(m, device="cuda:0", stream=g.s)
    ),
    "copy across": Operation(
        nothing, lambda g, x, _: dlx.from_dlpack(x, copy=True, stream=g.s)
    ),
    "empty": Operation(nothing, empty),
    "free": Operation(empty, lambda _, __, made: made.clear()),
    "synchronize": Operation(imported, lambda _, __, made: made[0].synchronize()),
    "Stream.synchronize": Operation(
        lambda g, _: dlx.Stream(g.s), lambda _, __, made: made.synchronize()
    ),
    "Stream.wait": Operation(
        lambda g, _: dlx.Stream(g.s), lambda g, _, made: made.wait(g.p)
    ),
}
CONTROLS = {
    "synchronize with the GIL": Operation(
        nothing, lambda g, _, __: with_gil("cuStreamSynchronize", g.p.handle)
    ),
    "record with the GIL": Operation(
        lambda g, _: g.driver.new_event(),
        lambda g, _, made: with_gil("cuEventRecord", made, g.p.handle),
    ),
}


def producer(gpu: Machine, library: str) -> tuple[AbstractContextManager[Any], Any]:
    """Return how to work on P, and a tensor of it, of a library or of dlx alone."""
    if library in CLIENTS:
        client = CLIENTS[library]()
        with client.stream(gpu.p):
            return client.stream(gpu.p), client.full(OLD)
    named = dlx.Stream(gpu.p)
    return nullcontext(), dlx.from_pointer(
        gpu.memory[1], (COUNT,), "float32", device="cuda:0", stream=named
    )


def wait(name: str, library: str, blocker: str) -> dict[str, Any]:
    """Do an operation while the queues are full, and say how it went."""
    gpu, (prepare, work) = machine(), (OPERATIONS | CONTROLS)[name]
    stream, x = producer(gpu, library)
    with stream:
        # What the first use loads and makes is there.
        work(gpu, x, prepare(gpu, x))
        made = prepare(gpu, x)
        gpu.synchronize()
        with BLOCKERS[blocker](gpu) as open_it:
            gpu.driver.order(gpu.s.handle, gpu.p.handle)
            fillers = [Filler(gpu, stream) for stream in (gpu.p, gpu.s)]
            for filler in fillers:
                filler.start()
            full = [filler.waits() for filler in fillers]
            launches = [filler.launches for filler in fillers]
            opener = Opener(fillers, open_it)
            opener.start()
            began = time.perf_counter()
            try:
                kept = work(gpu, x, made)
                ended = time.perf_counter()
            finally:
                for thread in (opener, *fillers):
                    thread.join()
    gpu.synchronize()
    del kept
    return {
        "launches": launches,
        "full": full,
        "seconds": round(ended - began, 3),
        "waited": ended >= opener.opened,
    }
