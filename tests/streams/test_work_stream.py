"""The stream that dlx's tables name, for consumers that run on it as tvm-ffi does.

`docs/streams.md`, The stream that a table names: that of the tensor passed on last.
"""

from __future__ import annotations

import gc
from ctypes import CDLL, byref, c_int, c_void_p
from typing import Any

import dlx
import pytest
import tvm_ffi
from support.cuda_producers import (
    CUDA,
    DLPackArray,
    Framework,
    InterfaceArray,
    TableArray,
    framework,
)
from support.dlpack_abi import delete, from_table, table_of
from support.simulated_driver import Simulation
from support.simulated_kernels import refused
from support.simulated_objects import LEGACY

ASKS = ["before", "first", "last"]


class Wraps(dlx.ExchangeMixin, exchange="inner"):
    """Holds an array of any library."""

    def __init__(self, inner: Any) -> None:
        """Hold it."""
        self.inner = inner


def named(x: object) -> int:
    """Return the stream that the table of a type names."""
    place = c_void_p()
    assert table_of(type(x)).current_work_stream(CUDA, 0, byref(place)) == 0
    return place.value or LEGACY


def call(sim: Simulation, asks: str, *tensors: Any, write: bool = False) -> int:
    """Call a function of a consumer of tables; return the stream that it ran on."""
    stream = named(tensors[0]) if asks == "before" else 0
    taken = []
    for tensor in tensors:
        taken.append(from_table(table_of(type(tensor)), tensor))
        if asks == "first" and len(taken) == 1:
            stream = named(tensor)
    if asks == "last":
        stream = named(tensors[-1])
    for managed in taken:
        tensor = managed.dl_tensor
        nbytes = 4 * tensor.shape[0]
        sim.call("sim_launch", stream, int(write), tensor.data, nbytes)
    for managed in taken:
        delete(managed)
    return stream


def call_tvm_ffi(sim: Simulation, *tensors: Any) -> int:
    """Call a function of tvm-ffi that writes; return the stream that it ran on."""
    library = CDLL(tvm_ffi.libinfo.find_libtvm_ffi())
    get = library.TVMFFIEnvGetStream
    get.restype, get.argtypes = c_void_p, [c_int, c_int]
    ran = []

    def run(*arguments: Any) -> None:
        stream = get(CUDA, 0) or LEGACY
        for tensor in arguments:
            sim.call("sim_launch", stream, 1, tensor.data_ptr(), 16)
        ran.append(stream)

    tvm_ffi.convert(run)(*tensors)
    return ran[0]


@pytest.fixture
def one(sim: Simulation) -> Framework:
    """Give a library."""
    return framework(TableArray, "one")


@pytest.fixture
def other(sim: Simulation) -> Framework:
    """Give a second one."""
    return framework(TableArray, "other")


@pytest.mark.parametrize("asks", ASKS)
def test_a_second_library_does_not_change_the_stream_of_a_tensor(
    sim: Simulation, one: Framework, other: Framework, asks: str
) -> None:
    """H1, R140: at 5ac2ffe it was the legacy stream from then on, for ever."""
    p, q = sim.stream(), sim.stream()
    with one.stream(p), other.stream(q):
        a, b = one.full((4,)), other.full((4,))
        for array in (b, a):
            tensor = dlx.from_dlpack(array)
        assert call(sim, asks, tensor) == p.handle
        a += 1
    assert sim.races == []


@pytest.mark.parametrize("asks", ASKS[1:])
@pytest.mark.parametrize("base", [TableArray, InterfaceArray])
def test_each_tensor_is_used_on_the_stream_of_its_own_library(
    sim: Simulation, other: Framework, base: type, asks: str
) -> None:
    """H1, R140: whichever was imported last."""
    one = framework(base, "this")
    p, q = sim.stream(), sim.stream()
    with one.stream(p), other.stream(q):
        a, b = one.full((4,)), other.full((4,))
        tensors = [dlx.from_dlpack(a), dlx.from_dlpack(b)]
        for _ in range(2):
            assert call(sim, asks, tensors[0]) == p.handle
            a += 1
            assert call(sim, asks, tensors[1], write=True) == q.handle
            b += 1
    assert sim.races == []


