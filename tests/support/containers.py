"""Container classes that are hard to rebuild, and conversions."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import dlx
import numpy as np

T = TypeVar("T")

A = np.arange(3.0)


def to_dlx(tree: Any, **keywords: Any) -> Any:
    """Convert every tensor in `tree`."""
    return dlx.convert_tree(tree, dlx.Tensor, **keywords)


def is_of(made: Any, array: Any) -> bool:
    """Whether `made` is what `array` was converted to."""
    return type(made) is dlx.Tensor and bool(made.data_ptr == array.ctypes.data)


@dataclass
class Plain:
    """A dataclass with a field that its constructor does not take, like all below."""

    x: Any
    made: Any = field(init=False)


@dataclass(frozen=True)
class Frozen:
    """A frozen one."""

    x: Any
    made: Any = field(init=False)


@dataclass(slots=True)
class Slotted:
    """One without `__dict__`."""

    x: Any
    made: Any = field(init=False)


@dataclass(frozen=True, slots=True)
class FrozenSlotted:
    """A frozen one without `__dict__`."""

    x: Any
    made: Any = field(init=False)


@dataclass(frozen=True)
class ByHand:
    """A frozen dataclass with handwritten slots."""

    __slots__ = ("made", "x")
    x: Any
    made: Any


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Derived(FrozenSlotted):
    """One with inherited slots and a `__weakref__` slot."""

    y: Any = None


class Sloppy(FrozenSlotted):
    """A subclass whose instances have a `__dict__` besides their slots."""


@dataclass
class Box(Generic[T]):
    """A generic dataclass."""

    x: T


class Pair(NamedTuple):
    """A named tuple."""

    first: Any
    second: Any


class Further(Pair):
    """A subclass of it without `__dict__`."""

    __slots__ = ()


class Labelled(Pair):
    """A subclass of it with attributes."""

    label: Any = None


class Own(tuple[Any, ...]):
    """A tuple whose class takes its items one by one."""

    def __new__(cls, first: Any, second: Any) -> Any:
        """Make it from two items."""
        return super().__new__(cls, (first, second))


class Row(list[Any]):
    """A list with an unusual constructor that restricts its methods."""

    __slots__ = ("unit",)

    def __init__(self, unit: str, items: Any) -> None:
        """Take arguments that `list` does not."""
        super().__init__(items)
        self.unit = unit

    def append(self, item: Any) -> None:
        """Not be called."""
        raise AssertionError

    def __setitem__(self, at: Any, item: Any) -> None:
        """Not be called."""
        raise AssertionError


class Strict(dict[str, Any]):
    """A dict that refuses new items."""

    def __init__(self, schema: str, items: dict[str, Any]) -> None:
        """Take arguments that `dict` does not."""
        super().__init__(items)
        self.schema = schema

    def __setitem__(self, key: str, value: Any) -> None:
        """Refuse."""
        raise TypeError(key)


class ByAttribute(dict[str, Any]):
    """The idiom that makes items attributes."""

    def __init__(self, **items: Any) -> None:
        """Take the items by name."""
        super().__init__(**items)
        self.__dict__ = self


class InStep(dict[str, Any]):
    """A dict whose items are also stored as attributes."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Set both."""
        super().__setattr__(name, value)
        super().__setitem__(name, value)


class Doubled(defaultdict[Any, Any]):
    """A default dict with a constructor of its own."""

    def __init__(self, name: str) -> None:
        """Take a name and set the factory."""
        super().__init__(list)
        self.name = name


@dataclass
class Output(OrderedDict[str, Any]):
    """A dataclass whose fields are items, too, as in transformers."""

    loss: Any = None
    states: Any = None

    def __post_init__(self) -> None:
        """Make the fields items."""
        for name in ("loss", "states"):
            if (value := getattr(self, name)) is not None:
                super().__setitem__(name, value)

    def __setitem__(self, key: str, value: Any) -> None:
        """Not be called."""
        raise AssertionError

    def __reduce__(self) -> Any:
        """Not be called."""
        raise AssertionError


class Key:
    """A hashable object that holds a tensor."""

    def __init__(self, x: Any) -> None:
        """Hold it."""
        self.x = x


class Liar:
    """An object whose `__class__` is not its type."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Return a wrong class."""
        return list


class EveryName(type):
    """Classes that have every attribute."""

    def __getattr__(cls, name: str) -> Any:
        """Return anything except the attributes of a tensor."""
        if name.startswith(("__dlpack", "__c_")):
            raise AttributeError(name)
        return name


class Anything(metaclass=EveryName):
    """An object of such a class."""


class Calling:
    """A tensor that calls a function when it is exported, and counts that."""

    def __init__(self, action: Callable[[], object] = lambda: None) -> None:
        """Keep the function."""
        self.action = action
        self.exports = 0

    def __dlpack__(self, **keywords: Any) -> Any:
        """Call it, and export."""
        self.exports += 1
        self.action()
        return A.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Be on the CPU."""
        return (1, 0)
