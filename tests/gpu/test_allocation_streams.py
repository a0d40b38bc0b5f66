"""H4 where memory was allocated under another stream.

torch and CuPy give a freed block back to the stream that it was allocated on, here P.
The library works on X when its array is used and dropped. Then it allocates on P again:
a block that is back there too early is written under the kernel that has yet to read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dlx
import pytest

from gpu.clients import Client, client_of
from gpu.machine import NEW, OLD, Machine, Stream, one_value
from gpu.report import found

LIBRARIES = ["torch", "cupy"]
ROUNDS = 200

Use = Callable[[Machine, Client, Any, Stream], Any]
"""Queues a read of an array on a stream, and returns what it reads."""


def imported(release: str) -> Use:
    """Import for the stream, and drop the tensor."""

    def use(gpu: Machine, _client: Client, array: Any, reader: Stream) -> Any:
        keywords: dict[str, Any] = {"stream": reader.handle, "release": release}
        tensor = dlx.from_dlpack(array, **keywords)
        return gpu.read(tensor.data_ptr, reader)

    return use


def dropped_there(release: str) -> Use:
    """Import for the stream; the library works on it when the tensor is dropped."""

    def use(gpu: Machine, client: Client, array: Any, reader: Stream) -> Any:
        keywords: dict[str, Any] = {"stream": reader.handle, "release": release}
        held = [dlx.from_dlpack(array, **keywords)]
        seen = gpu.read(held[0].data_ptr, reader)
        with client.stream(reader):
            held.clear()
        return seen

    return use


def lent(gpu: Machine, _client: Client, array: Any, reader: Stream) -> Any:
    """Read in a block on the stream."""
    with dlx.borrow(array, stream=reader) as (view, _):
        return gpu.read(view.data_ptr, reader)


def lent_and_told(gpu: Machine, client: Client, array: Any, reader: Stream) -> Any:
    """The same; torch is told of its own stream, which has waited for the block's."""
    seen = lent(gpu, client, array, reader)
    array.record_stream(client.library.cuda.current_stream())
    return seen


USES: dict[str, Use] = {
    "import, none": imported("none"),
    "import, auto": imported("auto"),
    "import, record_stream": imported("record_stream"),
    "import dropped there, auto": dropped_there("auto"),
    "import dropped there, record_stream": dropped_there("record_stream"),
    "borrow": lent,
    "borrow, record_stream": lent_and_told,
}


def warm_up(gpu: Machine, client: Client) -> None:
    """Have memory of each stream in the library's pool, and its kernels loaded."""
    for stream in (gpu.p, gpu.x):
        with client.stream(stream):
            arrays = [client.full(OLD) for _ in range(16)]
            gpu.synchronize()
            del arrays


def strikes_once(gpu: Machine, client: Client, use: Use, reader: Stream) -> bool:
    """One round; True if memory was handed out that the reader has yet to read."""
    with client.stream(gpu.p):
        array = client.full(OLD)
    gpu.synchronize()
    with gpu.gate.closed(reader):
        with client.stream(gpu.x):
            seen = use(gpu, client, array, reader)
            del array
        with client.stream(gpu.p):
            # One of them reuses the memory of the array, if P has it back.
            again = [client.full(NEW) for _ in range(8)]
        gpu.p.settles()
        gpu.gate.open()
        reader.synchronize()
    del again
    return one_value(seen) != OLD


def strikes(gpu: Machine, library: str, name: str, *, own: bool) -> int:
    """Count the strikes; the reader is X, on which the library works, or S."""
    client, use = client_of(library), USES[name]
    reader = gpu.x if own else gpu.s
    warm_up(gpu, client)
    strikes_once(gpu, client, use, reader)
    rounds = range(ROUNDS)
    count = sum(strikes_once(gpu, client, use, reader) for _ in rounds)
    where = "on its own stream" if own else "on a stream of the caller"
    line = f"allocated elsewhere, {library}, {name}, {where}"
    found(f"{line}: strikes in {count} of {ROUNDS}")
    return count


@pytest.mark.parametrize("library", LIBRARIES)
def test_without_order_it_is_handed_out(gpu: Machine, library: str) -> None:
    """The control."""
    assert strikes(gpu, library, "import, none", own=False) > 0


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_import_for_a_stream_of_the_caller_needs_nothing(
    gpu: Machine, library: str
) -> None:
    """H4: dlx holds the memory until S is done, whatever the allocator does."""
    assert strikes(gpu, library, "import, auto", own=False) == 0


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_import_for_the_librarys_own_stream_is_left_to_the_library(
    gpu: Machine, library: str
) -> None:
    """Rule 6: it counts as a use of the library's own, which needs `record_stream`."""
    assert strikes(gpu, library, "import, auto", own=True) > 0


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_stream_that_becomes_the_librarys_own_needs_nothing(
    gpu: Machine, library: str
) -> None:
    """Rule 6: it was not the library's own at the import."""
    assert strikes(gpu, library, "import dropped there, auto", own=False) == 0


@pytest.mark.parametrize("own", [False, True], ids=["stream of the caller", "own"])
def test_torch_holds_back_what_it_was_told_of(gpu: Machine, own: bool) -> None:
    """H4, with `release="record_stream"`."""
    assert strikes(gpu, "torch", "import, record_stream", own=own) == 0


def test_torch_holds_it_back_wherever_the_tensor_is_dropped(gpu: Machine) -> None:
    """H4, with `release="record_stream"`."""
    assert strikes(gpu, "torch", "import dropped there, record_stream", own=False) == 0


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_block_is_left_to_the_library(gpu: Machine, library: str) -> None:
    """Rule 6: what `borrow` does is to the library as if it were its own on X."""
    assert strikes(gpu, library, "borrow", own=False) > 0


def test_torch_holds_back_what_was_lent_if_told_of_its_own_stream(
    gpu: Machine,
) -> None:
    """H4: X, which waits for S at the end of the block, is the stream to record."""
    assert strikes(gpu, "torch", "borrow, record_stream", own=False) == 0
