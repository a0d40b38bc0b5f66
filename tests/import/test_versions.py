"""Which DLPack version goes over the wire, and what an old or failing producer gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import dlx
import pytest
from support.dlpack_abi import (
    DLPACK_FLAG_BITMASK_IS_COPIED,
    DLPACK_FLAG_BITMASK_READ_ONLY,
    capsule_name,
    exported,
)
from support.dlx_producers import Maker, every_producer
from support.fake_producers import OldProducer, Producer, Refusing

NAMES = {False: b"dltensor", True: b"dltensor_versioned"}


class DeviceRefusing(Producer):
    """A producer whose `__dlpack_device__` raises `error`."""

    error: BaseException

    def __dlpack_device__(self) -> NoReturn:
        """Raise."""
        raise self.error


def elsewhere() -> DeviceRefusing:
    """Make a tensor that has to say where it is."""
    return DeviceRefusing(device=(2, 0))


class Custom(Exception):
    """An exception that dlx cannot know."""


def new_old_class() -> type[Producer]:
    """Make a class without a past: dlx remembers what a class understands."""
    return type("Old", (OldProducer,), {})


# dlx as the producer.


@every_producer
@pytest.mark.parametrize(
    ("max_version", "versioned"),
    [
        (None, False),
        ((0, 0), False),
        ((0, 8), False),
        ((0, 99), False),
        ((1, 0), True),
        ((1, 3), True),
        ((1, 99), True),
        ((2, 0), True),
        ((100, 3), True),
    ],
)
def test_max_version_decides_between_the_two_capsules(
    make: Maker, max_version: tuple[int, int] | None, versioned: bool
) -> None:
    """R22 to R25; dlx serves major version 0 too, so R26 has no case."""
    capsule = make(Producer()).__dlpack__(max_version=max_version)
    assert capsule_name(capsule) == NAMES[versioned]


@every_producer
@pytest.mark.parametrize("max_version", [(1, 0), (1, 3), (1, 99), (2, 0)])
def test_the_version_in_the_struct_is_the_one_that_dlx_writes(
    make: Maker, max_version: tuple[int, int]
) -> None:
    """R27: not the one asked for, nor the one imported."""
    producer = make(Producer(version=(1, 1)))
    version = exported(producer, max_version=max_version).version
    assert (version.major, version.minor) == (1, 3)


@every_producer
def test_positional_arguments_are_refused(make: Maker) -> None:
    """R19: all four are keywords."""
    with pytest.raises(TypeError):
        make(Producer()).__dlpack__(None)


@every_producer
def test_every_keyword_may_be_present(make: Maker) -> None:
    """R20: a TypeError would say that dlx is an old producer."""
    absent = dict.fromkeys(("stream", "max_version", "dl_device", "copy"))
    assert capsule_name(make(Producer()).__dlpack__(**absent)) == b"dltensor"


# dlx as the consumer: the version in the struct.


@pytest.mark.parametrize("version", [(1, 0), (1, 2), (1, 3), (1, 4), (1, 2**32 - 1)])
def test_every_minor_version_of_major_1_is_read(version: tuple[int, int]) -> None:
    """R30: with the right elements."""
    tensor = dlx.from_dlpack(Producer(version=version))
    assert tensor.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("version", [(0, 0), (0, 8), (2, 0), (2, 3), (2**32 - 1, 0)])
def test_another_major_version_is_refused_though_max_version_was_passed(
    version: tuple[int, int],
) -> None:
    """R28, R29: by a producer that ignores `max_version`; the deleter is called."""
    producer = Producer(version=version)
    with pytest.raises(BufferError, match=rf"version {version[0]}\.{version[1]}"):
        dlx.from_dlpack(producer)
    assert producer.requests[0]["max_version"] == (1, 3)
    # One that fails where the device was not asked first is asked in full.
    assert producer.deleted == len(producer.requests)


@pytest.mark.parametrize("versioned", [True, False])
def test_a_producer_may_answer_with_either_capsule(versioned: bool) -> None:
    """R34: whichever was asked for."""
    tensor = dlx.from_dlpack(Producer(versioned=versioned))
    assert tensor.numpy()[1, 2] == 5


def test_an_old_producer_may_answer_with_a_versioned_capsule() -> None:
    """R34: though it knows no `max_version`."""

    class Mixed(OldProducer):
        def __dlpack__(self, *, stream: Any = None) -> Any:  # type: ignore[override]
            return self.capsule(versioned=True)

    assert dlx.from_dlpack(Mixed()).numpy()[1, 2] == 5


# dlx as the consumer: what it asks, and asks again.


def test_the_first_request_names_the_newest_version_and_nothing_else() -> None:
    """R32: `max_version=(1, 3)` is the only keyword."""
    producer = Producer()
    dlx.from_dlpack(producer)
    assert producer.requests == [{"max_version": (1, 3)}]


def test_an_old_producer_is_asked_again_without_the_new_keywords() -> None:
    """R32: after its TypeError."""
    producer = new_old_class()()
    assert dlx.from_dlpack(producer).numpy()[1, 2] == 5
    assert producer.requests == [{}]


def test_an_old_producer_still_gets_the_stream() -> None:
    """R32, R84: which is older than the new keywords."""
    producer = new_old_class()(device=(2, 0))
    dlx.from_dlpack(producer)
    assert producer.requests == [{"stream": 1}]


class Counting(Producer):
    """An old producer in disguise: it takes any keyword and refuses the new ones."""

    def __dlpack__(self, **keywords: Any) -> Any:
        """Record the call, whatever comes of it."""
        self.calls.append(("__dlpack__", keywords))
        if new := keywords.keys() - {"stream"}:
            raise TypeError(f"f() got an unexpected keyword argument '{min(new)}'")
        return self.capsule(versioned=False)


def test_a_wrapper_that_passes_the_keywords_on_to_an_old_producer_is_asked_again() -> (
    None
):
    """R32: the TypeError comes from a Python frame, but is about the keywords."""
    producer = type("Wrapper", (Counting,), {})()
    dlx.from_dlpack(producer)
    assert producer.requests == [{"max_version": (1, 3)}, {}]


def test_what_one_object_understands_says_nothing_of_another() -> None:
    """R32: a class that forwards has old objects and new ones."""

    class Forwarding(Producer):
        old = False

        def __dlpack__(self, **keywords: Any) -> Any:
            if self.old and "max_version" in keywords:
                raise TypeError("f() got an unexpected keyword argument 'max_version'")
            return super().__dlpack__(**keywords)

    for _ in range(3):
        old, new = Forwarding(), Forwarding(flags=DLPACK_FLAG_BITMASK_READ_ONLY)
        old.old = True
        assert "maybe" in repr(dlx.from_dlpack(old))
        assert "maybe" not in repr(dlx.from_dlpack(new))
        assert (old.asked, new.asked) == ({}, {"max_version": (1, 3)})


@pytest.mark.parametrize(
    "error",
    [
        TypeError("unhashable type: 'list'"),
        TypeError("helper() got an unexpected keyword argument 'axis'"),
    ],
    ids=str,
)
def test_any_type_error_asks_again_and_stays_if_that_fails_too(
    error: TypeError,
) -> None:
    """R32, R60: as NumPy, torch, JAX and tvm-ffi do, whatever its text says."""
    producer = type("Failing", (Refusing,), {})()
    producer.error = error
    with pytest.raises(TypeError) as caught:
        dlx.from_dlpack(producer)
    assert caught.value is error
    assert producer.requests == [{"max_version": (1, 3)}, {}]


def test_an_old_producer_that_refuses_says_why() -> None:
    """R32, R60: that it does not know the keyword is only the context."""

    class Old(Producer):
        def __dlpack__(self, *, stream: Any = None) -> Any:  # type: ignore[override]
            raise BufferError("not describable")

    with pytest.raises(BufferError, match=r"^not describable$") as caught:
        dlx.from_dlpack(Old())
    assert "max_version" in str(caught.value.__context__)


def test_a_new_producer_with_a_type_error_of_its_own_says_what_it_is() -> None:
    """R32, R60: it cannot be called without the keyword, so the first answer counts."""

    class New(Producer):
        def __dlpack__(self, *, max_version: Any) -> Any:  # type: ignore[override]
            raise TypeError("of its own")

    with pytest.raises(TypeError, match=r"^of its own$"):
        dlx.from_dlpack(New())


def test_a_method_that_cannot_be_called_at_all_raises_its_own_error() -> None:
    """R60: nothing was asked for that an old producer could not know."""

    class Demanding(Producer):
        def __dlpack__(self, needed: Any) -> Any:  # type: ignore[override]
            raise AssertionError("called")

    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        dlx.from_dlpack(Demanding())


@pytest.mark.parametrize("make", [Refusing, elsewhere])
@pytest.mark.parametrize(
    "error",
    [
        BufferError("not describable"),
        MemoryError("full"),
        RuntimeError("broken"),
        AttributeError("inner"),
        Custom("own"),
        KeyboardInterrupt(),
    ],
    ids=repr,
)
def test_the_exception_of_a_producer_passes_unchanged(
    make: Callable[[], Refusing | DeviceRefusing], error: BaseException
) -> None:
    """R60: the very object that was raised."""
    producer = make()
    producer.error = error
    with pytest.raises(type(error)) as caught:
        dlx.from_dlpack(producer)
    assert caught.value is error


# dlx as the consumer: what an old producer cannot do.


def test_a_copy_of_an_old_producers_tensor_is_made_by_dlx() -> None:
    """R33, R59: it cannot be asked for one."""
    producer = new_old_class()()
    tensor = dlx.from_dlpack(producer, copy=True)
    tensor.numpy()[:] = -1
    assert tensor.is_copied
    assert list(producer.memory[:6]) == [0, 1, 2, 3, 4, 5]


def test_an_old_producer_shares_its_memory_where_no_copy_is_allowed() -> None:
    """R33: the legacy capsule cannot say that it is a copy."""
    producer = new_old_class()()
    assert dlx.from_dlpack(producer, copy=False).data_ptr == producer.data


def test_a_copy_that_only_an_old_producer_could_make_is_refused() -> None:
    """R33: memory that dlx cannot read."""
    producer = new_old_class()(device=(2, 0))
    with pytest.raises(BufferError, match="a TypeError for copy"):
        dlx.from_dlpack(producer, copy=True)
    assert producer.requests == []


@pytest.mark.parametrize("used_before", [False, True])
def test_another_device_is_refused_where_the_producer_is_old(used_before: bool) -> None:
    """R33, R57: also when dlx remembers that it is."""
    producer = new_old_class()()
    if used_before:
        dlx.from_dlpack(producer)
    with pytest.raises(BufferError, match="a TypeError for dl_device"):
        dlx.from_dlpack(producer, device="cuda:0")


def test_another_device_without_a_copy_is_refused_as_a_copy() -> None:
    """R33, R58: whatever the producer is too old to know, this needs a copy."""
    with pytest.raises(dlx.CopyRefused):
        dlx.from_dlpack(new_old_class()(), device="cuda:0", copy=False)


def test_an_old_producers_own_device_may_be_asked_for() -> None:
    """R33, R56: it need not be asked for it."""
    producer = new_old_class()()
    assert dlx.from_dlpack(producer, device="cpu").device == "cpu"


def test_a_class_whose_second_call_failed_too_is_not_taken_for_an_old_one() -> None:
    """R32: only an answer shows that the new keywords were the trouble."""

    def demanding(producer: Producer, needed: Any) -> Any:
        raise AssertionError("called")

    changing: Any = type("Changing", (Producer,), {"__dlpack__": demanding})
    with pytest.raises(TypeError, match="missing 1 required"):
        dlx.from_dlpack(changing())
    changing.__dlpack__ = Producer.__dlpack__
    producer = changing()
    dlx.from_dlpack(producer)
    assert producer.calls[-1] == ("__dlpack__", {"max_version": (1, 3)})


def test_a_move_as_a_copy_is_left_to_the_producer() -> None:
    """R59: a move copies already; dlx makes no second one."""
    moved = Producer(flags=DLPACK_FLAG_BITMASK_IS_COPIED)

    class Mover(Producer):
        def __dlpack__(self, **keywords: Any) -> Any:
            self.calls.append(("__dlpack__", keywords))
            return moved.capsule()

    producer = Mover(device=(2, 0))
    tensor = dlx.from_dlpack(producer, device="cpu", copy=True)
    assert producer.calls[-1][1]["copy"] is True
    assert tensor.data_ptr == moved.data
