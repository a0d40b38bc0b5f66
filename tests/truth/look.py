"""Judge what one entry point of dlx made of one tensor."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType
from typing import Any

import dlx
import numpy as np

from .entries import ENTRIES, Entry
from .said import Said, is_misaligned, package_of, says
from .standins import FORWARDERS, INNER
from .writing import computes_wrongly, flip, writable_address


class Wrong(AssertionError):
    """What dlx made is not what the library said."""


ACCEPTED: tuple[tuple[type[BaseException], str], ...] = (
    (BufferError, ""),
    # Of objects that have no protocol, or hand on that of one that has none.
    (AttributeError, "no attribute '?__(dlpack|arrow|array)|has no __dlpack"),
    (TypeError, "(what|anything) dlx.from_dlpack takes is accepted"),
    # Of a class that gives tensors and takes none, for what a bridge returns.
    (TypeError, "cannot be made from a tensor: it has no exchange table"),
    # What scalars answer who asks for their buffer.
    (TypeError, "can only exported as a buffer without format"),
    (ValueError, "^cannot include dtype .* in a buffer$"),
    (ValueError, "^Cannot export buffer from null Arrow Scalar$"),
    # What JAX raises for integers of 4 bits and below a transform, Paddle for a tensor
    # that was cleared, and torch for a masked one.
    (RuntimeError, "has no DLPack equivalent"),
    (RuntimeError, "Tensor (holds no memory|not initialized yet)"),
    (TypeError, "^Abstract tracer value"),
    (TypeError, "^Multiple dispatch failed for 'torch"),
    # What pyarrow's own `__dlpack__` raises; it names the type.
    (TypeError, "DLPack"),
    (NotImplementedError, "^Legacy DLPack support is not implemented"),
    # What MLX raises for what is still to be computed, by a stream of another thread.
    (RuntimeError, r"^There is no Stream\(cpu, \d+\) in current thread"),
    # What torch's own `__dlpack_device__` raises, behind what hands it on.
    (ValueError, "^Unknown device type .* for Dlpack$"),
)
"""Refusals: the class, and what the message has to match."""

THEIRS = (RuntimeError, TypeError, ValueError)
"""What a consumer's import raises for what it does not take, or an export that is
handed on."""

WITNESS = "w"
"""What programs call a tensor that must not change with ``x``."""

JUNK = 4096
"""Bytes of the garbage that is put where memory may have been freed."""


@cache
def compiled(text: str, mode: str) -> CodeType:
    """Compile a line once."""
    return compile(text, "<program>", mode)


def is_refusal(error: BaseException) -> bool:
    """Whether an entry point may refuse like this."""
    text = str(error)
    return any(
        isinstance(error, kind) and re.search(pattern, text)
        for kind, pattern in ACCEPTED
    )


def answering(x: Any, entry: Entry) -> Any:
    """Give the object whose own ``__dlpack__`` is the answer to an entry, if any."""
    found = x if entry.forwards else None
    while type(x) in INNER:
        inner = vars(x)[INNER[type(x)]]
        if type(x) in FORWARDERS:
            found = inner
        x = inner
    return found


def hands_on_wrongly(x: Any, truth: Said | None) -> bool:
    """Whether a library's own ``__dlpack__`` is known to say something else.

    NumPy's forgets the mask; torch's the negation, that another dtype shows what is
    quantized, and what functionalization keeps elsewhere. TensorFlow's ends the
    process for strings.
    """
    if isinstance(x, np.ma.MaskedArray):
        return True
    if package_of(x) == "torch":
        is_functional = sys.modules["torch"]._is_functional_tensor
        if not hasattr(x, "is_neg"):
            return False
        forgotten = x.is_neg() or x.is_quantized or is_functional(x)
        return bool(forgotten or is_lost(x, truth))
    return package_of(x) == "tensorflow" and truth is None


def is_lost(x: Any, truth: Said | None) -> bool:
    """Whether torch's own ``__dlpack__`` reads what has no memory, or gives an address.

    It would resolve a view to say whether that is pinned; the address is the offset.
    """
    if truth is not None and not x._is_zerotensor():
        return False
    try:
        return bool(x.is_conj() or x.storage_offset())
    except RuntimeError:
        return False


def cannot_tell(x: Any, truth: Said | None) -> bool:
    """Whether nobody knows the numbers: tvm-ffi names no complex dtype."""
    return package_of(x) == "tvm_ffi" and truth is None


def judge(text: str, names: dict[str, Any], x: Any, truth: Said | None) -> Any:
    """Run an entry; raise `Wrong`, or give what it made (None if it refused)."""
    entry = ENTRIES[text]
    own = answering(x, entry)
    if hands_on_wrongly(own, truth) or cannot_tell(x, truth):
        return None
    try:
        made = eval(compiled(text, "eval"), names | {"x": x})
        if type(made) is dlx.borrow:
            with made as (y, _):
                compare(entry, x, y, truth, names.get(WITNESS))
            return None
    except Wrong:
        raise
    except Exception as error:
        if (own is not None or entry.ends_elsewhere) and isinstance(error, THEIRS):
            return None
        if is_refusal(error):
            return None
        raise Wrong(f"raised {type(error).__name__}: {error}") from error
    compare(entry, x, made, truth, names.get(WITNESS))
    return made


def is_empty(y: Any) -> bool:
    """Whether there are no elements that could be wrong."""
    shape = getattr(y, "shape", None)
    return not len(y) if shape is None else 0 in shape


def compare(entry: Entry, x: Any, y: Any, truth: Said | None, other: Any) -> None:
    """Raise `Wrong` if ``y`` is not what ``truth`` says of ``x``."""
    if y is x and entry.copy is not True and not entry.writes:
        return
    if truth is None:
        # Not read: it may lead anywhere.
        stood_for = vars(x)[INNER[type(x)]] if type(x) in INNER else None
        if isinstance(y, type(x)) or y is stood_for:
            return
        if is_empty(y):
            return
        raise Wrong(f"made {type(y).__name__} of what has no numbers to give")
    found = says(y)
    if found is None and package_of(y) == "tvm_ffi":
        return
    if found is None:
        raise Wrong(f"{type(y).__name__}, whose library has no numbers to give")
    if truth.tracked and not found.tracked and not entry.lends_gradients:
        raise Wrong("gradients were lost without a word")
    if found.dtype != truth.dtype and entry.text.startswith("jnp."):
        # Without 64-bit types JAX takes their halves.
        return
    if found.content() != truth.content():
        raise Wrong(f"it is {found}, and not {truth}")
    if not truth.data:
        return
    if truth.protected and entry.writes:
        raise Wrong("memory that must not be written was given for writing")
    check_memory(entry, x, y, truth, other)
    if entry.lends and is_misaligned(y):
        # Taken by torch itself, which does not look at the address.
        return
    if problem := computes_wrongly(y, truth):
        raise Wrong(problem)


def check_memory(entry: Entry, x: Any, y: Any, truth: Said, other: Any) -> None:
    """Write through ``y``; look at ``x``, and at what shares its memory in secret."""
    address = writable_address(y)
    if not address or (entry.lends and truth.protected) or y is x:
        return
    if truth.unsaid and entry.takes_all_for_writable:
        return
    before = says(other)
    flip(address)
    after, others = says(x), says(other)
    flip(address)
    if others != before:
        raise Wrong("it changes what only shares its memory until one is written to")
    changed = after is not None and after.data != truth.data
    if changed and truth.protected:
        raise Wrong("it is writable, and changes what must not be written")
    if changed and entry.copy is True:
        raise Wrong("copy=True shares the memory")
    if not changed and entry.copy is False and after is not None:
        raise Wrong("copy=False does not share the memory")


class Heard:
    """``look`` of the first run: what the library says, before dlx has seen it."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.truths: list[Said | None] = []

    def __call__(self, x: Any, _text: str) -> Any:
        """Note what the library says."""
        self.truths.append(says(x))
        return x


class Look:
    """``look`` of the second run: whether dlx says the same."""

    def __init__(self, names: dict[str, Any], truths: list[Said | None] | None) -> None:
        """Compare with ``truths``, in order; None to ask the library again."""
        self.names = names
        self.truths: Iterator[Said | None] | None = (
            None if truths is None else iter(truths)
        )
        self.made: list[tuple[Any, Said | None]] = []
        self.refused = 0

    def __call__(self, x: Any, text: str) -> Any:
        """Judge one entry."""
        truth = says(x) if self.truths is None else next(self.truths)
        try:
            y = judge(text, self.names, x, truth)
        except Wrong as wrong:
            wrong.add_note(text)
            raise
        if y is None:
            self.refused += 1
        elif y is not x:
            self.made.append((y, truth))
        return x

    def read_again(self) -> None:
        """Look at what the last entry made after everything else is gone."""
        junk = bytearray(b"\xa5") * JUNK
        for y, truth in self.made[-1:]:
            found = says(y)
            if not found or not truth or found.dtype != truth.dtype:
                continue
            if found.content() != truth.content():
                raise Wrong(f"once its source was gone it is {found}, not {truth}")
        del junk


Judge = Callable[[Any, str], Any]
