"""`device=`, `dl_device=` and `copy=`: honoured or refused, never dropped."""

from __future__ import annotations

import enum
import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import dlx
import pytest
from support.dlpack_abi import (
    DLPACK_FLAG_BITMASK_IS_COPIED,
    DLPACK_FLAG_BITMASK_READ_ONLY,
    exported,
)
from support.dlx_producers import Maker, every_holder, every_producer
from support.fake_producers import Claiming, Producer, Refusing

CPU, CUDA, CUDA_HOST, ROCM, MANAGED = (1, 0), (2, 0), (3, 0), (10, 0), (13, 0)


class Moving(Producer):
    """A producer that honours `dl_device` and `copy`: it hands out another producer."""

    other: Producer

    def __dlpack__(self, **keywords: Any) -> Any:
        """Record the call, then export what it asks for."""
        self.calls.append(("__dlpack__", keywords))
        self.other = Producer(
            device=keywords.get("dl_device", self.device),
            flags=DLPACK_FLAG_BITMASK_IS_COPIED,
        )
        return self.other.capsule()


# dlx as the producer.


def test_copy_refused_is_both_classes_of_the_standard() -> None:
    """R58: BufferError and ValueError."""
    assert issubclass(dlx.CopyRefused, BufferError)
    assert issubclass(dlx.CopyRefused, ValueError)


@every_producer
def test_an_export_with_copy_true_is_other_memory_and_says_so(make: Maker) -> None:
    """R37, R47: another address, and IS_COPIED."""
    source = Producer()
    managed = exported(make(source), copy=True)
    assert managed.dl_tensor.data != source.data
    assert managed.flags == DLPACK_FLAG_BITMASK_IS_COPIED


@every_producer
def test_writes_to_an_exported_copy_stay_there(make: Maker) -> None:
    """R47: the producer keeps its elements."""
    producer = make(Producer())
    capsule = producer.__dlpack__(max_version=(1, 3), copy=True)
    dlx.from_dlpack(capsule).numpy()[:] = -1
    assert dlx.from_dlpack(producer).numpy().tolist() == [[0, 1, 2], [3, 4, 5]]


@every_holder
@pytest.mark.parametrize("copy", [None, False])
@pytest.mark.parametrize("flags", [0, DLPACK_FLAG_BITMASK_IS_COPIED])
def test_an_export_without_copy_is_the_same_memory(
    make: Maker, copy: bool | None, flags: int
) -> None:
    """R38, R48, R49: though it was a copy when it came in, now it is shared."""
    source = Producer(flags=flags)
    managed = exported(make(dlx.from_dlpack(source)), copy=copy)
    assert (managed.dl_tensor.data, managed.flags) == (source.data, 0)


@every_producer
@pytest.mark.parametrize("device", [CPU, CUDA, (2, 3)])
@pytest.mark.parametrize("kind", [None, int, dlx.DeviceType])
def test_dl_device_may_name_where_the_tensor_is(
    make: Maker, device: tuple[int, int], kind: Callable[[int], int] | None
) -> None:
    """R51, R53: as an enum member, an int, or None."""
    source = Producer(device=device)
    dl_device = kind and (kind(device[0]), device[1])
    managed = exported(make(source), dl_device=dl_device)
    assert managed.dl_tensor.data == source.data


@every_producer
@pytest.mark.parametrize("device", [CPU, CUDA])
@pytest.mark.parametrize("copy", [None, True, False])
@pytest.mark.parametrize("dl_device", [(9, 0), (16, 0), (99, 0), (2, 1), (1, 1)])
def test_dl_device_elsewhere_is_refused(
    make: Maker, device: tuple[int, int], dl_device: tuple[int, int], copy: bool | None
) -> None:
    """R48, R52, R54: whatever `copy` is."""
    producer = make(Producer(device=device))
    with pytest.raises(
        BufferError, match=r"dl_device|device type|move it|asked|copy=False"
    ):
        producer.__dlpack__(dl_device=dl_device, copy=copy)


@every_producer
@pytest.mark.parametrize("member", dlx.DeviceType)
def test_dlpack_device_is_an_enum_member_and_an_int(
    make: Maker, member: dlx.DeviceType
) -> None:
    """R64, R67: a member of `DeviceType`, with the header's value."""
    device = make(Producer(device=(member, 0))).__dlpack_device__()
    assert device == (member, 0)
    assert isinstance(device[0], enum.Enum)
    assert type(device[1]) is int


@every_producer
@pytest.mark.parametrize("device", [CPU, CUDA, (2, 3), MANAGED])
def test_dlpack_device_is_the_device_in_the_struct(
    make: Maker, device: tuple[int, int]
) -> None:
    """R64: of every producer."""
    producer = make(Producer(device=device))
    found = exported(producer).dl_tensor.device
    assert (found.device_type, found.device_id) == producer.__dlpack_device__()


# dlx as the consumer: objects without the protocol, or with half of it.