@pytest.mark.parametrize("asks", ASKS)
def test_a_library_without_a_table_names_its_stream_by_the_object(
    sim: Simulation, asks: str
) -> None:
    """H1, R149: CuPy and Numba, from the first call on."""
    library = framework(InterfaceArray, "interface")
    p = sim.stream()
    with library.stream(p):
        array = library.full((4,))
        tensor = dlx.from_dlpack(array)
        assert call(sim, asks, tensor) == p.handle
        array += 1
    assert sim.races == []


@pytest.mark.parametrize("asks", ASKS[1:])
@pytest.mark.parametrize("base", [TableArray, InterfaceArray])
def test_a_mixin_class_names_the_stream_of_what_it_holds(
    sim: Simulation, other: Framework, base: type, asks: str
) -> None:
    """H1: of the object that was exported last."""
    one = framework(base, "held")
    p, q = sim.stream(), sim.stream()
    with one.stream(p), other.stream(q):
        a, b = one.full((4,)), other.full((4,))
        for array, stream in [(a, p), (b, q), (a, p)]:
            assert call(sim, asks, Wraps(array)) == stream.handle
            array += 1
            tensor = dlx.from_dlpack(array)
            assert call(sim, asks, Wraps(tensor)) == stream.handle
            array += 1
    assert sim.races == []


@pytest.mark.parametrize("asks", ASKS)
@pytest.mark.parametrize("swapped", [False, True])
def test_all_arguments_are_ready_on_the_stream_that_was_named(
    sim: Simulation, one: Framework, other: Framework, asks: str, swapped: bool
) -> None:
    """H2: also those that are exported after the consumer has asked."""
    p, q = sim.stream(), sim.stream()
    with one.stream(p), other.stream(q):
        tensors = [dlx.from_dlpack(each.full((4,))) for each in (one, other)]
        call(sim, asks, *(tensors[::-1] if swapped else tensors))
    assert sim.races == []


@pytest.mark.parametrize("asks", ASKS)
def test_arguments_of_a_mixin_class_are_ready_on_the_stream_that_was_named(
    sim: Simulation, one: Framework, other: Framework, asks: str
) -> None:
    """H2: their tables order nothing of themselves."""
    p, q = sim.stream(), sim.stream()
    with one.stream(p), other.stream(q):
        tensor = dlx.from_dlpack(one.full((4,)))
        call(sim, asks, tensor, Wraps(other.full((4,))))
        call(sim, asks, Wraps(other.full((4,))), tensor)
    assert sim.races == []


def test_a_launcher_orders_both_ends_for_all_libraries(
    sim: Simulation, one: Framework, other: Framework
) -> None:
    """docs/streams.md: what a consumer of tables cannot, for a second library."""
    p, q, s = sim.stream(), sim.stream(), sim.stream()

    @dlx.launcher(out="b", give="tensor")
    def run(a: Any, b: Any, stream: int = 0) -> None:
        assert call(sim, "first", a, b, write=True) == stream

    for stream in (None, s):
        with one.stream(p), other.stream(q):
            a, b = one.full((4,)), other.full((4,))
            dlx.from_dlpack(b)
            run(a, b, stream=stream)
            a += 1
            b += 1
    assert sim.races == []


def test_tvm_ffi_runs_on_the_stream_of_its_first_tensor(
    sim: Simulation, one: Framework, other: Framework
) -> None:
    """H1, H2: `f(t); x += 1` is in order, whatever the thread has imported."""
    p, q = sim.stream(), sim.stream()
    with one.stream(p), other.stream(q):
        a, b = one.full((4,)), other.full((4,))
        first, second = dlx.from_dlpack(a), dlx.from_dlpack(b)
        for _ in range(3):
            assert call_tvm_ffi(sim, first) == p.handle
            a += 1
            assert call_tvm_ffi(sim, second) == q.handle
            b += 1
            assert call_tvm_ffi(sim, first, second) == p.handle
            a += 1
            # Its stream does not wait for the function: docs/streams.md.
            q.wait_for(p)
            b += 1
    assert sim.races == []


def test_tvm_ffi_in_a_launcher_is_in_order_with_every_library(
    sim: Simulation, one: Framework, other: Framework
) -> None:
    """docs/streams.md: the remedy for what the protocol leaves open."""
    p, q, s = sim.stream(), sim.stream(), sim.stream()

    @dlx.launcher(out=("x", "y"), give="tensor")
    def run(x: Any, y: Any, stream: int = 0) -> None:
        assert call_tvm_ffi(sim, x, y) == stream

    with one.stream(p), other.stream(q):
        a, b = one.full((4,)), other.full((4,))
        for stream in (None, s, None):
            run(a, b, stream=stream)
            a += 1
            b += 1
    assert sim.races == []


