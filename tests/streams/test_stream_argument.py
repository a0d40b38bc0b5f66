"""What `stream=` takes: the table of docs/streams.md, row by row."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import dlx
import pytest
from support.cuda_producers import (
    CudaArray,
    DLPackArray,
    InterfaceArray,
    TableArray,
    framework,
)
from support.fake_cuda_interface import Shown
from support.optional_libraries import requires
from support.simulated_driver import Simulation

Take = Callable[[Simulation, Any], int | None]


def imported(sim: Simulation, stream: Any) -> int | None:
    """The handle that an import takes a stream for."""
    tensor = dlx.from_dlpack(Shown(sim.allocate(24)), stream=stream)
    return None if tensor.stream is None else tensor.stream.handle


def made(sim: Simulation, stream: Any) -> int | None:
    """The handle that `dlx.Stream` takes it for."""
    return dlx.Stream(stream).handle


def exported(sim: Simulation, stream: Any) -> int | None:
    """The handle that an export takes it for: who waits for the elements."""
    tensor = dlx.from_dlpack(Shown(sim.allocate(24), sim.stream()))
    sim.clear_journal()
    tensor.__dlpack__(stream=stream)
    for call in sim.calls():
        if call.name == "cuStreamWaitEvent":
            waiting: int = call.arguments["stream"]
            return waiting
    return None


every_taker = pytest.mark.parametrize("take", [imported, made, exported])


class Protocol:
    """Has `__cuda_stream__`."""

    def __init__(self, answer: Any) -> None:
        """Keep the answer."""
        self.answer = answer

    def __cuda_stream__(self) -> Any:
        """Give it."""
        return self.answer


def like(library: str, name: str, **members: Any) -> Any:
    """An instance of a class of this name that says it is the library's."""
    return type(name, (), {"__module__": library, **members})()


# Ints


@every_taker
@pytest.mark.parametrize("stream", [1, 2])
def test_a_default_stream_is_named_by_its_number(
    sim: Simulation, take: Take, stream: int
) -> None:
    """R73: 1 is the legacy default stream, 2 that of the thread."""
    assert take(sim, stream) == stream


@every_taker
def test_a_handle_is_an_int(sim: Simulation, take: Take) -> None:
    """R73: an int above 2 is taken as it is."""
    handle = sim.stream().handle
    assert take(sim, handle) == handle


def test_no_order_is_no_stream(sim: Simulation) -> None:
    """R76: -1 is accepted where order is, but is no `dlx.Stream`."""
    assert (imported(sim, -1), exported(sim, -1)) == (None, None)
    with pytest.raises(ValueError, match="names no stream"):
        dlx.Stream(-1)


@every_taker
@pytest.mark.parametrize("stream", [0, -2, 2**64, -(2**64)])
def test_other_numbers_are_refused(sim: Simulation, take: Take, stream: int) -> None:
    """R74, R77: 0 on CUDA, below -1, beyond 64 bits."""
    with pytest.raises(ValueError, match="stream is"):
        take(sim, stream)


# Strangers


class Plain:
    """Nothing that a stream has."""


STRANGERS: dict[str, Any] = {
    "True": True,
    "False": False,
    "float": 1.0,
    "str": "1",
    "bytes": b"1",
    "tuple": (0, 1),
    "object": Plain(),
    "a class": Protocol,
    "something with __int__": like("mine", "Stream", __int__=lambda self: 5),
    "something with ptr": like("mine", "Stream", ptr=5),
    "memory of CuPy": like("cupy.cuda.memory", "MemoryPointer", ptr=5),
    "event of CuPy": like("cupy.cuda.stream", "Event", ptr=5),
    "event of CUDA": like("cuda.bindings.driver", "CUevent", __int__=lambda self: 5),
    "event of Numba": like("numba.cuda.cudadrv.driver", "Event", handle=5),
    "stream of torch without a handle": like("torch", "Stream", stream_id=5),
    "stream of Numba without a handle": like("numba.cuda", "Stream"),
    "handle of torch that is none": like("torch.cuda", "Stream", cuda_stream="5"),
}


@every_taker
@pytest.mark.parametrize("stranger", STRANGERS.values(), ids=STRANGERS)
def test_what_is_no_stream_is_refused(
    sim: Simulation, take: Take, stranger: Any
) -> None:
    """R78: a TypeError that says what is accepted."""
    with pytest.raises(TypeError, match=r"stream must be an int, a dlx\.Stream"):
        take(sim, stranger)


