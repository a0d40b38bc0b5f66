"""Looks at an object by every way, and names what differs from its library's word."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from .said import IS_COPIED, READ_ONLY, UNSAID, Said, words
from .ways import HANDED, NUMPY, OTHER, TABLE, VIEW, WAYS, Way
from .word import Word
from .writes import WRITES, written

NO_TENSOR = (AttributeError, TypeError)
"""What dlx raises for objects that nothing describes as tensors."""


class Difference(NamedTuple):
    """What dlx says by a way, and what it should."""

    object: str
    way: str
    text: str


def looked(
    name: str,
    x: Any,
    word: Word,
    ways: dict[str, Way] = WAYS,
    at: Callable[[str], None] = lambda way: None,
) -> Iterator[Difference | None]:
    """Look at an object; yield None where nothing differs."""
    for way, (ask, kind) in ways.items():
        at(way)
        try:
            said = ask(x)
        except Exception as error:
            texts = [refused(error, x, word, kind)]
        else:
            if said is None:
                continue
            texts = compared(said, word, kind)
        yield from found(name, way, texts)


def wrote(
    name: str, x: Any, word: Word, at: Callable[[str], None]
) -> Iterator[Difference | None]:
    """Try to write to an object."""
    for way, write in WRITES.items():
        at(way)
        yield from found(name, way, [written(x, word, write)])


def found(name: str, way: str, texts: list[str]) -> Iterator[Difference | None]:
    """Yield differences, or one None for a look without any."""
    if not any(texts):
        yield None
    for text in filter(None, texts):
        yield Difference(name, way, text)


def first_line(error: BaseException) -> str:
    """Return the class and the first line of an exception."""
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:100]}"


def refused(error: Exception, x: Any, word: Word, kind: str) -> str:
    """Return what is wrong with a refusal, or ""."""
    if word.masked or kind == OTHER:
        return ""
    if kind == VIEW and isinstance(error, BufferError):
        return ""
    if word.exports:
        return f"{first_line(error)} | its library exports it"
    if word.error is not None or isinstance(error, BufferError):
        return ""
    if type(error) in NO_TENSOR:
        return ""
    # What the object's own methods raise goes through dlx.
    if type(error) in map(type, own_refusals(x)):
        return ""
    return f"{first_line(error)} | a refusal is a BufferError"


def own_refusals(x: Any) -> Iterator[Exception]:
    """Yield what an object raises where its elements are asked for."""
    arrow = ("__arrow_c_array__", "__arrow_c_stream__")
    methods = [getattr(x, name) for name in arrow if hasattr(x, name)]
    for method in [lambda: np.asarray(x), *methods]:
        try:
            method()
        except Exception as error:
            yield error


def compared(said: Said, word: Word, kind: str) -> list[str]:
    """Return what dlx should have said instead."""
    if word.masked and kind not in (HANDED, OTHER):
        return ["given, although elements are masked"]
    if word.said is None:
        if word.error is not None and kind not in (HANDED, OTHER):
            return [f"given | {first_line(word.error)}"]
        unprotected = word.immutable and said.flags == 0
        return [named(said, word), "flags: none | immutable" * unprotected]
    differing = []
    for field, ours, theirs in zip(Said._fields, said, word.said, strict=True):
        if field == "flags":
            differing.append(flags(said, word, kind))
        elif field == "address" and moved(said, word):
            continue
        elif ours is not None and theirs is not None and ours != theirs:
            differing.append(f"{field}: {words(field, ours)} | {words(field, theirs)}")
    return [*differing, named(said, word)]


def moved(said: Said, word: Word) -> bool:
    """Whether the address of a new copy says nothing."""
    copied = isinstance(said.flags, int) and said.flags & IS_COPIED
    return word.moves or (word.documented and bool(copied))


def named(said: Said, word: Word) -> str:
    """Compare the dtype with its name, where the library's export does so, too."""
    if word.dtype is None or said.dtype is None or said.dtype == word.dtype:
        return ""
    return f"dtype: {words('dtype', said.dtype)} | not what its name says"


def flags(said: Said, word: Word, kind: str) -> str:
    """Compare the flags."""
    assert word.said is not None
    ours, theirs = said.flags, word.said.flags
    if ours is None or theirs is None:
        return ""
    if theirs == UNSAID and word.immutable and kind not in (HANDED, OTHER):
        theirs = READ_ONLY  # which its documentation says
    if word.documented or kind == NUMPY:
        protected = theirs == UNSAID or bool(int(theirs) & READ_ONLY)
        if ours == UNSAID or (word.documented and int(ours) & IS_COPIED):
            return ""
        same = bool(int(ours) & READ_ONLY) == protected
    elif theirs == UNSAID and kind in (TABLE, OTHER):
        same = True
    else:
        same = ours == theirs
    return "" if same else f"flags: {words('flags', ours)} | {words('flags', theirs)}"
