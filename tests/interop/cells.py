"""One pair of libraries: the outcome of every case, and the expected one."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import dlx
import numpy as np

from .cases import (
    SIZE,
    Array,
    Case,
    expected_elements,
    is_protected,
    memory,
    ones_and_twos,
)
from .producers import Own, Producer
from .ways import (
    CHANGED,
    COPIED,
    ITSELF,
    MISCOUNTED,
    MISREAD,
    NOT_SENT,
    SHARED,
    UNPROTECTED,
    WITHOUT_COPY,
    WRONG,
    Consumer,
    Way,
)


class Cell(NamedTuple):
    """A case between two libraries, by one of the ways."""

    way: str
    case: str
    expected: str
    outcome: str


RIGHT = "right"
RATIO = "ratio"
DLX = "dlx"
"""The consumer of the first column: `dlx.from_dlpack` itself, and the way to it."""


def cases(producer: Producer) -> list[Case]:
    """Return every tensor that a library can make and dlx reads."""
    return [Case(dtype, "") for dtype in producer.dtypes.split()] + [
        Case("float32", layout) for layout in producer.layouts.split()
    ]


def make(producer: Producer, case: Case, flat: bool = False) -> Any:
    """Make the object of a case; with `flat`, a dtype's has one dimension."""
    if case.layout:
        return producer.of_layout(case.layout)
    return producer.of_dtype(case.dtype, flat)


# Producers


def row_major(shape: tuple[int, ...]) -> list[int]:
    """Return the strides of the contiguous layout."""
    return [int(np.prod(shape[n + 1 :])) for n in range(len(shape))]


def steps(shape: tuple[int, ...], strides: Any) -> list[int]:
    """Return the strides that are used: those of extents above 1."""
    if 0 in shape:
        return []
    return [step for extent, step in zip(shape, strides, strict=True) if extent > 1]


