"""What dlx remembers of a type must not decide about an object (invariant S6).

Each test imports one instance of a class many times, then one that differs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import dlx
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from support.dlpack_abi import DLPACK_FLAG_BITMASK_READ_ONLY
from support.fake_producers import ADDRESS, OldProducer, Producer
from support.fake_table import (
    table_class,
    without_protocol,
)
from support.short_lived_classes import made
from support.static_types import needs_headers, static_types

OFTEN = 200


class Proxy:
    """A class whose instances forward every attribute of the inner object."""

    def __init__(self, inner: Any) -> None:
        """Keep the object."""
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        """Forward it."""
        return getattr(self.inner, name)


class Forwarder:
    """Like pyarrow's `DLPackForwarder` and torch's `TensorDLPackWrapper` in tests."""

    def __init__(self, inner: Any) -> None:
        """Keep the object."""
        self.inner = inner

    def __dlpack__(self, **keywords: Any) -> Any:
        """Forward it."""
        return self.inner.__dlpack__(**keywords)

    def __dlpack_device__(self) -> Any:
        """Forward it."""
        return self.inner.__dlpack_device__()


every_wrapper = pytest.mark.parametrize("base", [Proxy, Forwarder])
every_way = pytest.mark.parametrize(
    "take", [dlx.from_dlpack, lambda x: dlx.from_dlpack(dlx.convert(x, np.ndarray))]
)


@every_way
@every_wrapper
def test_an_old_producer_takes_no_protection_from_a_new_one(
    base: type[Any], take: Callable[[Any], Any]
) -> None:
    """R32, R42: memory of Arrow stays as it is."""
    wrap = made(base)
    for _ in range(OFTEN):
        take(wrap(OldProducer()))
    read_only = Producer(flags=DLPACK_FLAG_BITMASK_READ_ONLY)
    assert take(wrap(read_only)).readonly
    assert read_only.asked == {"max_version": (1, 3)}


@every_wrapper
def test_memory_of_arrow_is_not_written_to_after_an_old_producer(
    base: type[Any],
) -> None:
    """R42: the same class has held a producer without flags."""
    wrap = made(base)
    dlx.convert(wrap(OldProducer()), np.ndarray)
    array = dlx.convert(wrap(pa.array([1.0, 2.0])), np.ndarray)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 99


@every_way
@every_wrapper
def test_a_new_producer_lends_no_keywords_to_an_old_one(
    base: type[Any], take: Callable[[Any], Any]
) -> None:
    """R32: the same class has held a producer with them."""
    wrap = made(base)
    for _ in range(OFTEN):
        take(wrap(Producer()))
    assert take(wrap(OldProducer())).shape == (2, 3)


@every_wrapper
@pytest.mark.parametrize("device", [(2, 0), (10, 1)])
def test_tensors_on_the_cpu_do_not_say_where_the_next_one_is(
    base: type[Any], device: tuple[int, int]
) -> None:
    """R83, R84: whatever was guessed, it is exported for the stream."""
    wrap = made(base)
    for _ in range(OFTEN):
        dlx.from_dlpack(wrap(Producer()))
    first, second = (Producer(data=ADDRESS, device=device) for _ in range(2))
    for producer in (first, second):
        tensor = dlx.from_dlpack(wrap(producer))
        assert tensor.device == dlx.Device(device)
        assert producer.called[-2:] == ["__dlpack_device__", "__dlpack__"]
        assert "stream" in producer.requests[-1]
        assert [export.deleted for export in producer.exports[:-1]] == [1] * (
            len(producer.exports) - 1
        )
        assert producer.exports[-1].deleted == 0
    assert len(second.exports) == 1


@pytest.mark.parametrize(
    "error", [BufferError("own"), TypeError("own"), ValueError("own")], ids=repr
)
def test_whether_an_object_says_where_it_is_matters_only_elsewhere(
    error: Exception,
) -> None:
    """R60, R64: the capsule of a tensor on the CPU says all, asked first or last."""

    class Failing(Producer):
        fails = False

        def __dlpack_device__(self) -> Any:
            if self.fails:
                raise error
            return super().__dlpack_device__()

    for often in (0, OFTEN):
        cls: Any = made(Failing)
        for _ in range(often):
            dlx.from_dlpack(cls())
        here, there = cls(), cls(data=ADDRESS, device=(2, 0))
        here.fails = there.fails = True
        assert dlx.from_dlpack(here).data_ptr == here.data
        with pytest.raises(type(error)) as caught:
            dlx.from_dlpack(there)
        assert caught.value is error
        assert there.deleted == len(there.exports)


def test_an_export_that_needs_a_stream_gets_one_after_many_without() -> None:
    """R83: what fails without a stream is asked in full."""

    class Strict(Producer):
        def __dlpack__(self, **keywords: Any) -> Any:
            if self.device[0] == 2 and "stream" not in keywords:
                raise BufferError("pass a stream")
            return super().__dlpack__(**keywords)

    for _ in range(OFTEN):
        dlx.from_dlpack(Strict())
    assert dlx.from_dlpack(Strict(data=ADDRESS, device=(2, 0))).device == "cuda:0"


@every_wrapper
def test_tensors_elsewhere_do_not_say_where_the_next_one_is(base: type[Any]) -> None:
    """R71: the same class, on CUDA before and on the CPU now."""
    wrap = made(base)
    for _ in range(OFTEN):
        dlx.from_dlpack(wrap(Producer(data=ADDRESS, device=(2, 0))))
    producer = Producer()
    assert dlx.from_dlpack(wrap(producer)).device == "cpu"
    assert producer.asked == {"max_version": (1, 3)}


def test_an_object_that_cannot_say_where_it_is_is_refused_whatever_came_before() -> (
    None
):
    """R64: the same class has held one that can."""

    class Silent(Producer):
        __dlpack_device__ = property()

    wrap = made(Proxy)
    for _ in range(OFTEN):
        dlx.from_dlpack(wrap(Producer()))
    with pytest.raises(AttributeError, match="has no __dlpack_device__"):
        dlx.from_dlpack(wrap(Silent()))


class Naming:
    """A class whose instances may name an object that has a table."""

    def __init__(self, named: Any) -> None:
        """Name it, or not."""
        if named is not None:
            self.__dlpack_c_exchange_api__ = named
        self.own = Producer()

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export what is its own."""
        return self.own.__dlpack__(**keywords)

    def __dlpack_device__(self) -> Any:
        """Say where that is."""
        return self.own.__dlpack_device__()


