"""Tensors that live under two names: `__dlpack_device_aliases__`, dlx's proposal.

The devices are fake; memory is never read where it claims not to be on the CPU.
"""

from __future__ import annotations

import gc
import itertools
import weakref
from typing import Any

import dlx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.alias_producers import CPU, CUDA, ONEAPI, OPENCL, TwoNames, aliases, names
from support.dlx_producers import ERRORS, ByMethod, Stored
from support.fake_producers import Producer
from support.fake_table import table_class

ALIAS = ["cuda:0", ("cuda", 0), (2, 0), dlx.Device("cuda:0")]
HANDLE = 0x7F12_3456_7890


# What a tensor says.


def test_a_tensor_shows_the_other_devices_of_its_memory() -> None:
    """array-api 829: "return two device values"."""
    tensor = dlx.from_dlpack(TwoNames(aliases=[CUDA, (2, 1)]))
    assert names(tensor) == ("oneapi:0", ("cuda:0", "cuda:1"))
    assert {type(alias) for alias in tensor.device_aliases} == {dlx.Device}


def test_a_tensor_of_a_producer_that_names_none_has_none() -> None:
    """The method is optional."""
    assert aliases(dlx.from_dlpack(Producer(device=ONEAPI))) == ()
    assert aliases(dlx.from_dlpack(np.zeros(3))) == ()


def test_a_producer_on_the_cpu_is_not_asked() -> None:
    """The usual import costs no more for aliases."""
    producer = TwoNames(device=CPU, aliases=[ONEAPI])
    assert aliases(dlx.from_dlpack(producer)) == ()
    assert "__dlpack_device_aliases__" not in producer.called


def test_a_producer_on_the_cpu_is_asked_where_a_device_is_named() -> None:
    """`device=` may name any of them."""
    producer = TwoNames(device=CPU, aliases=[ONEAPI])
    assert aliases(dlx.from_dlpack(producer, device="cpu")) == ("oneapi:0",)
    assert aliases(dlx.from_dlpack(producer, device=ONEAPI)) == ("cpu",)


@given(st.lists(st.sampled_from([CPU, CUDA, (2, 1), OPENCL, ONEAPI, (1, 7)])))
def test_each_other_device_is_shown_once(others: list[tuple[int, int]]) -> None:
    """R66: and the tensor's own is none of them."""
    tensor = dlx.from_dlpack(TwoNames(aliases=others))
    expected = dict.fromkeys((1, 0) if name[0] == 1 else name for name in others)
    expected.pop(ONEAPI, None)
    assert tensor.device_aliases == tuple(map(dlx.Device, expected))


def test_names_may_come_from_any_iterable() -> None:
    """Enum members as in `__dlpack_device__` (R64)."""
    producer = TwoNames(aliases=lambda: iter([(dlx.DeviceType.CUDA, 3)]))
    assert aliases(dlx.from_dlpack(producer)) == ("cuda:3",)


@pytest.mark.parametrize("source", [TwoNames, lambda: Stored(TwoNames())])
def test_a_tensor_hands_the_names_on(source: Any) -> None:
    """R64: as pairs, to any consumer; through a class of the mixin too."""
    tensor = dlx.from_dlpack(source())
    pairs = tensor.__dlpack_device_aliases__()
    assert pairs == (CUDA,)
    assert type(pairs[0][0]) is dlx.DeviceType
    assert aliases(dlx.from_dlpack(tensor)) == ("cuda:0",)
    assert aliases(dlx.from_dlpack(Stored(tensor))) == ("cuda:0",)


def test_a_producer_with_a_table_is_asked_too() -> None:
    """R112: the table itself cannot say it."""
    kind: Any = table_class()
    kind.__dlpack_device_aliases__ = lambda self: [CUDA]
    assert aliases(dlx.from_dlpack(kind(device=ONEAPI))) == ("cuda:0",)


# Bad answers.


