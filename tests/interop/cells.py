"""One pair of libraries: what comes of every case, and what should have."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import dlx
import numpy as np

from .cases import SIZE, Array, Case, expected_elements, memory, ones_and_twos
from .consumers import COPIED, MISREAD, NOT_SENT, SHARED, UNPROTECTED, Consumer
from .producers import Own, Producer


class Cell(NamedTuple):
    """A case between two libraries."""

    case: str
    expected: str
    outcome: str


RIGHT = "right"
LIFETIMES = ("producer dies first", "consumer dies first", "dies on another thread")
RATIO = "ratio"


def cases(producer: Producer) -> list[Case]:
    """Every tensor that a library can make and dlx reads."""
    return [Case(dtype, "") for dtype in producer.dtypes.split()] + [
        Case("float32", layout) for layout in producer.layouts.split()
    ]


def make(producer: Producer, case: Case, flat: bool = False) -> Any:
    """Make the object of a case; of one dimension if `flat`, where it is a dtype."""
    if case.layout:
        return producer.of_layout(case.layout)
    return producer.of_dtype(case.dtype, flat)


# Producers


def row_major(shape: tuple[int, ...]) -> list[int]:
    """Strides without gaps."""
    return [int(np.prod(shape[n + 1 :])) for n in range(len(shape))]


def steps(shape: tuple[int, ...], strides: Any) -> list[int]:
    """Strides of the dimensions in which a step is ever taken."""
    if 0 in shape:
        return []
    return [step for extent, step in zip(shape, strides, strict=True) if extent > 1]


def wrong_in(producer: Producer, case: Case, x: Any, tensor: dlx.Tensor) -> str:
    """Name what dlx sees otherwise than the library; "" where nothing is."""
    array = expected_elements(case, producer.flat)
    strides = [stride // array.itemsize for stride in array.strides]
    if not producer.views:
        strides = row_major(array.shape)
    readonly = producer.readonly == "all" or case.layout in producer.readonly.split()
    address = producer.address(x) if producer.address and array.size else None
    # Any bytes of dlx's own; elements smaller than a byte may be packed.
    any_bytes = isinstance(producer, Own) and not case.layout
    any_bytes = any_bytes or tensor.nbytes != array.nbytes
    checks = {
        "dtype": str(tensor.dtype) == case.dtype,
        "shape": tensor.shape == array.shape,
        "strides": steps(tensor.shape, tensor.strides) == steps(array.shape, strides),
        "read-only": tensor.readonly is readonly,
        "address": address in (None, tensor.data_ptr),
        "elements": any_bytes or memory(tensor) == array.tobytes(),
    }
    return ", ".join(name for name, holds in checks.items() if not holds)


def imported(producer: Producer) -> Iterator[Cell]:
    """What dlx makes of every tensor of a library."""
    for case in cases(producer):
        yield Cell(str(case), "", "")
        x = make(producer, case)
        tensor = dlx.from_dlpack(x)
        wrong = wrong_in(producer, case, x, tensor)
        yield Cell(str(case), SHARED, f"wrong {wrong}" if wrong else SHARED)
    for dtype, error in producer.refused.items():
        yield Cell(dtype or "everything", "", "")
        x = producer.of_dtype(dtype or "float32", flat=False)
        yield Cell(dtype or "everything", error, refusal(x))


def refusal(x: object) -> str:
    """Name of the error that dlx raises, or of the dtype that it sees."""
    try:
        return str(dlx.from_dlpack(x).dtype)
    except Exception as error:
        return type(error).__name__


# Consumers


def usual(producer: Producer, consumer: Consumer) -> Case:
    """Give the case that lifetimes and times are tried with."""
    layout = "1-d" if consumer.one_dimension or producer.flat else "row-major"
    if layout in producer.layouts.split():
        return Case("float32", layout)
    return Case(producer.dtypes.split()[0], "")


def outcome(consumer: Consumer, case: Case, tensor: dlx.Tensor) -> str:
    """Say what a library makes of a tensor."""
    try:
        taken = consumer.take(tensor)
    except Exception as error:
        return type(error).__name__
    seen = consumer.see(taken)
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
    if tensor.size == 0:
        return SHARED
    if seen.data_ptr != tensor.data_ptr:
        return COPIED
    return UNPROTECTED if tensor.readonly and consumer.writable(taken) else SHARED


def exchanged(producer: Producer, consumer: Consumer) -> Iterator[Cell]:
    """Send every tensor of one library to another."""
    for case in cases(producer):
        yield Cell(str(case), "", "")
        tensor = dlx.from_dlpack(make(producer, case, consumer.one_dimension))
        expected = consumer.expected(tensor)
        if expected != NOT_SENT:
            yield Cell(str(case), expected, outcome(consumer, case, tensor))
        else:
            yield Cell(str(case), NOT_SENT, NOT_SENT)
    case = usual(producer, consumer)
    tensor = dlx.from_dlpack(make(producer, case, consumer.one_dimension))
    if consumer.expected(tensor) not in (SHARED, COPIED, UNPROTECTED):
        return
    tests = producer_first, consumer_first, thread
    for name, test in zip(LIFETIMES, tests, strict=True):
        yield Cell(name, "", "")
        yield Cell(name, RIGHT, test(producer, consumer, case))
    yield Cell(RATIO, "", "")
    yield Cell(RATIO, "", ratio(producer, consumer, case))


# Lifetimes


def watch(x: Any) -> Callable[[], Any]:
    """Find out later whether an object is alive; None too where it cannot be told."""
    try:
        return weakref.ref(x)
    except TypeError:
        return lambda: None


def churn() -> None:
    """Write over memory that was given back."""
    for _ in range(100):
        np.full(SIZE, 77.0, dtype=np.float32)
        ones_and_twos("float64")


def as_sent(sent: Array, shown: Any) -> str:
    """Compare elements with those that were sent."""
    same = np.array_equal(np.asarray(shown).ravel(), sent.ravel())
    return RIGHT if same else "wrong elements"


def end(alive: Callable[[], Any], so_far: str) -> str:
    """Add to the outcome whether the producer's object is gone."""
    gc.collect()
    return so_far if alive() is None else f"{so_far}, kept alive"


