"""Functions of tvm-ffi and CuTe DSL, which run on the stream that a table names.

They order nothing themselves. So the stream has to be that of the first tensor's
library, and all tensors have to be ready there.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import dlx
import pytest

from gpu.clients import client_of
from gpu.machine import NEW, OLD, Machine, one_value
from gpu.numba_streams import DefaultStream
from gpu.report import found
from gpu.tvm_functions import LEGACY, Reading, strikes

ARGUMENTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "torch": ("torch", lambda array: array),
    "dlx of torch": ("torch", dlx.from_dlpack),
    "dlx of CuPy": ("cupy", dlx.from_dlpack),
}
"""The library of an array, and what is passed for it."""
each_argument = pytest.mark.parametrize("argument", ARGUMENTS)
PAIRS = pytest.mark.parametrize("names", [("torch", "cupy"), ("cupy", "torch")])


@pytest.fixture
def reading(gpu: Machine) -> Reading:
    """Give a function, or skip the test."""
    pytest.importorskip("tvm_ffi", exc_type=ImportError)
    return Reading(gpu)


def unordered(gpu: Machine, stream: Any) -> Reading:
    """Return a function that does not ask for a stream."""
    pytest.importorskip("tvm_ffi", exc_type=ImportError)
    return Reading(gpu, stream)


# One library.


def late_write(gpu: Machine, function: Reading, argument: str) -> tuple[float, bool]:
    """Read what a library has yet to write on P; return it, and if the read waits."""
    library, shown = ARGUMENTS[argument]
    client = client_of(library)
    with client.stream(gpu.p):
        array = client.full(OLD)
        client.write(array, OLD)
        function(shown(array))
        gpu.synchronize()
        with gpu.gate.closed(gpu.p):
            client.write(array, NEW)
            [read] = function(shown(array))
            waits = not DefaultStream(gpu, function.ran).settles()
            gpu.gate.open()
            gpu.synchronize()
    return one_value(read), waits


@each_argument
def test_a_function_waits_for_what_the_library_has_queued(
    gpu: Machine, reading: Reading, argument: str
) -> None:
    """R140, R143: it runs on the library's own stream."""
    assert late_write(gpu, reading, argument) == (NEW, True)
    assert reading.ran == gpu.p.handle


@each_argument
def test_without_the_named_stream_a_function_is_too_early(
    gpu: Machine, argument: str
) -> None:
    """H1: the control."""
    assert late_write(gpu, unordered(gpu, gpu.s), argument) == (OLD, False)


def early_write(gpu: Machine, function: Reading, argument: str) -> float:
    """Write on P what a function has yet to read, if it runs on the legacy stream."""
    library, shown = ARGUMENTS[argument]
    client, legacy = client_of(library), DefaultStream(gpu, LEGACY)
    with client.stream(gpu.p):
        array = client.full(OLD)
        tensor = shown(array)
        function(tensor)
        client.write(array, OLD)
        gpu.synchronize()
        with gpu.gate.closed(legacy):
            [read] = function(tensor)
            client.write(array, NEW)
            gpu.p.settles()
            gpu.gate.open()
            gpu.synchronize()
    return one_value(read)


@each_argument
def test_what_a_function_has_yet_to_read_is_not_mutated(
    gpu: Machine, reading: Reading, argument: str
) -> None:
    """H1: `f(t); x += 1` on a stream of torch's or CuPy's own."""
    assert early_write(gpu, reading, argument) == OLD
    assert reading.ran == gpu.p.handle


@each_argument
def test_on_the_legacy_stream_a_function_is_overtaken(
    gpu: Machine, argument: str
) -> None:
    """H1: the control."""
    function = unordered(gpu, DefaultStream(gpu, LEGACY))
    assert early_write(gpu, function, argument) == NEW


@pytest.mark.parametrize("argument", ["dlx of torch", "dlx of CuPy"])
def test_a_library_that_was_seen_before_changes_no_stream(
    gpu: Machine, reading: Reading, argument: str
) -> None:
    """H1, R140: after an import from the other one, on its own stream."""
    other = client_of("cupy" if ARGUMENTS[argument][0] == "torch" else "torch")
    with other.stream(gpu.x):
        kept = dlx.from_dlpack(other.full(OLD))
        reading(kept)
    assert reading.ran == gpu.x.handle
    assert early_write(gpu, reading, argument) == OLD
    assert reading.ran == gpu.p.handle


def struck(gpu: Machine, function: Reading, argument: str) -> int:
    """Count the reads of a wrong value in many calls without a gate."""
    library, shown = ARGUMENTS[argument]
    client = client_of(library)
    with client.stream(gpu.p):
        array = client.full(OLD)
        tensor = shown(array)
        function(tensor)
    wrong = strikes(gpu, lambda: function(tensor), [(client, gpu.p, array)])
    found(f"tvm-ffi, {argument}, on stream {function.ran:#x}: {wrong} of 1024 wrong")
    return wrong


@each_argument
def test_a_thousand_calls_read_each_its_own_value(
    gpu: Machine, reading: Reading, argument: str
) -> None:
    """H1: the array is written before and after each, by its own library."""
    assert struck(gpu, reading, argument) == 0


@each_argument
def test_without_the_named_stream_calls_read_other_values(
    gpu: Machine, argument: str
) -> None:
    """H1: the control."""
    assert struck(gpu, unordered(gpu, gpu.s), argument) > 0


# Two libraries.


