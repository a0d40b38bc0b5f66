"""What `dlpack_exchange.h` makes of `__dlpack__`, its capsules and its exceptions."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from support.dlpack_abi import managed_in, take
from support.fake_producers import OldProducer, Producer, Refusing, c_function


def test_the_first_request_is_versioned(image: Any) -> None:
    """R32, R71: without a stream, since nothing is on a device."""
    producer = Producer()
    image.look(producer)
    assert producer.asked == {"max_version": (1, 3)}


def test_a_producer_from_before_versions_is_asked_again(image: Any) -> None:
    """R32, R34."""
    producer = OldProducer()
    assert image.look(producer)[-1] == 1
    assert (producer.requests, producer.deleted) == ([{}], 1)


def test_a_python_function_that_names_the_keyword_is_asked_again(image: Any) -> None:
    """R32: the TypeError comes from below the method."""

    class Wrapped(OldProducer):
        def __dlpack__(self, **keywords: Any) -> Any:
            return super().__dlpack__(**keywords)

    producer = Wrapped()
    image.look(producer)
    assert producer.requests == [{}]


def test_a_type_error_inside_the_producer_stays(image: Any) -> None:
    """R32, R60: it is not about the call."""
    calls = []

    class Broken:
        def __dlpack__(self, **keywords: Any) -> Any:
            calls.append(keywords)
            return len(3)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="has no len"):
        image.look(Broken())
    assert len(calls) == 1


@pytest.mark.parametrize("error", [ValueError, BufferError, AttributeError, KeyError])
def test_an_exception_of_the_producer_stays(image: Any, error: type[Exception]) -> None:
    """R60."""
    producer = Refusing()
    producer.error = error("its own")
    with pytest.raises(error, match="its own") as raised:
        image.look(producer)
    assert raised.value is producer.error
    assert producer.called == ["__dlpack__"]


def test_the_deleter_is_called_once(image: Any) -> None:
    """R8, R18: whether the capsule's owner still has it or not."""
    for producer in (Producer(), Producer(versioned=False)):
        image.look(producer)
        assert producer.deleted == 1


def test_a_tensor_without_a_deleter_is_taken(image: Any) -> None:
    """R9."""
    for versioned in (True, False):
        producer = Producer(deleter=None, versioned=versioned)
        image.look(producer)
        del producer


def test_an_import_keeps_the_tensor_until_it_is_deleted(image: Any) -> None:
    """R8, R18."""
    for versioned in (True, False):
        producer = Producer(versioned=versioned)
        kept = image.import_like(producer, None)
        assert producer.deleted == 0
        del kept
        assert producer.deleted == 1


def test_another_major_version_is_deleted_and_not_read(image: Any) -> None:
    """R28, R29."""
    producer = Producer(version=(2, 0), shape=None, ndim=2)
    with pytest.raises(
        BufferError, match=r"^x: it came as DLPack 2\.0, expected is 1\.x$"
    ):
        image.look(producer)
    assert producer.deleted == 1


def test_a_later_minor_version_is_taken(image: Any) -> None:
    """R30."""
    assert image.look(Producer(version=(1, 9)))[1] == (2, 3)


def test_a_used_capsule_is_refused(image: Any) -> None:
    """R2."""

    class Twice(Producer):
        def __dlpack__(self, **keywords: Any) -> Any:
            capsule = super().__dlpack__(**keywords)
            take(capsule)
            return capsule

    with pytest.raises(
        BufferError, match="expected is a DLPack capsule that was not used"
    ):
        image.look(Twice())


@pytest.mark.parametrize("answer", [None, 1, "capsule"])
def test_what_is_no_capsule_is_refused(image: Any, answer: object) -> None:
    """R1."""

    class Answers:
        def __dlpack__(self, **_: Any) -> Any:
            return answer

    with pytest.raises(BufferError, match="expected is a DLPack capsule"):
        image.look(Answers())


@pytest.mark.parametrize("thing", [1, [1.0], "text", None])
def test_what_is_no_tensor_is_named_in_a_type_error(image: Any, thing: object) -> None:
    """The argument's name comes first."""
    with pytest.raises(
        TypeError, match=r"^x: it is of <class .*, expected is a tensor"
    ):
        image.look(thing)


def test_a_class_that_describes_itself_is_named_in_its_words(image: Any) -> None:
    """In Python: it runs without the exception that is replaced."""

    class Named(type):
        def __repr__(cls) -> str:
            return "".join(["a ", "class"])

    class Own(metaclass=Named):
        pass

    with pytest.raises(TypeError, match=r"^x: it is of a class, expected is a tensor"):
        image.look(Own())


def test_an_exception_of_a_deleter_is_unraisable(
    image: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R5, R9: it neither is the call's, nor replaces the call's."""
    told: list[str] = []
    monkeypatch.setattr(
        sys, "unraisablehook", lambda failure: told.append(str(failure.exc_value))
    )
    deleter = c_function("delete_with_error")
    image.look(right := Producer(deleter=deleter), 0, (2, 32, 1))
    wrong = Producer(dtype=(2, 64, 1), deleter=deleter)
    with pytest.raises(TypeError, match="dtype is float64, expected is float32"):
        image.look(wrong, 0, (2, 32, 1))
    assert (right.deleted, wrong.deleted) == (1, 1)
    assert told == ["the deleter's", "the deleter's"]


def test_an_unversioned_capsule_becomes_a_read_only_tensor(image: Any) -> None:
    """R43: nothing says that it may be written to."""
    kept = image.import_like(OldProducer(), None)
    assert managed_in(kept.__dlpack__(max_version=(1, 3))).flags == 1
    with pytest.raises(BufferError, match="read-only memory"):
        kept.__dlpack__()