# `__cuda_stream__`


@every_taker
def test_an_object_with_the_protocol_is_its_stream(sim: Simulation, take: Take) -> None:
    """R154: a method."""
    handle = sim.stream().handle
    assert take(sim, Protocol((0, handle))) == handle


@every_taker
def test_handle_0_of_an_object_is_the_legacy_stream(
    sim: Simulation, take: Take
) -> None:
    """R154: torch's default stream has it."""
    assert take(sim, Protocol((0, 0))) == 1


@every_taker
def test_a_stream_of_dlx_is_one(sim: Simulation, take: Take) -> None:
    """R154: and has the method itself."""
    stream = sim.stream()
    assert take(sim, dlx.Stream(stream)) == stream.handle
    assert dlx.Stream(stream).__cuda_stream__() == (0, stream.handle)


@every_taker
@pytest.mark.parametrize("version", [1, -1, 2**40])
def test_another_version_is_refused(sim: Simulation, take: Take, version: int) -> None:
    """R154: dlx reads version 0 of `__cuda_stream__`."""
    with pytest.raises(ValueError, match=f"version {version}, dlx reads version 0"):
        take(sim, Protocol((version, 5)))


@every_taker
@pytest.mark.parametrize(
    "answer",
    [None, 5, [0, 5], (0,), (0, 5, 0), (0, "5"), (0, True), (False, 5), (0, 5.0)],
    ids=repr,
)
def test_an_answer_of_another_form_is_refused(
    sim: Simulation, take: Take, answer: Any
) -> None:
    """R154: both are Python ints."""
    with pytest.raises(TypeError):
        take(sim, Protocol(answer))


@every_taker
@pytest.mark.parametrize("handle", [-1, -2])
def test_no_object_is_a_negative_stream(
    sim: Simulation, take: Take, handle: int
) -> None:
    """R76: only the int -1 asks for no order."""
    with pytest.raises(ValueError, match=f"is {handle}, which names no stream"):
        take(sim, Protocol((0, handle)))


@every_taker
def test_what_the_protocol_raises_passes_through(sim: Simulation, take: Take) -> None:
    """R60: an exception of `__cuda_stream__`, unchanged."""

    class Failing:
        def __cuda_stream__(self) -> Any:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        take(sim, Failing())


# Libraries that are older than it

LOOK_ALIKES: dict[str, Callable[[int], Any]] = {
    "torch": lambda handle: like("torch.cuda.streams", "Stream", cuda_stream=handle),
    "torch's external": lambda handle: like(
        "torch.cuda.streams", "ExternalStream", cuda_stream=handle
    ),
    "CuPy": lambda handle: like("cupy.cuda.stream", "Stream", ptr=handle),
    "CuPy's external": lambda handle: like(
        "cupy.cuda.stream", "ExternalStream", ptr=handle
    ),
    "Numba": lambda handle: like(
        "numba.cuda.cudadrv.driver", "Stream", __int__=lambda self: handle
    ),
    "cuda.bindings' driver": lambda handle: like(
        "cuda.bindings.driver", "CUstream", __int__=lambda self: handle
    ),
    "cuda.bindings' runtime": lambda handle: like(
        "cuda.bindings.runtime", "cudaStream_t", __int__=lambda self: handle
    ),
}
every_library = pytest.mark.parametrize(
    "look_alike", LOOK_ALIKES.values(), ids=LOOK_ALIKES
)


@every_taker
@every_library
def test_an_older_stream_is_taken_by_its_attribute(
    sim: Simulation, take: Take, look_alike: Callable[[int], Any]
) -> None:
    """docs/streams.md, What `stream=` takes: torch, CuPy, Numba, cuda.bindings."""
    handle = sim.stream().handle
    assert take(sim, look_alike(handle)) == handle


@every_taker
@every_library
def test_an_older_default_stream_is_the_legacy_one(
    sim: Simulation, take: Take, look_alike: Callable[[int], Any]
) -> None:
    """docs/streams.md, What `stream=` takes: theirs is 0."""
    assert take(sim, look_alike(0)) == 1


def bindings() -> ModuleType:
    """Give cuda.bindings' driver."""
    requires("cuda.bindings")
    return sys.modules.get("cuda.bindings.driver") or requires("cuda.bindings.driver")