@PAIRS
def test_a_function_waits_for_the_second_library(
    gpu: Machine, reading: Reading, names: tuple[str, str]
) -> None:
    """H2: it runs on the first one's stream, which goes on after it."""
    one, other = map(client_of, names)
    with one.stream(gpu.x), other.stream(gpu.y):
        a, b = one.full(OLD), other.full(OLD)
        tensors = [dlx.from_dlpack(array) for array in (a, b)]
        reading(*tensors)
        gpu.synchronize()
        one.write(a, OLD)
        other.write(b, OLD)
        gpu.synchronize()
        with gpu.gate.closed(gpu.y):
            other.write(b, NEW)
            reads = reading(*tensors)
            one.write(a, NEW)
            gpu.x.settles()
            gpu.gate.open()
            gpu.synchronize()
    assert reading.ran == gpu.x.handle
    assert [one_value(read) for read in reads] == [OLD, NEW]


@PAIRS
def test_without_the_named_stream_a_function_does_not_wait_for_either(
    gpu: Machine, names: tuple[str, str]
) -> None:
    """H2: the control."""
    function = unordered(gpu, gpu.s)
    one, other = map(client_of, names)
    with one.stream(gpu.x), other.stream(gpu.y):
        a, b = one.full(OLD), other.full(OLD)
        function(dlx.from_dlpack(a), dlx.from_dlpack(b))
        gpu.synchronize()
        with gpu.gate.closed(gpu.y):
            other.write(b, NEW)
            reads = function(dlx.from_dlpack(a), dlx.from_dlpack(b))
            settled = gpu.s.settles()
            gpu.gate.open()
            gpu.synchronize()
    assert settled
    assert one_value(reads[1]) == OLD


def early_writes(
    gpu: Machine, names: tuple[str, str], call: Callable[..., list[Any]]
) -> list[float]:
    """Write with two libraries what `call` has yet to read on S."""
    one, other = map(client_of, names)
    with one.stream(gpu.x), other.stream(gpu.y):
        a, b = one.full(OLD), other.full(OLD)
        call(a, b)
        gpu.synchronize()
        one.write(a, OLD)
        other.write(b, OLD)
        gpu.synchronize()
        with gpu.gate.closed(gpu.s):
            reads = call(a, b)
            one.write(a, NEW)
            other.write(b, NEW)
            gpu.x.settles()
            gpu.y.settles()
            gpu.gate.open()
            gpu.synchronize()
    return [one_value(read) for read in reads]


@PAIRS
def test_in_a_launcher_neither_library_overtakes_the_function(
    gpu: Machine, reading: Reading, names: tuple[str, str]
) -> None:
    """H1, H2: docs/streams.md names it for what the protocol leaves open."""

    @dlx.launcher(give="tensor")
    def call(a: dlx.Tensor, b: dlx.Tensor, *, stream: int) -> list[Any]:
        reads = reading(a, b)
        assert reading.ran == stream
        return reads

    def call_on_s(a: Any, b: Any) -> list[Any]:
        reads: list[Any] = call(a, b, stream=gpu.s)
        return reads

    assert early_writes(gpu, names, call_on_s) == [OLD, OLD]


@PAIRS
def test_without_a_launcher_both_libraries_overtake_it(
    gpu: Machine, reading: Reading, names: tuple[str, str]
) -> None:
    """H1, H2: the control, a function on a stream that neither works on."""

    kept = []

    def call(a: Any, b: Any) -> list[Any]:
        tensors = dlx.from_dlpack(a), dlx.from_dlpack(b)
        kept.append(tensors)
        with dlx.stream(gpu.s):
            return reading(*tensors)

    assert early_writes(gpu, names, call) == [NEW, NEW]


@PAIRS
def test_a_thousand_calls_of_a_launcher_read_the_values_of_both_libraries(
    gpu: Machine, reading: Reading, names: tuple[str, str]
) -> None:
    """H1, H2: on the stream of the first, without a gate."""
    one, other = map(client_of, names)

    @dlx.launcher(give="tensor")
    def call(a: dlx.Tensor, b: dlx.Tensor, *, stream: int) -> list[Any]:
        return reading(a, b)

    with one.stream(gpu.x), other.stream(gpu.y):
        a, b = one.full(OLD), other.full(OLD)
        call(a, b)
        arrays = [(one, gpu.x, a), (other, gpu.y, b)]
        wrong = strikes(gpu, lambda: call(a, b), arrays)
    found(f"tvm-ffi in a launcher, {names}: {wrong} reads wrong")
    assert wrong == 0


# CuTe DSL.


@pytest.mark.parametrize("names", [("torch", "torch"), *PAIRS.args[1]])
@pytest.mark.parametrize("imported", [False, True], ids=["arrays", "dlx"])
def test_a_kernel_of_cute_dsl_runs_on_the_librarys_stream(
    gpu: Machine, names: tuple[str, str], imported: bool
) -> None:
    """H1: `use_tvm_ffi_env_stream`; CuPy's arrays have to be imported by dlx."""
    pytest.importorskip("cutlass.cute", exc_type=ImportError)
    pytest.importorskip("tvm_ffi", exc_type=ImportError)
    if not imported and "cupy" in names:
        pytest.skip("CuPy has no table, so it names no stream to tvm-ffi")
    add: Any = import_module("gpu.cute_kernels").add_one()
    one, other = map(client_of, names)
    shown: Callable[[Any], Any] = dlx.from_dlpack if imported else lambda array: array
    with one.stream(gpu.p), other.stream(gpu.p):
        x, out = one.full(OLD), other.full(0.0)
        add(shown(x), shown(out))
        one.write(x, OLD)
        gpu.synchronize()
        with gpu.gate.closed(gpu.p):
            one.write(x, NEW)
            add(shown(x), shown(out))
            one.write(x, OLD)
            read = gpu.read(dlx.from_dlpack(out, stream=-1).data_ptr, gpu.p)
            gpu.gate.open()
            gpu.p.synchronize()
    assert one_value(read) == NEW + 1
