"""What has only `__dlpack__`, with nothing asked of it but the tensor.

NumPy takes nothing but the CPU, so what it gets is exported at once, and tells where it
is; for all others dlx first asks where the tensor is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pytest
import tvm_ffi
from support.dlpack_abi import (
    DLPACK_FLAG_BITMASK_IS_COPIED,
    DLPACK_FLAG_BITMASK_READ_ONLY,
)
from support.dlx_producers import Failure
from support.fake_producers import ADDRESS, OldProducer, Producer

IN_FULL = ["__dlpack_device__", "__dlpack__"]
AT_ONCE = ["__dlpack__"]


def to_numpy(producer: Any) -> Any:
    """Give the producer to NumPy."""
    return dlx.convert(producer, np.ndarray)


def to_tvm_ffi(producer: Any) -> Any:
    """Give the producer to a library with a table."""
    return dlx.convert(producer, tvm_ffi.Tensor)


CALLED = {dlx.from_dlpack: IN_FULL, to_numpy: AT_ONCE, to_tvm_ffi: IN_FULL}

every_way = pytest.mark.parametrize("take", CALLED)


def settled(base: type[Any] = Producer, **attributes: Any) -> Any:
    """Make a class all of whose tensors were on the CPU."""
    cls: Any = type("Settled", (base,), attributes)
    for _ in range(100):
        dlx.from_dlpack(cls())
    return cls


@every_way
def test_the_first_tensor_of_a_type(take: Callable[[Any], Any]) -> None:
    """R32, R64, R71: what is asked, in which order, with which keywords."""
    producer = type("Young", (Producer,), {})()
    take(producer)
    assert producer.called == CALLED[take]
    assert producer.asked == {"max_version": (1, 3)}


@every_way
def test_a_type_is_asked_the_same_after_many_tensors_on_the_cpu(
    take: Callable[[Any], Any],
) -> None:
    """R32, R71: what an object is asked does not depend on earlier ones."""
    producer = settled()()
    take(producer)
    assert producer.called == CALLED[take]
    assert producer.asked == {"max_version": (1, 3)}


@pytest.mark.parametrize("device", [(2, 0), (10, 1), (13, 0), (3, 0), (8, 0)])
def test_a_tensor_that_is_elsewhere_is_exported_once(device: tuple[int, int]) -> None:
    """R83, R84: with a stream where the device has them."""
    producer = settled()(data=ADDRESS, device=device)
    assert dlx.from_dlpack(producer).device == dlx.Device(device)
    assert producer.called == IN_FULL
    assert ("stream" in producer.asked) == (device[0] in (2, 10, 13))
    assert len(producer.exports) == 1


@every_way
@pytest.mark.parametrize("of", [settled, lambda: type("Young", (Producer,), {})])
def test_a_tensor_that_is_refused_is_exported_once(
    take: Callable[[Any], Any], of: Callable[[], Any]
) -> None:
    """R11, R88: whatever tensors of its type there were before."""
    producer = of()(shape=(-1,), strides=(1,))
    with pytest.raises(BufferError, match="-1"):
        take(producer)
    assert (len(producer.exports), producer.deleted) == (1, 1)


def test_numpy_does_not_get_a_tensor_that_is_elsewhere() -> None:
    """R57: the capsule is dropped, the object asked in full."""
    producer = Producer(data=ADDRESS, device=(2, 0))
    with pytest.raises(BufferError, match="the tensor is on cuda:0"):
        dlx.convert(producer, np.ndarray)
    assert producer.called == AT_ONCE + IN_FULL
    assert producer.deleted == len(producer.exports)


def test_numpy_gets_at_once_what_must_not_be_copied() -> None:
    """R37, R71: a producer need not know copy=; what it has copied is refused."""
    producer = Producer()
    shared = dlx.convert(producer, np.ndarray, copy=False)
    assert producer.called == AT_ONCE
    assert producer.asked == {"max_version": (1, 3)}
    assert shared.flags.writeable
    copying = Producer(flags=DLPACK_FLAG_BITMASK_IS_COPIED)
    with pytest.raises(BufferError, match="copy"):
        dlx.convert(copying, np.ndarray, copy=False)
    assert copying.deleted == len(copying.exports)


@pytest.mark.parametrize(
    "asked", [{"device": "cpu"}, {"copy": True}, {"copy": False}, {"stream": -1}]
)
def test_whoever_asks_for_more_has_the_type_asked_in_full(asked: Any) -> None:
    """R64, R70: for a device, a copy or a stream."""
    producer = settled()()
    dlx.from_dlpack(producer, **asked)
    assert producer.called == IN_FULL


@every_way
def test_a_capsule_that_is_refused_is_not_made_up_for_by_an_array(
    take: Callable[[Any], Any],
) -> None:
    """R31: what `__dlpack__` describes wrongly is an error, whatever else there is."""

    class Whole:
        """A column of numbers, as far as its other attributes say."""

        null_count, dtype = 0, "float64"

        def __array__(self, *_: Any, **__: Any) -> Any:
            return np.zeros(3)

        def __dlpack__(self, **_: Any) -> Any:
            return Producer(shape=(-1,), strides=(1,)).capsule()

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    with pytest.raises(BufferError, match="-1"):
        take(Whole())


@every_way
def test_an_old_type_is_asked_again_without_keywords(
    take: Callable[[Any], Any],
) -> None:
    """R32: after its TypeError."""
    producer = OldProducer()
    take(producer)
    assert producer.calls[-1] == ("__dlpack__", {})


@every_way
@pytest.mark.parametrize("error", [Failure("own"), BufferError(), KeyboardInterrupt()])
def test_what_the_producer_raises_is_passed_on_and_a_new_type_not_asked_again(
    take: Callable[[Any], Any], error: BaseException
) -> None:
    """R60: anything but a TypeError of an old producer."""

    class Refusing(Producer):
        def __dlpack__(self, **keywords: Any) -> Any:
            self.calls.append(("__dlpack__", keywords))
            raise error

    producer = type("Young", (Refusing,), {})()
    with pytest.raises(type(error)) as caught:
        take(producer)
    assert caught.value is error
    assert producer.called == CALLED[take]


@every_way
@pytest.mark.parametrize("error", [Failure("own"), BufferError(), KeyboardInterrupt()])
def test_what_the_producer_raises_is_passed_on_by_a_type_asked_first(
    take: Callable[[Any], Any], error: BaseException
) -> None:
    """R60: by a type that worked until then."""

    def refuse(self: Any, **keywords: Any) -> Any:
        raise error

    cls = settled()
    cls.__dlpack__ = refuse
    with pytest.raises(type(error)) as caught:
        take(cls())
    assert caught.value is error


@every_way
def test_an_object_that_hides_the_method_of_its_type_is_one_without_it(
    take: Callable[[Any], Any],
) -> None:
    """R61: the method is looked up on the object."""

    class Hiding(Producer):
        def __getattribute__(self, name: str) -> Any:
            if name == "__dlpack__":
                raise AttributeError(name)
            return super().__getattribute__(name)

    with pytest.raises((AttributeError, TypeError), match="has no __dlpack__"):
        take(Hiding())


@every_way
def test_a_type_that_lost_the_method_is_one_without_it(
    take: Callable[[Any], Any],
) -> None:
    """R61: after it had worked."""

    cls: Any = type(
        "Losing",
        (),
        {
            "__dlpack__": lambda _, **__: Producer().capsule(),
            "__dlpack_device__": lambda _: (1, 0),
        },
    )
    take(cls())
    del cls.__dlpack__
    with pytest.raises((AttributeError, TypeError), match="has no __dlpack__"):
        take(cls())


@every_way
def test_what_is_no_capsule_is_refused(take: Callable[[Any], Any]) -> None:
    """R10: the error names what was returned."""

    class Lying(Producer):
        def __dlpack__(self, **keywords: Any) -> Any:
            return b"bytes"

    with pytest.raises(TypeError, match="returned bytes, not a capsule"):
        take(Lying())


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"versioned": False},
        {"strides": None},
        {"versioned": False, "strides": None, "shape": (2, 3, 4)},
        {"byte_offset": 8},
        {"strides": (1, 2)},
        {"shape": (), "strides": None},
        {"shape": (2, 0)},
        {"device": (1, 7)},
    ],
)
def test_numpy_gets_the_elements_of_either_capsule_and_lets_them_go_once(
    fields: Any,
) -> None:
    """R8, R34, R90, R95: as `from_dlpack` reads them."""
    producer, other = Producer(**fields), Producer(**fields)
    array = dlx.convert(producer, np.ndarray)
    assert producer.called == AT_ONCE
    np.testing.assert_array_equal(array, np.asarray(dlx.from_dlpack(other)))
    assert producer.deleted == 0
    view = array[...]
    del array
    assert producer.deleted == 0
    del view
    assert producer.deleted == 1


def test_numpy_gets_memory_that_is_read_only_as_such() -> None:
    """R42: `convert` makes a read-only array."""
    producer = Producer(flags=DLPACK_FLAG_BITMASK_READ_ONLY)
    assert not dlx.convert(producer, np.ndarray).flags.writeable


@every_way
@pytest.mark.parametrize(
    "fields", [{"version": (2, 0)}, {"shape": (-1,)}, {"dtype": (99, 0, 1)}]
)
def test_what_cannot_be_described_is_refused_and_let_go(
    take: Callable[[Any], Any], fields: Any
) -> None:
    """R12, R31, R88: by the deleter, once."""
    producer = Producer(**fields)
    with pytest.raises(BufferError):
        take(producer)
    assert producer.deleted == 1