@every_taker
def test_a_stream_of_cuda_bindings_is_one(sim: Simulation, take: Take) -> None:
    """docs/streams.md, What `stream=` takes: the real class, without a driver."""
    handle = sim.stream().handle
    assert take(sim, bindings().CUstream(handle)) == handle
    assert take(sim, bindings().CUstream(0)) == 1


@every_taker
def test_an_event_of_cuda_bindings_is_none(sim: Simulation, take: Take) -> None:
    """R78: though it is an int as well."""
    with pytest.raises(TypeError, match=r"not cuda\.bindings\.driver\.CUevent"):
        take(sim, bindings().CUevent(5))


@every_taker
def test_the_default_streams_of_cuda_core_are_streams(
    sim: Simulation, take: Take
) -> None:
    """R154: the real class, as far as it goes without a driver."""
    core = requires("cuda.core")
    assert take(sim, core.LEGACY_DEFAULT_STREAM) == 1
    assert take(sim, core.PER_THREAD_DEFAULT_STREAM) == 2


# Lifetime and device


@pytest.mark.parametrize("kind", [TableArray, DLPackArray, InterfaceArray])
@pytest.mark.parametrize("copy", [None, True])
def test_an_object_is_asked_once(
    sim: Simulation, kind: type[CudaArray], copy: bool | None
) -> None:
    """R154: its method may be Python's."""
    asked = []

    class Counting:
        def __cuda_stream__(self) -> tuple[int, int]:
            asked.append(self)
            return 0, stream.handle

    library, stream = framework(kind), sim.stream()
    with library.stream(sim.stream()):
        dlx.from_dlpack(library.full((4,)), stream=Counting(), copy=copy)
    assert len(asked) == 1


@pytest.mark.parametrize("kind", [TableArray, DLPackArray, InterfaceArray])
def test_a_target_is_asked_once(sim: Simulation, kind: type[CudaArray]) -> None:
    """R139: for the stream that a converted tensor is ordered for."""
    asked = []

    class Target(dlx.ExchangeMixin):
        def __init__(self, tensor: dlx.Tensor) -> None:
            self.tensor = tensor

        def __dlx_export__(self) -> dlx.Tensor:
            return self.tensor

        @classmethod
        def __dlx_import__(cls, tensor: dlx.Tensor) -> Target:
            return cls(tensor)

        @classmethod
        def __dlx_stream__(cls, device: Any) -> int:
            asked.append(device)
            return stream.handle

    library, stream = framework(kind), sim.stream()
    with library.stream(sim.stream()):
        dlx.convert(library.full((4,)), Target)
    assert len(asked) == 1


def test_a_stream_object_lives_as_long_as_the_tensor(sim: Simulation) -> None:
    """H3: and as long as what the tensor was exported to."""
    stream = Protocol((0, sim.stream().handle))
    gone = weakref.ref(stream)
    tensor = dlx.from_dlpack(Shown(sim.allocate(24)), stream=stream)
    capsule = tensor.__dlpack__(stream=-1)
    del stream, tensor
    gc.collect()
    assert gone() is not None
    del capsule
    assert gone() is None


def test_a_stream_of_dlx_keeps_the_object_too(sim: Simulation) -> None:
    """H3: the one that it was made of."""
    stream = Protocol((0, sim.stream().handle))
    gone = weakref.ref(stream)
    kept = dlx.from_dlpack(Shown(sim.allocate(24)), stream=dlx.Stream(stream)).stream
    del stream
    gc.collect()
    assert gone() is not None
    del kept
    assert gone() is None


@pytest.mark.parametrize("take", [imported, exported])
@pytest.mark.parametrize("kind", [int, dlx.Stream, Protocol])
def test_a_stream_of_another_device_is_refused(
    sim: Simulation, take: Take, kind: Any
) -> None:
    """R86, H7: however it is named."""
    other = sim.stream(device=1)
    named = {int: other.handle, dlx.Stream: dlx.Stream(other)}
    stream = named.get(kind, Protocol((0, other.handle)))
    with pytest.raises(ValueError, match=r"of cuda:1, but the tensor is on cuda:0"):
        take(sim, stream)


def test_a_stream_of_its_own_device_is_taken_there(sim: Simulation) -> None:
    """H7: whichever is current."""
    stream = sim.stream(device=1)
    shown = Shown(sim.allocate(24, device=1))
    tensor = dlx.from_dlpack(shown, stream=stream)
    assert tensor.device == "cuda:1"
    assert tensor.stream == stream.handle