def hears(self: Any, **keywords: Any) -> Any:
    """Forward what is asked."""
    self.asked.append(keywords)
    return self.inner.__dlpack__(**keywords)


def of_its_own(x: Any) -> None:
    """Give an object a method that hears."""
    x.__dlpack__ = lambda **keywords: hears(x, **keywords)


LEARNING: dict[str, Callable[[Any], None]] = {
    "its class": lambda x: setattr(type(x), "__dlpack__", hears),
    "its code": lambda x: setattr(type(x).__dlpack__, "__code__", hears.__code__),
    "itself": of_its_own,
}


@every_way
@pytest.mark.parametrize("learn", LEARNING.values(), ids=LEARNING)
def test_a_method_that_had_not_heard_of_a_keyword_may_learn_it(
    learn: Callable[[Any], None], take: Callable[[Any], Any]
) -> None:
    """R32: what takes no `max_version` is not asked with it; what does, is."""

    class Learning(Forwarder):
        asked: ClassVar[list[dict[str, Any]]] = []

        def __dlpack__(self, stream: Any = None) -> Any:  # type: ignore[override]
            """Forward it, unversioned."""
            self.asked.append({})
            return self.inner.__dlpack__()

    for _ in range(OFTEN):
        take(Learning(Producer()))
    assert Learning.asked == [{}] * OFTEN
    x = Learning(Producer(flags=DLPACK_FLAG_BITMASK_READ_ONLY))
    learn(x)
    assert take(x).readonly
    assert "max_version" in x.asked[-1]


def test_an_attribute_that_fails_after_the_export_does_not_undo_it() -> None:
    """R32: only the two calls count."""

    class Failing(Forwarder):
        exported = False

        @property
        def __dlpack__(self) -> Any:
            """Forward it, unversioned, and fail from then on."""
            if self.exported:
                raise ValueError("read too often")
            return self.export

        def export(self, stream: Any = None) -> Any:
            """Export once."""
            self.exported = True
            return self.inner.__dlpack__()

    own = Producer()
    assert dlx.convert(Failing(own), np.ndarray).ctypes.data == own.data


@every_way
@pytest.mark.parametrize("often", ["without", "with"])
def test_whether_an_object_names_another_is_its_own_affair(
    often: str, take: Callable[[Any], Any]
) -> None:
    """docs/design.md, The way in: the attribute is asked of each instance."""
    cls, inner = made(Naming), without_protocol()()
    for _ in range(OFTEN):
        take(cls(inner if often == "with" else None))
    plain = cls(None)
    assert take(plain).data_ptr == plain.own.data
    assert take(cls(inner)).data_ptr == inner.data


@needs_headers
@every_way
@pytest.mark.parametrize("often", ["without", "with"])
@pytest.mark.parametrize("kind", ["asking", "open"])
def test_an_object_of_a_static_type_may_name_another(
    kind: str, often: str, take: Callable[[Any], Any]
) -> None:
    """docs/design.md, The way in: the type cannot change, what its objects have can."""
    _, asking, opened = static_types()
    inner = without_protocol()()

    def one(named: Any) -> tuple[Any, Naming]:
        own = Naming(named)
        if kind == "asking":
            return asking(own), own
        x = opened(own)
        if named is not None:
            x.__dlpack_c_exchange_api__ = named
        return x, own

    for _ in range(OFTEN):
        take(one(inner if often == "with" else None)[0])
    x, named = one(None)
    assert take(x).data_ptr == named.own.data
    assert take(one(inner)[0]).data_ptr == inner.data


@needs_headers
@every_way
def test_a_static_type_whose_objects_name_none_exports_what_they_are(
    take: Callable[[Any], Any],
) -> None:
    """After many, the next one is where it says."""
    plain, _, _ = static_types()
    for _ in range(OFTEN):
        own = Producer()
        assert take(plain(own)).data_ptr == own.data
    elsewhere = Producer(data=ADDRESS, device=(14, 0))
    assert dlx.from_dlpack(plain(elsewhere)).device == "oneapi:0"
    with pytest.raises(AttributeError, match="has no"):
        plain(own).__dlpack_c_exchange_api__ = elsewhere


@pytest.mark.parametrize("static", [False, True])
def test_other_devices_are_asked_of_each_object(static: bool) -> None:
    """docs/devices.md, The method: one instance has it, others of its class not."""
    base = Producer if not static else table_class()

    class Two(base):  # type: ignore[misc, valid-type]
        pass

    def names(x: Any) -> Any:
        return dlx.from_dlpack(x).device_aliases

    for _ in range(OFTEN):
        assert names(Two(data=ADDRESS, device=(14, 0))) == ()
    second = Two(data=ADDRESS, device=(14, 0))
    second.__dlpack_device_aliases__ = lambda: [(2, 0)]
    assert names(second) == (dlx.Device("cuda:0"),)