def producer_first(producer: Producer, consumer: Consumer, case: Case) -> str:
    """Let the producer's object go before the consumer's."""
    x = make(producer, case, consumer.one_dimension)
    alive = watch(x)
    taken = consumer.take(dlx.from_dlpack(x))
    del x
    gc.collect()
    churn()
    so_far = as_sent(expected_elements(case, producer.flat), consumer.values(taken))
    del taken
    return end(alive, so_far)


def consumer_first(producer: Producer, consumer: Consumer, case: Case) -> str:
    """Let the consumer's object go before the producer's."""
    x = make(producer, case, consumer.one_dimension)
    alive = watch(x)
    tensor = dlx.from_dlpack(x)
    taken = consumer.take(tensor)
    del taken
    gc.collect()
    churn()
    so_far = as_sent(expected_elements(case, producer.flat), tensor.numpy())
    del tensor, x
    return end(alive, so_far)


def thread(producer: Producer, consumer: Consumer, case: Case) -> str:
    """Let the consumer's object, the last, go on another thread."""
    x = make(producer, case, consumer.one_dimension)
    alive = watch(x)
    box = [consumer.take(dlx.from_dlpack(x))]
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


# Time


def best(call: Callable[[], object]) -> float:
    """Seconds of a call, the best of five."""
    rounds = max(1, int(1e-3 / max(once(call, 1), 1e-7)))
    return min(once(call, rounds) / rounds for _ in range(5))


def once(call: Callable[[], object], rounds: int) -> float:
    """Seconds of so many calls."""
    start = time.perf_counter()
    for _ in range(rounds):
        call()
    return time.perf_counter() - start


def ratio(producer: Producer, consumer: Consumer, case: Case) -> str:
    """Time through dlx by that of the consumer's own import; "" where it has none."""
    x = make(producer, case, consumer.one_dimension)
    if not hasattr(x, "__dlpack__"):
        return ""  # MLX crashes on such objects.
    try:
        consumer.take(x)
    except Exception:
        return ""
    through = best(lambda: consumer.take(dlx.from_dlpack(x)))
    return f"{through / best(lambda: consumer.take(x)):.2f}"
