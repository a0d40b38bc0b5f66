"""What docs/streams.md says of host functions, as raw calls (`claims.py`)."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import CFUNCTYPE, byref, c_uint64, c_void_p
from threading import Event

from gpu.claimed import Codes, begin, claim, end
from gpu.driver import Driver

Function = CFUNCTYPE(None, c_void_p)


def in_a_host_function(cuda: Driver, calls: Callable[[], None]) -> int:
    """Make calls in a host function, to its end; give what queuing it answers."""
    stream, function = cuda.new_stream(), Function(lambda _: calls())
    code = cuda.answer("cuLaunchHostFunc", stream, function, 0)
    cuda.call("cuStreamSynchronize", stream)
    return code


@claim
def a_host_function_may_not_call_the_driver(cuda: Driver) -> Codes:
    """800: what a deleter meets that runs in one."""
    event, stream, codes = cuda.new_event(), cuda.new_stream(), Codes()
    memory, context = cuda.get("cuMemAlloc_v2", 256), c_uint64()

    def calls() -> None:
        codes["query"] = cuda.answer("cuEventQuery", event)
        codes["record"] = cuda.answer("cuEventRecord", event, stream)
        codes["current"] = cuda.answer("cuCtxGetCurrent", byref(context))
        codes["free"] = cuda.answer("cuMemFree_v2", memory)

    return {"launch": in_a_host_function(cuda, calls)} | codes


@claim
def a_host_function_holds_up_its_stream(cuda: Driver) -> Codes:
    """600 for what is queued behind it, and nothing for what is before it."""
    stream, go, codes = cuda.new_stream(), Event(), Codes()
    before, behind = cuda.new_event(), cuda.new_event()
    function = Function(lambda _: go.wait())
    cuda.call("cuEventRecord", before, stream)
    cuda.call("cuLaunchHostFunc", stream, function, 0)
    cuda.call("cuEventRecord", behind, stream)
    codes["before"] = cuda.answer("cuEventSynchronize", before)
    codes["behind"] = cuda.answer("cuEventQuery", behind)
    go.set()
    cuda.call("cuStreamSynchronize", stream)
    codes["behind after"] = cuda.answer("cuEventQuery", behind)
    return codes


@claim
def a_captured_host_function_does_not_run(cuda: Driver) -> Codes:
    """It becomes a node of the graph."""
    stream, ran = begin(cuda), list[int]()
    function = Function(lambda _: ran.append(1))
    codes = {"launch": cuda.answer("cuLaunchHostFunc", stream, function, 0)}
    codes["end"] = end(cuda, stream)
    cuda.call("cuStreamSynchronize", stream)
    return codes | {"runs": len(ran)}