@pytest.mark.parametrize("present", [(), ("__dlpack__",), ("__dlpack_device__",)])
def test_a_missing_method_is_an_attribute_error(present: tuple[str, ...]) -> None:
    """R61: of an object that is otherwise fine."""
    methods = {name: getattr(Producer, name) for name in present}
    incomplete = type("Incomplete", (), {**methods, "calls": [], "device": CPU})()
    with pytest.raises(AttributeError, match="has no __dlpack_"):
        dlx.from_dlpack(incomplete)


@pytest.mark.parametrize("result", [None, 7, "capsule", object()])
def test_what_is_no_capsule_is_a_type_error(result: object) -> None:
    """R1, of a producer that breaks it."""

    class Odd(Producer):
        def __dlpack__(self, **keywords: Any) -> Any:
            return result

    with pytest.raises(TypeError, match="not a capsule"):
        dlx.from_dlpack(Odd())


@pytest.mark.parametrize("claim", [None, 1, "cpu", (1,), (1, 0, 0), ("cpu", 0)])
def test_a_device_that_is_no_pair_of_ints_is_a_type_error(claim: object) -> None:
    """R64, of a producer that breaks it."""
    producer = Claiming()
    producer.claim = claim
    with pytest.raises(TypeError, match="not a pair of ints"):
        dlx.from_dlpack(producer, copy=True)
    # Where nothing is asked for, the capsule tells.
    assert dlx.from_dlpack(producer).device == "cpu"


@pytest.mark.parametrize("claim", [(0, 0), (5, 0), (19, -1), (1, -1)])
def test_a_device_that_dlpack_does_not_know_is_refused(claim: tuple[int, int]) -> None:
    """R31, R62: before the producer is asked for anything."""
    producer = Claiming()
    producer.claim = claim
    with pytest.raises(BufferError, match="device"):
        dlx.from_dlpack(producer, copy=True)
    assert producer.exports == []
    # Where nothing is asked for, the capsule tells.
    assert dlx.from_dlpack(producer).device == "cpu"


@pytest.mark.parametrize("device", [CUDA, ROCM, (2, 1)])
def test_a_producer_that_hands_out_another_device_than_it_says_is_refused(
    device: tuple[int, int],
) -> None:
    """R64, R71: as a CPU producer it was told no stream, so nothing is ordered."""
    producer = Claiming(device=device)
    with pytest.raises(BufferError, match="returned one on"):
        dlx.from_dlpack(producer)
    # Where it was not asked for its device first, it is asked in full then.
    assert len(producer.exports) in (1, 2)
    assert producer.deleted == len(producer.exports)


@pytest.mark.parametrize(
    ("claim", "device"), [(CUDA, CPU), (CUDA, CUDA_HOST), (CPU, CUDA_HOST)]
)
def test_a_device_that_was_asked_for_is_not_replaced_by_the_producer(
    claim: tuple[int, int], device: tuple[int, int]
) -> None:
    """R57: it says that it is there already, and is not."""
    producer = Claiming(device=device)
    producer.claim = claim
    with pytest.raises(BufferError):
        dlx.from_dlpack(producer, device=claim)


# dlx as the consumer: device=.


@pytest.mark.parametrize("device", [CPU, CUDA, MANAGED, (2, 1)])
def test_the_result_is_where_the_source_is(device: tuple[int, int]) -> None:
    """R56: and `dl_device` is not passed."""
    producer = Producer(device=device)
    assert dlx.from_dlpack(producer).device == dlx.Device(device)
    assert "dl_device" not in producer.asked


@pytest.mark.parametrize("device", ["cpu", "cpu:0", (1, 0), dlx.Device("cpu")])
def test_the_sources_own_device_is_not_passed_on(device: Any) -> None:
    """R56: producers too old to know `dl_device` are served."""
    producer = Producer()
    assert dlx.from_dlpack(producer, device=device).device == "cpu"
    assert "dl_device" not in producer.asked


@pytest.mark.parametrize(
    "device", ["cuda:1", (dlx.DeviceType.CUDA, 1), dlx.Device("cuda:1")]
)
def test_another_device_is_passed_on_as_plain_ints(device: Any) -> None:
    """R68: whether `device` is a name, a pair or a `Device`."""
    producer = Moving()
    tensor = dlx.from_dlpack(producer, device=device)
    passed = producer.asked["dl_device"]
    assert (passed, *map(type, passed)) == ((2, 1), int, int)
    assert tensor.device == "cuda:1"


def test_memory_elsewhere_comes_to_the_cpu_where_the_producer_moves_it() -> None:
    """R57, R71: no stream is named, the elements are there on return."""
    producer = Moving(device=CUDA)
    tensor = dlx.from_dlpack(producer, device="cpu")
    assert tensor.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert producer.asked == {"max_version": (1, 3), "dl_device": (1, 0)}


def test_a_producer_that_ignores_dl_device_is_refused() -> None:
    """R57: and its tensor is deleted."""
    producer = Producer()
    with pytest.raises(BufferError, match="asked for a tensor on cuda:0"):
        dlx.from_dlpack(producer, device="cuda:0")
    assert producer.deleted == 1


