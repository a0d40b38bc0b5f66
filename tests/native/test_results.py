"""Results in the library of an argument, by `dlpack_exchange_producer.h`."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import pytest
from support.fake_producers import Producer, c_function
from support.fake_table import table_class
from support.optional_libraries import requires

TO_PY = "managed_tensor_to_py_object_no_sync"
ALLOCATE = "managed_tensor_allocator"


def with_entry(name: str, how: str) -> Any:
    """Make a class whose table has this entry."""
    entries: dict[str, Any] = {name: c_function(how)}
    return table_class(**entries)


def test_a_result_is_of_the_library_of_its_like(image: Any) -> None:
    """R130: by to_py of its table."""
    fake = table_class()
    made = image.import_like(np.arange(6, dtype="f4").reshape(2, 3), fake())
    assert type(made) is fake
    assert (made.shape, made.strides) == ([2, 3], [3, 1])


def test_a_result_of_numpy_is_an_array(image: Any) -> None:
    """By from_dlpack of its namespace."""
    x = np.arange(6, dtype="f4").reshape(2, 3)
    scaled = image.scale(x, 2)
    assert type(scaled) is np.ndarray
    np.testing.assert_array_equal(scaled, 2 * x)
    assert scaled.flags.writeable


def test_the_function_of_a_library_is_looked_up_once(image: Any) -> None:
    """`__array_namespace__` of NumPy imports modules at each call."""

    asked = []

    class Own(np.ndarray):
        def __array_namespace__(self, **_: Any) -> Any:
            asked.append(self)
            return np

    x = np.ones(3, "f4").view(Own)
    for _ in range(5):
        image.scale(x, 2)
    assert len(asked) == (5 if image.limited else 1)  # there, types have no number


def test_another_class_has_another_function(image: Any) -> None:
    """What is remembered of a type ends with the type's state."""
    seen = []

    class Space:
        def from_dlpack(self, x: Any) -> Any:
            seen.append(self)
            return np.from_dlpack(x)

    one, other = Space(), Space()
    own = type("Own", (np.ndarray,), {"__array_namespace__": lambda self: one})
    x: Any = np.ones(3, "f4").view(own)
    image.scale(x, 2)
    own.__array_namespace__ = lambda self: other  # type: ignore[attr-defined]
    image.scale(x, 2)
    assert seen == [one, other]


def test_without_a_namespace_the_module_is_asked(image: Any) -> None:
    """The first part of the name of the class's module."""

    class Own(Producer):
        __module__ = "numpy.ma"

    assert type(image.import_like(np.ones(3), Own())) is np.ndarray


def test_without_a_like_a_result_exports_itself(image: Any) -> None:
    """`dlx_object`: nothing but the protocol."""
    made = image.import_like(np.arange(3.0), None)
    assert type(made).__name__ == "Tensor"
    assert np.from_dlpack(made).tolist() == [0, 1, 2]


@pytest.mark.parametrize("how", ["fail_without_exception", "fail_with_value_error"])
def test_a_library_that_fails_and_deletes_nothing_leaks_nothing(
    image: Any, how: str
) -> None:
    """R131: the tensor is deleted, once."""
    like = with_entry(TO_PY, how)()
    source = Producer()
    with pytest.raises((BufferError, ValueError), match=r"fail|fake"):
        image.import_like(source, like)
    assert source.deleted == 1


def test_a_library_that_fails_and_deletes_is_believed(image: Any) -> None:
    """R131: the tensor is not deleted again."""
    like = with_entry(TO_PY, "delete_and_fail")()
    source = Producer()
    with pytest.raises((BufferError, ValueError, RuntimeError)):
        image.import_like(source, like)
    assert source.deleted == 1


def test_a_library_without_a_function_gets_nothing(image: Any) -> None:
    """R8: the tensor is deleted, and what was raised stays."""

    class Own(Producer):
        def __array_namespace__(self) -> Any:
            raise KeyError("no namespace")

    source = Producer()
    with pytest.raises(KeyError, match="no namespace"):
        image.import_like(source, Own())
    assert source.deleted == 1


def test_memory_comes_from_the_allocator_of_the_library(image: Any) -> None:
    """R134, R138."""
    fake = table_class()
    x = fake(shape=(2, 3))
    scaled = image.scale(x, 3)
    assert type(scaled) is fake
    assert list(np.from_dlpack(scaled).ravel()) == [0, 3, 6, 9, 12, 15]


def test_an_allocator_that_says_nothing_is_named(image: Any) -> None:
    """R136."""
    like = with_entry(ALLOCATE, "fail_without_exception")(shape=(2, 3))
    with pytest.raises(BufferError, match=r"the allocator of <class .*> failed"):
        image.scale(like, 3)


def test_memory_of_the_cpu_is_aligned(image: Any) -> None:
    """R96."""
    x = np.ones((5, 7), "f4")
    for _ in range(10):
        assert image.look(image.scale(x, 2))[0] % 256 == 0


def test_what_is_given_away_is_not_kept(image: Any) -> None:
    """R8, R130."""
    x = np.ones(3, "f4")
    count = sys.getrefcount(x)
    results = [image.import_like(x, like) for like in (x, None, table_class()())]
    assert sys.getrefcount(x) == count + 3
    del results
    gc.collect()
    assert sys.getrefcount(x) == count


def test_an_allocator_may_speak_while_it_is_detached(image: Any) -> None:
    """R135, R136: what it says is the exception."""
    x = with_entry(ALLOCATE, "fail_detached")(shape=(2, 3))
    with pytest.raises(MemoryError, match=r"^there is none"):
        image.scale(x, 2)


def test_a_result_that_loses_bits_is_refused(image: Any) -> None:
    """`jax.numpy.from_dlpack` gives the lower halves of int64."""
    jnp = requires("jax").numpy
    like = jnp.ones(2)
    for dtype in ("i8", "f8", "c16"):
        with pytest.raises(BufferError, match=r"the result is .* took it as dtype"):
            image.import_like(np.ones(2, dtype), like)
    assert image.import_like(np.ones(2, "i4"), like).dtype == "int32"


def test_a_library_that_takes_no_results_is_named(image: Any) -> None:
    """Its module has no from_dlpack."""
    like = requires("pyarrow").array([1.0])
    with pytest.raises(BufferError, match=r"'pyarrow'.* has no from_dlpack, so no r"):
        image.import_like(np.ones(3), like)
