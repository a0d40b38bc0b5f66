"""Classes of containers, each with something that is hard to keep, and conversions."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import dlx

T = TypeVar("T")


def to_dlx(tree: Any, **keywords: Any) -> Any:
    """Convert every tensor in `tree`."""
    return dlx.convert_tree(tree, dlx.Tensor, **keywords)


def is_of(made: Any, array: Any) -> bool:
    """Whether `made` is what `array` was converted to."""
    return type(made) is dlx.Tensor and bool(made.data_ptr == array.ctypes.data)


@dataclass
class Plain:
    """A dataclass with a field that its constructor does not take, as all here."""

    x: Any
    made: Any = field(init=False)


@dataclass(frozen=True)
class Frozen:
    """One that cannot be assigned to."""

    x: Any
    made: Any = field(init=False)


@dataclass(slots=True)
class Slotted:
    """One without a dictionary."""

    x: Any
    made: Any = field(init=False)


@dataclass(frozen=True, slots=True)
class FrozenSlotted:
    """Both."""

    x: Any
    made: Any = field(init=False)


@dataclass(frozen=True)
class ByHand:
    """A frozen dataclass whose slots were written by hand."""

    __slots__ = ("made", "x")
    x: Any
    made: Any


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Derived(FrozenSlotted):
    """One with inherited slots, and one for weak references."""

    y: Any = None


class Sloppy(FrozenSlotted):
    """A subclass whose instances have a dictionary beside their slots."""


@dataclass
class Box(Generic[T]):
    """A generic dataclass."""

    x: T


class Pair(NamedTuple):
    """A named tuple."""

    first: Any
    second: Any


class Further(Pair):
    """A subclass of it without a dictionary."""

    __slots__ = ()


class Labelled(Pair):
    """A subclass of it with attributes."""

    label: Any = None


class Own(tuple[Any, ...]):
    """A tuple whose class takes its items one by one."""

    def __new__(cls, first: Any, second: Any) -> Any:
        """Make it of two items."""
        return super().__new__(cls, (first, second))


class Row(list[Any]):
    """A list with more to its making, and opinions on its items."""

    __slots__ = ("unit",)

    def __init__(self, unit: str, items: Any) -> None:
        """Take what no other list takes."""
        super().__init__(items)
        self.unit = unit

    def append(self, item: Any) -> None:
        """Not be called."""
        raise AssertionError

    def __setitem__(self, at: Any, item: Any) -> None:
        """Not be called."""
        raise AssertionError


class Strict(dict[str, Any]):
    """A dict that nothing can be put into."""

    def __init__(self, schema: str, items: dict[str, Any]) -> None:
        """Take what no other dict takes."""
        super().__init__(items)
        self.schema = schema

    def __setitem__(self, key: str, value: Any) -> None:
        """Refuse."""
        raise TypeError(key)


class ByAttribute(dict[str, Any]):
    """The idiom by which items are attributes."""

    def __init__(self, **items: Any) -> None:
        """Take the items by name."""
        super().__init__(**items)
        self.__dict__ = self


class InStep(dict[str, Any]):
    """Items that are kept as attributes as well."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Set both."""
        super().__setattr__(name, value)
        super().__setitem__(name, value)


class Doubled(defaultdict[Any, Any]):
    """A default dict that is made in its own way."""

    def __init__(self, name: str) -> None:
        """Take a name, and choose the factory."""
        super().__init__(list)
        self.name = name


@dataclass
class Output(OrderedDict[str, Any]):
    """As in transformers: a dataclass whose fields are items, too."""

    loss: Any = None
    states: Any = None

    def __post_init__(self) -> None:
        """Make items of the fields."""
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
    """Something hashable that holds a tensor."""

    def __init__(self, x: Any) -> None:
        """Hold it."""
        self.x = x


class Liar:
    """An object whose `__class__` is another than its type."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Lie."""
        return list


class EveryName(type):
    """Classes that have every attribute."""

    def __getattr__(cls, name: str) -> Any:
        """Give anything, but not what makes a tensor."""
        if name.startswith(("__dlpack", "__c_")):
            raise AttributeError(name)
        return name


class Anything(metaclass=EveryName):
    """An object of such a class."""
