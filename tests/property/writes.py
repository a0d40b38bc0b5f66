"""Ways to write to what is protected, none of which may succeed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dlx
from interop.making import late

from .word import Word


def torch_alias(x: Any, word: Word) -> bool:
    """Whether torch, which cannot protect memory, gets that of the object."""
    torch = late("torch")
    if isinstance(x, torch.Tensor):
        return False
    made = dlx.convert(x, torch.Tensor)
    return word.said is not None and made.data_ptr() == word.said.address


def borrowed(x: Any, word: Word) -> bool:
    """Whether it is lent to be written."""
    with dlx.borrow(out=x):
        return True


def launched(x: Any, word: Word) -> bool:
    """Whether a kernel that writes it is launched."""
    given: list[Any] = []
    dlx.launcher(given.append, out=0, give="tensor")(x)
    # A scalar is handed on as it is.
    return isinstance(given[0], dlx.Tensor)


WRITES: dict[str, Callable[[Any, Word], bool]] = {
    "torch": torch_alias,
    "out": borrowed,
    "writes": launched,
}


def written(x: Any, word: Word, write: Callable[[Any, Word], bool]) -> str:
    """Return what is wrong with a way to write, or ""."""
    if not (word.protected and word.said and word.said.address):
        return ""
    try:
        taken = write(x, word)
    except Exception:
        return ""
    why = "immutable" if word.immutable else "READ_ONLY"
    return f"writable memory of what is {why}" if taken else ""