@pytest.mark.parametrize(
    ("device", "error"),
    [("gpu", ValueError), ((5, 0), ValueError), (1, TypeError), ((1, 0, 0), TypeError)],
)
def test_what_is_no_device_is_a_bad_argument(device: Any, error: Any) -> None:
    """R57: the producer is not asked."""
    producer = Producer()
    with pytest.raises(error):
        dlx.from_dlpack(producer, device=device)
    assert producer.calls == []


# dlx as the consumer: copy=.


def test_a_copy_may_be_changed_without_side_effects() -> None:
    """R59: the producer keeps its elements."""
    producer = Producer()
    tensor = dlx.from_dlpack(producer, copy=True)
    tensor.numpy()[:] = -1
    assert list(producer.memory[:6]) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("copy", [None, False])
def test_memory_is_shared_where_no_copy_is_asked_for(copy: bool | None) -> None:
    """R49, R59: `copy` is None or False."""
    producer = Producer()
    tensor = dlx.from_dlpack(producer, copy=copy)
    assert (tensor.data_ptr, tensor.is_copied) == (producer.data, False)


@pytest.mark.parametrize("flags", [0, DLPACK_FLAG_BITMASK_READ_ONLY])
def test_a_copy_made_by_dlx_says_so_and_is_writable(flags: int) -> None:
    """R37, R59: whatever flags the source has."""
    tensor = dlx.from_dlpack(Producer(flags=flags), copy=True)
    assert (tensor.is_copied, tensor.readonly) == (True, False)


@pytest.mark.parametrize("copy", [True, False])
def test_a_copy_that_dlx_cannot_make_is_left_to_the_producer(copy: bool) -> None:
    """R37, R59: on a device that it does not read, whose copies say so themselves."""
    producer = Producer(device=CUDA, flags=DLPACK_FLAG_BITMASK_IS_COPIED * copy)
    assert dlx.from_dlpack(producer, copy=copy).is_copied is copy
    assert producer.asked["copy"] is copy


def test_a_copy_that_copy_false_forbids_is_refused_after_the_fact() -> None:
    """R58: the producer made one all the same."""
    with pytest.raises(dlx.CopyRefused, match="made a copy"):
        dlx.from_dlpack(Moving(), copy=False)


@pytest.mark.parametrize("error", [BufferError("no"), ValueError("no")], ids=repr)
def test_a_move_without_a_copy_is_refused_as_both_classes(error: Exception) -> None:
    """R58: whichever of the two the producer raises, it stays visible as the cause."""
    producer = Refusing()
    producer.error = error
    with pytest.raises(dlx.CopyRefused) as caught:
        dlx.from_dlpack(producer, device="cuda:0", copy=False)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("copy", [None, True])
def test_another_refusal_passes_unchanged(device: str, copy: bool | None) -> None:
    """R60: the very BufferError that the producer raised."""
    producer = Refusing()
    producer.error = BufferError("no")
    with pytest.raises(BufferError) as caught:
        dlx.from_dlpack(producer, device=device, copy=copy)
    assert caught.value is producer.error


@pytest.mark.parametrize("source", ["tensor", "capsule"])
@pytest.mark.parametrize(
    ("copy", "error"),
    [(None, BufferError), (True, BufferError), (False, dlx.CopyRefused)],
)
def test_dlx_itself_moves_nothing(source: str, copy: bool | None, error: Any) -> None:
    """R57, R58: neither a tensor that it has nor a capsule."""
    producer = Producer()
    x = producer.capsule() if source == "capsule" else dlx.from_dlpack(producer)
    with pytest.raises(error, match="cuda:0") as caught:
        dlx.from_dlpack(x, device="cuda:0", copy=copy)
    assert type(caught.value) is error


@pytest.mark.parametrize("device_id", [1, 7])
def test_there_is_one_cpu(device_id: int) -> None:
    """R66: any device id of the CPU is 0."""
    tensor = dlx.from_dlpack(Producer(device=(1, device_id)).capsule())
    assert tensor.device == "cpu"
    assert tensor.__dlpack_device__() == (1, 0)


def test_a_cpu_of_another_id_is_the_one_that_is_asked_for() -> None:
    """R56, R66: nothing is moved."""
    producer = Producer(device=(1, 7))
    assert dlx.from_dlpack(producer, device="cpu").data_ptr == producer.data
    assert "dl_device" not in producer.calls[-1][1]


def test_copy_true_copies_what_is_a_copy_already() -> None:
    """R59: always."""
    producer = Producer(flags=DLPACK_FLAG_BITMASK_IS_COPIED)
    assert dlx.from_dlpack(producer, copy=True).data_ptr != producer.data
    assert producer.deleted == 1


def test_an_object_whose_method_is_none_is_no_device() -> None:
    """Python's way to say that a class has none."""

    class Without:
        __dlpack_device__ = None

    with pytest.raises(TypeError, match=r"device must be a dlx\.Device"):
        dlx.Device(Without())  # type: ignore[arg-type]


def test_a_module_that_cannot_import_what_it_names_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it has yet to import has no instances."""
    lazy = ModuleType("cupy.cuda")
    lazy.__getattr__ = lambda name: importlib.import_module("missing")  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "cupy.cuda", lazy)
    with pytest.raises(TypeError, match=r"device must be a dlx\.Device"):
        dlx.Device(object())  # type: ignore[arg-type]