@pytest.mark.parametrize("answer", [None, 7, object()])
def test_an_answer_that_is_no_iterable_is_a_type_error(answer: object) -> None:
    """It says which method of which class, and what is accepted."""
    with pytest.raises(
        TypeError,
        match=r"aliases__ of .*alias_producers.TwoNames .* iterable of pairs",
    ):
        dlx.from_dlpack(TwoNames(aliases=lambda: answer))


@pytest.mark.parametrize("name", [2, "cuda:0", (2,), (2, 0, 0), ("cuda", 0), [2, 0]])
def test_a_name_that_is_no_pair_of_ints_is_a_type_error(name: object) -> None:
    """R64: and the tensor is deleted."""
    producer = TwoNames(aliases=[name])
    with pytest.raises(TypeError, match="not a pair of ints"):
        dlx.from_dlpack(producer)
    assert producer.deleted == 1


@pytest.mark.parametrize("name", [(0, 0), (5, 0), (2, -1)])
def test_a_device_that_dlpack_does_not_know_is_refused(name: tuple[int, int]) -> None:
    """R31: among the aliases as elsewhere."""
    with pytest.raises(BufferError, match="device"):
        dlx.from_dlpack(TwoNames(aliases=[name]))


def test_names_without_end_are_refused() -> None:
    """An iterator that never stops does not hang the import."""
    with pytest.raises(BufferError, match="more than 64"):
        dlx.from_dlpack(TwoNames(aliases=lambda: itertools.repeat(CUDA)))


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_an_exception_of_the_method_passes_and_nothing_leaks(
    error: BaseException,
) -> None:
    """R60: the very object that was raised."""

    def fail() -> None:
        raise error

    producer = TwoNames(aliases=fail)
    with pytest.raises(type(error)) as caught:
        dlx.from_dlpack(producer)
    assert caught.value is error
    assert producer.deleted == 1


# device=.


@pytest.mark.parametrize("device", ALIAS)
def test_an_import_names_an_alias(device: Any) -> None:
    """R57, R68: the producer is asked, with a stream of the device that was named."""
    producer = TwoNames()
    tensor = dlx.from_dlpack(producer, device=device, stream=HANDLE)
    assert producer.asked == {
        "max_version": (1, 3),
        "dl_device": CUDA,
        "stream": HANDLE,
    }
    assert names(tensor) == ("cuda:0", ("oneapi:0",))
    assert (tensor.data_ptr, tensor.is_copied) == (producer.data, False)


@pytest.mark.parametrize("device", ALIAS)
@pytest.mark.parametrize("make", [TwoNames, lambda: ByMethod(Stored(TwoNames()))])
def test_a_tensor_goes_to_an_alias_and_back(make: Any, device: Any) -> None:
    """`Tensor.to`: the exporter is asked, and no element moves."""
    tensor = dlx.from_dlpack(make())
    there = tensor.to(device=device)
    assert names(there) == ("cuda:0", ("oneapi:0",))
    assert there.data_ptr == tensor.data_ptr
    back = there.to(device="oneapi:0", copy=False)
    assert names(back) == ("oneapi:0", ("cuda:0",))


def test_an_imported_tensor_is_imported_under_an_alias() -> None:
    """R83: the stream is one of the device that was named."""
    producer = TwoNames()
    tensor = dlx.from_dlpack(dlx.from_dlpack(producer), device="cuda:0", stream=2)
    assert tensor.device == "cuda:0"
    assert tensor.stream == 2
    assert producer.requests[-1]["stream"] == 2


def test_a_capsule_is_made_under_an_alias() -> None:
    """`__dlpack__(dl_device=)`, R83: with a stream of that device."""
    producer = TwoNames()
    capsule = dlx.from_dlpack(producer).__dlpack__(
        max_version=(1, 3), dl_device=CUDA, stream=2
    )
    assert producer.requests[-1]["stream"] == 2
    found = dlx.from_dlpack(capsule)
    assert (str(found.device), found.data_ptr) == ("cuda:0", producer.data)


