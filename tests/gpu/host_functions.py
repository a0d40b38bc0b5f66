"""Programs that let tensors go, and import them, in host functions of Python."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import dlx

from gpu.clients import CLIENTS, Client
from gpu.driver import NOT_PERMITTED
from gpu.machine import COUNT, NEW, OLD, Machine, Stream, machine, one_value

SWEEPS = 400
NBYTES = 1 << 20


def in_a_host_function(gpu: Machine, call: Callable[[], object]) -> None:
    """Make a call in a host function of Y, to its end."""
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            call()
        except BaseException as error:
            failures.append(error)

    kept = gpu.driver.launch_host_function(gpu.y.handle, guarded)
    gpu.y.synchronize()
    del kept
    if failures:
        raise failures[0]


def used(client: Client) -> int:
    """Return how many bytes the allocator of a library has handed out."""
    if client.needs == "torch":
        return int(client.library.cuda.memory_allocated())
    return int(client.library.get_default_memory_pool().used_bytes())


def lost(gpu: Machine, client: Client, probe: Any, before: int) -> int:
    """Return how many bytes are still held after orders that look at what waits."""
    gpu.synchronize()
    for _ in range(SWEEPS):
        dlx.from_dlpack(probe, stream=gpu.s)
        if used(client) == before:
            return 0
    return used(client) - before


def drop(gpu: Machine, client: Client, release: str) -> bool:
    """H4: one round; True if memory was handed out that S has yet to read."""
    array = client.full(OLD)
    gpu.p.synchronize()
    keywords: dict[str, Any] = {"stream": gpu.s.handle, "release": release}
    with gpu.gate.closed(gpu.s):
        held = [dlx.from_dlpack(array, **keywords)]
        seen = gpu.read(held[0].data_ptr, gpu.s)
        del array
        in_a_host_function(gpu, held.clear)
        # One of them reuses the memory of the array, if the pool has it back.
        again = [client.full(NEW) for _ in range(8)]
        gpu.p.settles()
        gpu.gate.open()
        gpu.s.synchronize()
    del again
    return one_value(seen) != OLD


def drops(library: str, release: str, rounds: int) -> dict[str, int]:
    """Count the rounds in which memory was handed out, and the bytes that are lost."""
    gpu, client = machine(), CLIENTS[library]()
    with client.stream(gpu.p):
        probe = client.full(OLD)
        drop(gpu, client, "none")
        before = used(client)
        strikes = sum(drop(gpu, client, release) for _ in range(rounds))
        return {"strikes": strikes, "lost": lost(gpu, client, probe, before)}


def kept_alive(library: str, rounds: int) -> dict[str, int]:
    """Keep tensors until their own stream has used them, as many programs do."""
    gpu, client = machine(), CLIENTS[library]()
    ran = list[bool]()
    with client.stream(gpu.p):
        probe = client.full(OLD)
        before, functions = used(client), []
        for _ in range(rounds):
            held = [dlx.from_dlpack(client.full(OLD), stream=gpu.s)]
            gpu.read(held[0].data_ptr, gpu.s)

            def let_go(held: list[dlx.Tensor] = held) -> None:
                held.clear()
                ran.append(True)

            kept = gpu.driver.launch_host_function(gpu.s.handle, let_go)
            functions.append(kept)
            del held, let_go
        gpu.s.synchronize()
        return {"ran": len(ran), "lost": lost(gpu, client, probe, before)}


Call = Callable[[Machine, Any, dlx.Tensor, dlx.Stream], object]


def _borrow(gpu: Machine, x: Any, *_: Any) -> None:
    with dlx.borrow(x, stream=gpu.s):
        pass


def _use(gpu: Machine, _x: Any, tensor: dlx.Tensor, _s: dlx.Stream) -> None:
    with tensor.use(stream=gpu.s):
        pass


CALLS: dict[str, Call] = {
    "import": lambda gpu, x, *_: dlx.from_dlpack(x, stream=gpu.s),
    "import without a stream": lambda _, x, *__: dlx.from_dlpack(x),
    "import for the legacy stream": lambda _, x, *__: dlx.from_dlpack(x, stream=1),
    "export": lambda gpu, _, t, __: t.__dlpack__(stream=gpu.s.handle),
    "borrow": _borrow,
    "use": _use,
    "Stream": lambda gpu, *_: dlx.Stream(gpu.y.handle),
    "Stream.wait": lambda gpu, _, __, s: s.wait(gpu.x),
    "empty": lambda *_: dlx.empty(COUNT, "float32", device="cuda:0"),
}
"""What a host function may try. Calls that wait for the device are not among them."""


def answer(call: Callable[[], object]) -> str:
    """Return "done", "not permitted" of a clear error, or what else was raised."""
    try:
        call()
    except dlx.CudaError as error:
        is_clear = error.code == NOT_PERMITTED and "NOT_PERMITTED" in str(error)
        return "not permitted" if is_clear else repr(error)
    except Exception as error:
        return repr(error)
    return "done"


def imports(library: str) -> dict[str, Any]:
    """Make each call in a host function, and then outside."""
    gpu, client = machine(), CLIENTS[library]()
    inside, outside = dict[str, str](), dict[str, str]()
    named = dlx.Stream(gpu.s)
    with client.stream(gpu.p):
        probe = client.full(OLD)
        before = used(client)
        held = [client.full(NEW)]
        tensors = [dlx.from_dlpack(held[0], stream=gpu.p)]

        def attempt(said: dict[str, str]) -> None:
            for name, call in CALLS.items():
                arguments = gpu, held[0], tensors[0], named
                said[name] = answer(partial(call, *arguments))

        attempt(outside)
        outside.clear()
        in_a_host_function(gpu, lambda: attempt(inside))
        attempt(outside)
        value = one_value(dlx.from_dlpack(held[0], device="cpu").numpy().tolist())
        held.clear()
        tensors.clear()
        left = lost(gpu, client, probe, before)
    return {"inside": inside, "outside": outside, "value": value, "lost": left}


def empties(rounds: int) -> dict[str, int]:
    """Let memory of dlx go in host functions; count the bytes that are lost."""
    gpu = machine()
    with dlx.stream(gpu.s):
        dlx.empty(4, "float32", device="cuda:0")
        gpu.synchronize()
        before = gpu.driver.used_by_the_pool()
        for _ in range(rounds):
            held = [dlx.empty(NBYTES, "uint8", device="cuda:0") for _ in range(2)]
            in_a_host_function(gpu, held.clear)
        for _ in range(SWEEPS):
            dlx.empty(4, "float32", device="cuda:0")
            gpu.s.synchronize()
            if gpu.driver.used_by_the_pool() == before:
                break
        return {"lost": gpu.driver.used_by_the_pool() - before}


def last(stream: Stream, said: str) -> Any:
    """Queue a host function that takes a while, and prints."""

    def slow() -> None:
        time.sleep(0.3)
        print(said, flush=True)

    return stream.driver.launch_host_function(stream.handle, slow)


FUNCTIONS = list[Any]()
"""Host functions that may run until the process has ended."""


def ends() -> str:
    """End the process while memory waits behind a host function."""
    gpu = machine()
    array = dlx.from_pointer(
        gpu.memory[1],
        (COUNT,),
        "float32",
        device="cuda:0",
        owner=object(),
        stream=dlx.Stream(gpu.p),
    )
    tensor = dlx.from_dlpack(array, stream=gpu.s)
    FUNCTIONS.append(last(gpu.s, "function"))
    gpu.read(tensor.data_ptr, gpu.s)
    del tensor, array
    return "end"
