"""Leaks, threads and exceptions around calls by `dlpack_exchange.h`."""

from __future__ import annotations

import gc
import os
import sys
import threading
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from support.fake_producers import Producer
from support.fake_table import table_class
from support.libc import heap_growth, needs_heap_in_use

MAKE: dict[str, Callable[[], Any]] = {
    "array": lambda: np.ones((3, 4), "f4"),
    "many-dimensions": lambda: np.zeros((1,) * 12),
    "frozen": lambda: np.frombuffer(b"1234", "u1"),
}


@pytest.mark.parametrize("name", MAKE)
def test_nothing_leaks(image: Any, name: str) -> None:
    """R8: whether a call succeeds or fails."""
    x = MAKE[name]()

    def once() -> None:
        image.take(x, x, x)
        image.import_like(x, None)
        image.import_like(x, x)
        for bad in ([x, 1], [1], [x, np.array(["text"])]):
            try:  # pytest.raises keeps something of each
                image.take(*bad)
            except (TypeError, BufferError):
                continue
            raise AssertionError(bad)

    count = sys.getrefcount(x)
    tracemalloc.start()
    sizes = []
    for _ in range(12):  # the first round fills caches
        for _ in range(1000):
            once()
        gc.collect()
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    # A leak of one byte a call shows in every round, noise does not.
    assert min(after - before for before, after in pairwise(sizes)) < 1000
    assert sys.getrefcount(x) == count


@needs_heap_in_use
@pytest.mark.skipif("NATIVE_FLAGS" in os.environ, reason="a sanitizer has its own heap")
@pytest.mark.parametrize("name", MAKE)
def test_the_heap_of_c_does_not_grow(image: Any, name: str) -> None:
    """R8: what the headers allocate themselves, Python does not count."""
    x = MAKE[name]()

    def once() -> None:
        kept = image.import_like(x, None)
        kept.__dlpack__(max_version=(1, 3))
        kept.__dlpack__(max_version=(1, 3), copy=True)
        try:
            image.look(x, 0, (2, 1, 1))
        except TypeError:
            return
        raise AssertionError("it has no elements of one bit")

    assert heap_growth(once, 2000) < 16_000  # 8 bytes a call


def test_all_arguments_are_taken_or_none(image: Any) -> None:
    """R8: what was taken before the one that fails is released."""
    fake = table_class(dltensor_from_py_object_no_sync=None)
    good = [Producer(), fake(), Producer()]
    with pytest.raises(TypeError, match="expected is a tensor"):
        image.take(*good, 1)
    for producer in good:
        assert producer.deleted == len(producer.exports)


def test_a_table_that_goes_between_two_looks_is_asked_once(image: Any) -> None:
    """Each argument is taken once, whatever its class becomes meanwhile."""
    fake = table_class(dltensor_from_py_object_no_sync=None)

    class Changes(Producer):
        def __dlpack__(self, **keywords: Any) -> Any:
            if hasattr(fake, "__dlpack_c_exchange_api__"):
                del fake.__dlpack_c_exchange_api__
            return super().__dlpack__(**keywords)

    first, changes, last = fake(), Changes(), fake()
    image.take(first, changes, last)
    for producer in (first, changes, last):
        assert (len(producer.exports), producer.deleted) == (1, 1)


def test_threads_see_their_own_tensors(image: Any) -> None:
    """R145: with a cache that they share, or not."""
    fakes = [table_class() for _ in range(4)]
    xs: list[Any] = [np.ones((n, 4), "f4") for n in range(1, 5)]
    xs += [fake(shape=(n, 4)) for n, fake in enumerate(fakes, 5)]
    wrong = []

    def work() -> None:
        for _ in range(500):
            for x in xs:
                if image.look(x)[1] != tuple(x.shape):
                    wrong.append(x)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
