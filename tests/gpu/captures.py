"""Captures of graphs, by the driver and by torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_void_p
from types import ModuleType
from typing import Any

from gpu.machine import NEW, OLD, Machine, Stream, one_value


@contextmanager
def capture(gpu: Machine, stream: Stream) -> Iterator[None]:
    """Capture in the global mode, and check that nothing has invalidated it."""
    graph = c_void_p()
    gpu.driver.call("cuStreamBeginCapture_v2", stream.handle, 0)
    try:
        yield
    finally:
        code = gpu.driver.answer("cuStreamEndCapture", stream.handle, byref(graph))
        if graph:
            gpu.driver.call("cuGraphDestroy", graph)
    assert code == 0, f"the capture ended with {code}"


@contextmanager
def torch_graph(torch: ModuleType, stream: Stream, **keywords: Any) -> Iterator[Any]:
    """Capture what torch does on a stream, with torch's own API."""
    graph = torch.cuda.CUDAGraph()
    external = torch.cuda.ExternalStream(stream.handle, device=0)
    with torch.cuda.graph(graph, stream=external, **keywords):
        yield graph


def replayed(gpu: Machine, graph: Any, source: Any, target: Any) -> tuple[float, float]:
    """Return the target's value after replays with OLD and with NEW in the source."""
    seen = []
    for value in (OLD, NEW):
        source.fill_(value)
        graph.replay()
        gpu.synchronize()
        seen.append(one_value(target.tolist()))
    return seen[0], seen[1]
