"""Ways through dlx that call user code, in whose n-th call something can happen.

What happens is a function, which raises, sends a signal, waits or forks.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import dlx
import dlx_share
import numpy as np

Step = Callable[[], object]


def nothing() -> None:
    """Let nothing happen."""


_calls: list[str] = []
_at = -1
_act: Step = nothing


def point() -> None:
    """Stand at the beginning of each function that dlx calls."""
    _calls.append(sys._getframe(1).f_code.co_name)
    if len(_calls) == _at + 1:
        _act()


@contextmanager
def happening(act: Step, at: int) -> Iterator[None]:
    """Let something happen in the n-th call from now on."""
    global _at, _act
    _calls.clear()
    _at, _act = at, act
    try:
        yield
    finally:
        _at = -1


def calls(step: Step) -> list[str]:
    """Run a step, and return the names of what it calls."""
    for _ in range(16):  # Once it has seen some tensors of a class, dlx asks less.
        step()
    with happening(nothing, -1):
        step()
    return list(_calls)


ARRAY = np.arange(6.0).reshape(2, 3)
TENSOR = dlx.from_dlpack(ARRAY)


class ByProtocol:
    """A producer of Python's protocol."""

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export the array."""
        point()
        return ARRAY.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Say that it is on the CPU."""
        point()
        return 1, 0


class Old(ByProtocol):
    """A producer that knows no keyword."""

    def __dlpack__(self) -> Any:  # type: ignore[override]
        """Export the array."""
        point()
        return ARRAY.__dlpack__()


class ByDict:
    """A producer of NumPy's interface."""

    @property
    def __array_interface__(self) -> Any:
        """Describe the array."""
        point()
        return ARRAY.__array_interface__ | {"shape": tuple(SHAPE.numbers)}


class ByStruct:
    """A producer of NumPy's struct."""

    @property
    def __array_struct__(self) -> Any:
        """Describe the array."""
        point()
        return ARRAY.__array_struct__


class Shape(Sequence[Any]):
    """A shape, which dlx reads by its methods."""

    def __init__(self, *numbers: int) -> None:
        """Keep the numbers."""
        self.numbers = [Number(each) for each in numbers]

    def __len__(self) -> int:
        """Count."""
        point()
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Any:
        """Return one of the numbers."""
        point()
        return self.numbers[index]


class Number:
    """An extent."""

    def __init__(self, value: int) -> None:
        """Keep the value."""
        self.value = value

    def __index__(self) -> int:
        """Return the value."""
        point()
        return self.value


class ByAttribute(dlx.ExchangeMixin, exchange="data"):
    """An array class that computes what it exports."""

    def __init__(self, data: Any) -> None:
        """Keep what `convert` found."""
        point()
        self._data = data

    @property
    def data(self) -> Any:
        """Return the array."""
        point()
        return self._data

    @classmethod
    def __dlx_empty__(cls, shape: Any, *arguments: Any) -> Any:
        """Make memory."""
        point()
        return cls(np.empty(shape))


class ByMethod(dlx.ExchangeMixin):
    """An array class whose method exports."""

    def __dlx_export__(self) -> Any:
        """Return the array."""
        point()
        return ARRAY


class Forwarded:
    """A producer that looks for its table."""

    @property
    def __dlpack_c_exchange_api__(self) -> Any:
        """Return an object whose type has one."""
        point()
        return TENSOR


class Metaclass(type):
    """The class of a class that answers for its attributes."""

    def __getattr__(cls, name: str) -> Any:
        """Have none."""
        point()
        raise AttributeError(name)


class Asked(ByProtocol, metaclass=Metaclass):
    """A producer whose class is asked."""

    def __getattr__(self, name: str) -> Any:
        """Have no other attribute."""
        point()
        raise AttributeError(name)


@dlx.bridge(np.ndarray)
def bridged(array: Any, *, name: Any = None) -> Any:
    """Compute with arrays."""
    point()
    return array + 0


@dlx.launcher(give="pointer")
def launched(array: Any) -> int:
    """Take a pointer."""
    point()
    return int(array.data_ptr())


@dlx.launcher
def launched_by_address(array: int) -> int:
    """Take an address."""
    point()
    return array


def borrow() -> None:
    """Lend tensors of three kinds."""
    with dlx.borrow(BY_ATTRIBUTE, BY_PROTOCOL, BY_METHOD):
        point()