def test_without_a_tensor_the_default_stream_is_named(
    sim: Simulation, one: Framework
) -> None:
    """R141: and the first argument is ready there."""
    device = sim.stream(device=1)
    with one.stream(device):
        array = one.full((4,), device=1)
        place = c_void_p()
        ask = table_of(dlx.Tensor).current_work_stream
        assert ask(CUDA, 1, byref(place)) == 0
        assert place.value in (None, LEGACY)
        managed = from_table(table_of(dlx.Tensor), dlx.from_dlpack(array))
        with sim.on_device(1):
            sim.call("sim_launch", LEGACY, 0, managed.dl_tensor.data, 16)
        delete(managed)
    assert sim.races == []


def test_the_stream_is_asked_for_anew(sim: Simulation, one: Framework) -> None:
    """H3, R142: a handle from an earlier call may be that of a destroyed stream."""
    p, q = sim.stream(), sim.stream()
    with one.stream(p):
        tensor = dlx.from_dlpack(one.full((4,)))
        assert call(sim, "first", tensor) == p.handle
        p.synchronize()
    p.destroy()
    with one.stream(q):
        assert call(sim, "before", tensor) == q.handle


def test_an_object_that_is_gone_names_no_stream(sim: Simulation) -> None:
    """R151: dlx keeps no array alive to ask it."""
    library = framework(InterfaceArray, "gone")
    p = sim.stream()
    with library.stream(p):
        array = library.full((4,))
        tensor = dlx.from_dlpack(array)
        assert call(sim, "first", tensor) == p.handle
        del array, tensor
        gc.collect()
        assert named(dlx.empty(1, "int8", device="cuda:0")) == LEGACY


def test_a_stream_that_captures_is_named_and_left_alone(
    sim: Simulation, one: Framework
) -> None:
    """H6: nothing of the capture waits, and it waits for nothing."""
    p = sim.stream()
    with one.stream(p):
        tensor = dlx.from_dlpack(one.full((4,)), stream=p)
        p.begin_capture()
        sim.clear_journal()
        assert call(sim, "first", tensor) == p.handle
        assert not {"cuEventRecord", "cuStreamWaitEvent"} & set(sim.called("dlx"))
        p.end_capture()
    assert sim.races == []


def test_a_stream_that_captures_is_not_made_to_wait_for_other_work(
    sim: Simulation, one: Framework, other: Framework
) -> None:
    """H6: the consumer would run in the capture, where the argument is not ready."""
    p, q = sim.stream(), sim.stream()
    with one.stream(p), other.stream(q):
        tensors = [dlx.from_dlpack(one.full((4,)), stream=p)]
        tensors.append(dlx.from_dlpack(other.full((4,)), stream=q))
        p.begin_capture()
        with refused(p, match="captur"):
            call(sim, "first", *tensors)
        p.end_capture()


def test_dlx_stream_comes_first(
    sim: Simulation, one: Framework, other: Framework
) -> None:
    """R140: and what was told before the block does not matter in it."""
    p, q, s = sim.stream(), sim.stream(), sim.stream()
    with one.stream(p), other.stream(q):
        a, b = dlx.from_dlpack(one.full((4,))), dlx.from_dlpack(other.full((4,)))
        call(sim, "first", a)
        with dlx.stream(s):
            for asks in ASKS:
                assert call(sim, asks, a, b) == s.handle
        s.synchronize()
        assert call(sim, "first", a, b) == p.handle
    assert sim.races == []


def test_a_tensor_without_a_library_that_names_streams_is_used_on_its_own(
    sim: Simulation, one: Framework
) -> None:
    """R83: its library has made that one wait, and may not know of any other."""
    library = framework(DLPackArray, "protocol")
    p, s = sim.stream(), sim.stream()
    with one.stream(sim.stream()):
        dlx.from_dlpack(one.full((4,)))
    with library.stream(p):
        tensor = dlx.from_dlpack(library.full((4,)), stream=s)
        assert call(sim, "first", tensor) == s.handle
    assert sim.races == []