def test_numpy_reads_what_is_on_the_cpu_too() -> None:
    """R57: NumPy passes `dl_device` on."""
    producer = TwoNames(aliases=[CPU])
    array = np.from_dlpack(dlx.from_dlpack(producer), device="cpu")
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert array.ctypes.data == producer.data


def test_convert_names_an_alias() -> None:
    """R57: `device="cpu"` of memory whose alias is the CPU shares it."""
    producer = TwoNames(aliases=[CPU])
    array = dlx.convert(producer, np.ndarray, device="cpu")
    assert array.ctypes.data == producer.data
    tensor = dlx.from_dlpack(producer)
    assert dlx.convert(tensor, np.ndarray, device="cpu").ctypes.data == producer.data


@pytest.mark.parametrize("device", ["cuda:1", "rocm:0"])
def test_another_device_is_refused_as_ever(device: str) -> None:
    """R52: one that is not among the aliases."""
    tensor = dlx.from_dlpack(TwoNames())
    with pytest.raises(BufferError, match=f"oneapi:0.*{device}"):
        tensor.to(device=device)


def test_a_stream_is_refused_on_an_alias_that_has_none() -> None:
    """R70: -1 too."""
    tensor = dlx.from_dlpack(TwoNames(aliases=[CPU]))
    with pytest.raises(BufferError, match="has no streams"):
        tensor.__dlpack__(dl_device=CPU, stream=-1)


def test_what_the_exporter_raises_by_then_passes() -> None:
    """R60: an alias that the exporter no longer gives."""
    producer = TwoNames(device=CUDA, aliases=[ONEAPI])
    tensor = dlx.from_dlpack(producer)
    producer.aliases = ()
    with pytest.raises(BufferError) as caught:
        tensor.to(device=ONEAPI)
    assert caught.value is producer.refusal


@pytest.mark.parametrize(
    "gives",
    [
        {"shape": (3, 2)},
        {"dtype": (0, 32, 1)},
        {"strides": (1, 2)},
        {"byte_offset": 4},
    ],
    ids=repr,
)
def test_an_exporter_that_holds_another_tensor_by_then_is_refused(
    gives: dict[str, Any],
) -> None:
    """A tensor does not become another under its other name."""
    producer = TwoNames()
    tensor = dlx.from_dlpack(producer)
    producer.gives = gives
    with pytest.raises(BufferError, match="exports a different tensor on cuda:0"):
        tensor.to(device="cuda:0")


def test_handles_need_not_be_addresses() -> None:
    """R93: `data` of OpenCL is a handle."""
    producer = TwoNames(device=OPENCL, aliases=[CPU], gives={"memory": bytearray(24)})
    assert dlx.from_dlpack(producer).to(device="cpu").numpy().sum() == 0


@pytest.mark.parametrize("copied", [{"copy": True}, {}])
def test_a_copy_is_under_one_name_alone(copied: dict[str, Any]) -> None:
    """R37: whether it was asked for or says so."""
    producer = TwoNames(gives={"flags": 2, "memory": bytearray(24)})
    tensor = dlx.from_dlpack(producer)
    assert aliases(tensor.to(device="cuda:0", **copied)) == ()
    assert aliases(dlx.from_dlpack(producer, device="cuda:0", **copied)) == ()


def test_a_move_is_no_alias() -> None:
    """R57: what the producer made elsewhere is other memory."""

    class Moves(TwoNames):
        def __dlpack_device_aliases__(self) -> Any:
            return [(2, 1)]

    assert aliases(dlx.from_dlpack(Moves(), device="cuda:0")) == ()


def test_the_exporter_lives_as_long_as_a_tensor_with_aliases() -> None:
    """R13: it is asked later; and no longer than that."""
    producer = TwoNames()
    seen = weakref.ref(producer)
    tensor = dlx.from_dlpack(producer)
    there = tensor.to(device="cuda:0")
    del producer, tensor
    gc.collect()
    assert there.to(device="oneapi:0").device == "oneapi:0"
    del there
    assert Producer().deleted == 0  # and exports that were deleted are forgotten
    gc.collect()
    assert seen() is None
