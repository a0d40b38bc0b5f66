"""Objects that refuse to be exported, though their class would not."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np


def refuse(*_positional: Any, **_keywords: Any) -> NoReturn:
    """Refuse, as the ``__dlpack__`` of an instance."""
    raise BufferError("not to be exported")


class Own(np.ndarray):
    """An array with attributes of its own."""


class Shy(np.ndarray):
    """An array that hides ``__dlpack__``."""

    def __getattribute__(self, name: str) -> Any:
        """Return what is not hidden."""
        if name == "__dlpack__":
            raise AttributeError(f"no attribute {name}")
        return super().__getattribute__(name)


class Firm(np.ndarray):
    """An array whose class refuses."""

    def __dlpack__(self, **_keywords: Any) -> NoReturn:
        """Refuse."""
        refuse()


def vetoed(x: Any) -> Any:
    """Return ``x``, or a view of it, with a ``__dlpack__`` that refuses."""
    x = x.view(Own) if isinstance(x, np.ndarray) else x
    x.__dlpack__ = refuse
    return x


def is_vetoed(x: Any) -> bool:
    """Whether an object refuses to be exported, unlike others of its base class."""
    return (
        isinstance(x, Shy | Firm)
        or getattr(x, "__dict__", {}).get("__dlpack__") is refuse
    )