def wrong_in(producer: Producer, case: Case, x: Any, tensor: dlx.Tensor) -> str:
    """Return the names of what dlx sees differently from the library, or ""."""
    array = expected_elements(case, producer.flat)
    strides = [stride // array.itemsize for stride in array.strides]
    if not producer.views:
        strides = row_major(array.shape)
    readonly = producer.readonly == "all" or case.layout in producer.readonly.split()
    address = producer.address(x) if producer.address and array.size else None
    # dlx's own tensors hold arbitrary bytes; elements below a byte may be packed.
    any_bytes = isinstance(producer, Own) and not case.layout
    any_bytes = any_bytes or tensor.nbytes != array.nbytes
    checks = {
        "dtype": str(tensor.dtype) == case.dtype,
        "shape": tensor.shape == array.shape,
        "strides": steps(tensor.shape, tensor.strides) == steps(array.shape, strides),
        "read-only": is_protected(tensor) is readonly,
        "writable": tensor.readonly is (readonly or producer.unversioned),
        "address": address in (None, tensor.data_ptr),
        "elements": any_bytes or memory(tensor) == array.tobytes(),
    }
    return ", ".join(name for name, holds in checks.items() if not holds)


def imported(producer: Producer) -> Iterator[Cell]:
    """Import every tensor of a library with dlx."""
    for case in cases(producer):
        yield Cell(DLX, str(case), "", "")
        x = make(producer, case)
        tensor = dlx.from_dlpack(x)
        wrong = wrong_in(producer, case, x, tensor)
        yield Cell(DLX, str(case), SHARED, f"{WRONG} {wrong}" if wrong else SHARED)
    for dtype, error in producer.refused.items():
        yield Cell(DLX, dtype or "everything", "", "")
        x = producer.of_dtype(dtype or "float32", flat=False)
        yield Cell(DLX, dtype or "everything", error, refusal(x))


def refusal(x: object) -> str:
    """Return the name of the error that dlx raises, or of the dtype that it sees."""
    try:
        return str(dlx.from_dlpack(x).dtype)
    except Exception as error:
        return type(error).__name__


# Consumers


def usual(producer: Producer, consumer: Consumer) -> Case:
    """Return the case for the tests of lifetime and time."""
    layout = "1-d" if consumer.one_dimension or producer.flat else "row-major"
    if layout in producer.layouts.split():
        return Case("float32", layout)
    return Case(producer.dtypes.split()[0], "")


def outcome(
    consumer: Consumer, way: Way, case: Case, x: Any, tensor: dlx.Tensor, expected: str
) -> str:
    """Return the outcome of importing an object, which has this tensor."""
    try:
        taken = way.take(x)
        seen = consumer.see(taken)
    except Exception as error:
        # dlx raises a subclass if a copy would have helped.
        refused = expected == "BufferError" and isinstance(error, BufferError)
        return expected if refused else type(error).__name__
    if seen.dtype != tensor.dtype:
        return f"{MISREAD} as {seen.dtype}"
    if seen.shape != (tensor.shape if not consumer.flat else (tensor.size,)):
        return f"{MISREAD} as {seen.shape}"
    if memory(seen) != memory(tensor):
        return MISREAD
    if case.dtype == "float32":
        shown = consumer.values(taken)
        if not np.array_equal(shown.ravel(), np.asarray(tensor.numpy()).ravel()):
            return MISREAD
    # With copy=False it is the same memory as without.
    if way.name != WITHOUT_COPY and (wrong := miscounted(consumer, taken, tensor)):
        return wrong
    if tensor.size == 0:
        return SHARED
    if seen.data_ptr != tensor.data_ptr:
        return COPIED
    changes = is_protected(tensor) and taken is not x and consumer.writable(taken)
    return UNPROTECTED if changes else SHARED


def miscounted(consumer: Consumer, taken: Any, tensor: dlx.Tensor) -> str:
    """Let a library compute; return "" if the sum is right and the source unchanged."""
    if consumer.double is None or str(tensor.dtype) not in consumer.doubles.split():
        return ""
    sent = memory(tensor)
    numbers = np.asarray(tensor.numpy())
    truth = np.asarray(numbers + numbers)
    counted = consumer.see(consumer.double(taken))
    if counted.dtype != tensor.dtype or memory(counted) != truth.tobytes():
        return MISCOUNTED
    return "" if memory(tensor) == sent else CHANGED


def expectation(producer: Producer, consumer: Consumer, way: Way, x: Any) -> str:
    """Return the expected outcome; `convert` returns an instance of its target."""
    is_one = producer.name == consumer.name and hasattr(x, "__dlpack__")
    if is_one and way.name != ITSELF:
        return SHARED
    return consumer.expected(dlx.from_dlpack(x), way.rules)


def exchanged(producer: Producer, consumer: Consumer) -> Iterator[Cell]:
    """Send every tensor of one library to another, by every way."""
    for way in consumer.ways():
        for case in cases(producer):
            yield Cell(way.name, str(case), "", "")
            x = make(producer, case, consumer.one_dimension)
            expected = expectation(producer, consumer, way, x)
            if expected != NOT_SENT:
                found = outcome(consumer, way, case, x, dlx.from_dlpack(x), expected)
                yield Cell(way.name, str(case), expected, found)
            else:
                yield Cell(way.name, str(case), NOT_SENT, NOT_SENT)
        if way.name != WITHOUT_COPY:
            yield from lives(producer, consumer, way)


def lives(producer: Producer, consumer: Consumer, way: Way) -> Iterator[Cell]:
    """Test which side may die first, and take the time."""
    case = usual(producer, consumer)
    x = make(producer, case, consumer.one_dimension)
    if expectation(producer, consumer, way, x) not in (SHARED, COPIED, UNPROTECTED):
        return
    try:
        way.take(x)
    except Exception:
        return  # The cell of the case says so.
    for name, test in LIFETIMES.items():
        yield Cell(way.name, name, "", "")
        yield Cell(way.name, name, RIGHT, test(producer, consumer, way, case))
    yield Cell(way.name, RATIO, "", "")
    yield Cell(way.name, RATIO, "", ratio(consumer, way, x))


# Lifetimes


def watch(x: Any) -> Callable[[], Any]:
    """Return a function that returns the object while it lives, or None if unknown."""
    try:
        return weakref.ref(x)
    except TypeError:
        return lambda: None


def churn() -> None:
    """Overwrite memory that was freed."""
    for _ in range(100):
        np.full(SIZE, 77.0, dtype=np.float32)
        ones_and_twos("float64")


def as_sent(sent: Array, shown: Any) -> str:
    """Compare the elements with those that were sent."""
    same = np.array_equal(np.asarray(shown).ravel(), sent.ravel())
    return RIGHT if same else "wrong elements"


def end(alive: Callable[[], Any], so_far: str) -> str:
    """Add to the outcome whether the producer's object is still alive."""
    gc.collect()
    return so_far if alive() is None else f"{so_far}, kept alive"


def producer_first(producer: Producer, consumer: Consumer, way: Way, case: Case) -> str:
    """Release the producer's object before the consumer's."""
    x = make(producer, case, consumer.one_dimension)
    alive = watch(x)
    taken = way.take(x)
    del x
    gc.collect()
    churn()
    so_far = as_sent(expected_elements(case, producer.flat), consumer.values(taken))
    del taken
    return end(alive, so_far)


def consumer_first(producer: Producer, consumer: Consumer, way: Way, case: Case) -> str:
    """Release the consumer's object before the producer's."""
    x = make(producer, case, consumer.one_dimension)
    alive = watch(x)
    tensor = dlx.from_dlpack(x)
    taken = way.take(x)
    del taken
    gc.collect()
    churn()
    so_far = as_sent(expected_elements(case, producer.flat), tensor.numpy())
    del tensor, x
    return end(alive, so_far)


def thread(producer: Producer, consumer: Consumer, way: Way, case: Case) -> str:
    """Release the consumer's object, which is the last, on another thread."""
    x = make(producer, case, consumer.one_dimension)
    alive = watch(x)
    box = [way.take(x)]
    del x
    shown: list[str] = []

    def look() -> None:
        shown.append(
            as_sent(expected_elements(case, producer.flat), consumer.values(box[0]))
        )
        box.clear()
        gc.collect()

    other = threading.Thread(target=look)
    other.start()
    other.join()
    return end(alive, shown[0] if shown else "no answer")


LIFETIMES = {
    "producer dies first": producer_first,
    "consumer dies first": consumer_first,
    "dies on another thread": thread,
}


# Time


def best(call: Callable[[], object]) -> float:
    """Return the seconds of a call, the best of twenty."""
    rounds = max(1, int(1e-3 / max(once(call, 1), 1e-7)))
    return min(once(call, rounds) / rounds for _ in range(20))


def once(call: Callable[[], object], rounds: int) -> float:
    """Return the seconds that this many calls take."""
    start = time.perf_counter()
    for _ in range(rounds):
        call()
    return time.perf_counter() - start


def ratio(consumer: Consumer, way: Way, x: Any) -> str:
    """Return the time relative to the consumer's own import, or "" if it has none."""
    if not hasattr(x, "__dlpack__"):
        return ""  # MLX crashes on such objects.
    try:
        consumer.take(x)
    except Exception:
        return ""
    return f"{best(lambda: way.take(x)) / best(lambda: consumer.take(x)):.2f}"
