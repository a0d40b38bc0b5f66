"""A graph whose only node is conditional, and the graph that is its body.

The body runs at each launch: its condition is true by default. Drivers before CUDA 12.3
have no such nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import (
    Structure,
    byref,
    c_byte,
    c_int,
    c_longlong,
    c_uint,
    c_uint64,
    c_void_p,
)

import pytest

from gpu.machine import Machine, Stream

CONDITIONAL, IF, ASSIGN_DEFAULT = 13, 0, 1
CALLS = (
    *(
        "cuGraphConditionalHandleCreate",
        "cuGraphAddNode",
        "cuGraphInstantiateWithFlags",
    ),
    *("cuStreamBeginCaptureToGraph", "cuGraphLaunch"),
)


class NodeParams(Structure):
    """`CUgraphNodeParams` of a conditional node, 256 bytes."""

    _fields_ = (
        ("type", c_int),
        ("reserved0", c_int * 3),
        ("handle", c_uint64),
        ("kind", c_int),
        ("size", c_uint),
        ("bodies", c_void_p),
        ("context", c_void_p),
        ("reserved1", c_byte * 200),
        ("reserved2", c_longlong),
    )


class Conditional:
    """The graph."""

    def __init__(self, gpu: Machine) -> None:
        """Make it, or skip the test."""
        self._gpu, self._driver = gpu, gpu.driver
        driver = gpu.driver
        if missing := [name for name in CALLS if not driver.has(name)]:
            pytest.skip(f"the driver, for CUDA {driver.version()}, has no {missing[0]}")
        self._graph, node = driver.get("cuGraphCreate", 0), c_uint64()
        handle = driver.get(
            "cuGraphConditionalHandleCreate",
            self._graph,
            gpu.context,
            1,
            ASSIGN_DEFAULT,
        )
        params = NodeParams(
            type=CONDITIONAL, handle=handle, kind=IF, size=1, context=gpu.context
        )
        none = c_void_p()
        driver.call("cuGraphAddNode", byref(node), self._graph, none, 0, byref(params))
        self._body = c_void_p.from_address(params.bodies).value or 0

    @contextmanager
    def captured(self, stream: Stream) -> Iterator[None]:
        """Capture into the body in the global mode, and check that it ends well."""
        none, graph = c_void_p(), c_void_p()
        begin = (stream.handle, self._body, none, none, 0, 0)
        self._driver.call("cuStreamBeginCaptureToGraph", *begin)
        try:
            yield
        finally:
            code = self._driver.answer(
                "cuStreamEndCapture", stream.handle, byref(graph)
            )
        assert code == 0, f"the capture ended with {code}"

    def run(self, stream: Stream) -> None:
        """Launch the graph, and wait for it."""
        graph = self._driver.get("cuGraphInstantiateWithFlags", self._graph, 0)
        self._driver.call("cuGraphLaunch", graph, stream.handle)
        stream.synchronize()
        self._driver.call("cuGraphExecDestroy", graph)
        self._driver.call("cuGraphDestroy", self._graph)