def share() -> None:
    """Share what a producer exports."""
    with dlx.share(BY_PROTOCOL) as handle:
        dlx.attach(bytes(handle), like=ByAttribute)


BY_PROTOCOL, OLD, BY_DICT, BY_STRUCT = ByProtocol(), Old(), ByDict(), ByStruct()
BY_ATTRIBUTE, BY_METHOD = ByAttribute(ARRAY), ByMethod()
FORWARDED, ASKED = Forwarded(), Asked()
SHAPE = Shape(2, 3)
TREE = [{"a": BY_PROTOCOL}, (BY_ATTRIBUTE, 3), BY_METHOD]
WATCHED: list[object] = [ARRAY, TENSOR, BY_PROTOCOL, OLD, BY_DICT, BY_STRUCT, ASKED]
WATCHED += [BY_ATTRIBUTE, BY_METHOD, FORWARDED, SHAPE, *SHAPE.numbers, *TREE]

STEPS: dict[str, Step] = {
    "from_dlpack": lambda: dlx.from_dlpack(BY_PROTOCOL),
    "from_dlpack with a device": lambda: dlx.from_dlpack(BY_PROTOCOL, device="cpu"),
    "from_dlpack with a copy": lambda: dlx.from_dlpack(BY_PROTOCOL, copy=True),
    "from_dlpack of an old producer": lambda: dlx.from_dlpack(OLD),
    "from_dlpack of a dict": lambda: dlx.from_dlpack(BY_DICT),
    "from_dlpack of a struct": lambda: dlx.from_dlpack(BY_STRUCT),
    "from_dlpack of a mixin": lambda: dlx.from_dlpack(BY_ATTRIBUTE),
    "from_dlpack of a mixin by method": lambda: dlx.from_dlpack(BY_METHOD),
    "from_dlpack by a table that is looked for": lambda: dlx.from_dlpack(FORWARDED),
    "from_dlpack of a class that is asked": lambda: dlx.from_dlpack(ASKED),
    "convert": lambda: dlx.convert(BY_PROTOCOL, np.ndarray),
    "convert with a dtype": lambda: dlx.convert(OLD, np.ndarray, dtype="float32"),
    "convert to a mixin": lambda: dlx.convert(BY_PROTOCOL, ByAttribute),
    "convert_tree": lambda: dlx.convert_tree(TREE, np.ndarray),
    "convert_tree to a mixin": lambda: dlx.convert_tree(TREE, ByAttribute),
    "bridge": lambda: bridged(BY_ATTRIBUTE),
    "bridge with a keyword": lambda: bridged(BY_ATTRIBUTE, name=BY_ATTRIBUTE),
    "launcher of pointers": lambda: launched(BY_PROTOCOL),
    "launcher of addresses": lambda: launched_by_address(BY_METHOD),
    "borrow": borrow,
    "share and attach": share,
    "from_pointer": lambda: dlx.from_pointer(8, SHAPE, "int8", owner=ARRAY),
    "from_pointer with strides": lambda: dlx.from_pointer(
        8, SHAPE, "int8", strides=SHAPE, owner=ARRAY
    ),
    "from_buffer": lambda: dlx.from_buffer(bytearray(6), SHAPE, "int8"),
    "empty": lambda: dlx.empty(SHAPE, "int8"),
    "empty in a hook": lambda: dlx.empty((2, 3), "float64", like=ByAttribute),
    "__dlpack__ of a mixin": lambda: BY_ATTRIBUTE.__dlpack__(max_version=(1, 3)),
    "__dlpack_device__ of a mixin": lambda: BY_METHOD.__dlpack_device__(),
    "export to NumPy": lambda: np.from_dlpack(BY_ATTRIBUTE),
    "pickle": lambda: dlx_share.dumps([dlx.from_dlpack(BY_PROTOCOL)]),
}


def references() -> list[int]:
    """Count the references to what no step may keep."""
    return [sys.getrefcount(each) for each in WATCHED]


def kept(before: list[int]) -> list[object]:
    """Return what has more references than before, or fewer, for good."""
    if references() != before:
        gc.collect()
    pairs = zip(WATCHED, before, references(), strict=True)
    return [each for each, old, new in pairs if old != new]
