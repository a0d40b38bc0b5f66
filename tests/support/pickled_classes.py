"""Mixin classes that other processes can import, for tests of pickles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import dlx
import numpy as np


class Bare(dlx.ExchangeMixin, exchange="data", pickle=True):
    """What has a tensor and nothing else."""

    def __init__(self, data: Any) -> None:
        """Keep ``data``."""
        self.data = data


class Derived(Bare):
    """A subclass, which pickles as its base does, but as itself."""


class Slotted(dlx.ExchangeMixin, exchange="data", pickle=True):
    """One without a ``__dict__``."""

    __slots__ = ("__weakref__", "data", "note")

    def __init__(self, data: Any, note: str = "imported") -> None:
        """Keep both."""
        self.data, self.note = data, note


@dataclass(slots=True)
class Data(dlx.ExchangeMixin, exchange="data", pickle=True):
    """A class that `dataclass` makes twice."""

    data: Any


class Labelled(dlx.ExchangeMixin, exchange="data"):
    """One with more than its tensor, which keeps the pickles of Python."""

    def __init__(self, data: Any, label: str) -> None:
        """Keep both."""
        self.data, self.label = data, label


class LabelledSlots(dlx.ExchangeMixin, exchange="data"):
    """The same without a ``__dict__``."""

    __slots__ = ("data", "label")

    def __init__(self, data: Any, label: str) -> None:
        """Keep both."""
        self.data, self.label = data, label


class More(Bare):
    """A subclass with more than its base, which says so."""

    def __init__(self, data: Any, label: str) -> None:
        """Keep both."""
        super().__init__(data)
        self.label = label

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        """Pickle both."""
        return type(self), (self.data, self.label)


class Unit(dlx.ExchangeMixin, exchange="values", pickle=True):
    """One with a unit, whose values are a property."""

    def __init__(self, values: Any, unit: str = "1") -> None:
        """Keep both."""
        self._values, self.unit = values, unit

    @property
    def values(self) -> Any:
        """The numbers."""
        return self._values


@dataclass(slots=True, frozen=True)
class FrozenUnit(dlx.ExchangeMixin, exchange="data", pickle=True):
    """One that is made with slots, and cannot be assigned to."""

    data: Any
    unit: str = "1"


class Needing(dlx.ExchangeMixin, exchange="data", pickle=True):
    """One that no tensor alone makes."""

    def __init__(self, data: Any, unit: str) -> None:
        """Keep both."""
        self.data, self.unit = data, unit


class Importing(Needing):
    """One that says how a tensor makes it."""

    @classmethod
    def __dlx_import__(cls, tensor: dlx.Tensor) -> Importing:
        """Make it with no unit yet."""
        return cls(tensor, "")


class Choosy(dlx.ExchangeMixin, exchange="data", pickle=True):
    """One that refuses what arrives."""

    def __init__(self, data: Any) -> None:
        """Keep ``data``."""
        self.data = data

    @classmethod
    def __dlx_import__(cls, tensor: dlx.Tensor) -> Choosy:
        """Refuse."""
        raise LookupError(f"there is no place for {tensor}")


class OwnCopy(Bare):
    """One with a copy of its own."""

    def __copy__(self) -> str:
        """Say that it was called."""
        return "its own"


class Signal(dlx.ExchangeMixin, np.ndarray, pickle=True):  # type: ignore[misc]
    """One that is an array of NumPy, too."""

    def __dlx_export__(self) -> Any:
        """Export the plain array."""
        return self.view(np.ndarray)

    @classmethod
    def __dlx_import__(cls, tensor: dlx.Tensor) -> Any:
        """View the tensor."""
        return tensor.numpy().view(cls)
