"""Release numbers of versions, and comparisons with them, as "<0.11, !=0.10.1".

Releases are compared as in PEP 440, and nothing else of a version is: "0.11.0rc1" and
"0.11+cpu" are 0.11 here. What has another form is refused.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable

__all__ = ["admits", "release", "versions"]

_COMPARISONS: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_NUMBERS = r"\d+(?:\.\d+)*"
_SUFFIX = r"(?:[-_.]?(?:a|b|c|rc|alpha|beta|pre|preview|post|rev|r|dev)[-_.]?\d*){0,3}"
_VERSION = re.compile(rf"v?({_NUMBERS}){_SUFFIX}(?:\+[a-z0-9._-]+)?", re.I | re.A)
_CLAUSE = re.compile(rf"(<=|>=|==|!=|<|>)\s*({_NUMBERS})", re.A)

Clause = tuple[str, tuple[int, ...]]


def release(version: str) -> tuple[int, ...]:
    """Return the release number of a version, without zeros at its end."""
    found = _VERSION.fullmatch(version.strip())
    if found is None:
        raise ValueError(f"{version!r} is no version such as 1.10.2")
    return _parts(found[1])


def versions(text: str) -> tuple[Clause, ...]:
    """Read comparisons that are joined by commas; empty text has none."""
    found = []
    for part in text.split(",") if text else ():
        clause = _CLAUSE.fullmatch(part.strip())
        if clause is None:
            raise ValueError(
                f"{part.strip()!r} is no comparison such as <0.11 "
                f"({' '.join(_COMPARISONS)}, then numbers)"
            )
        found.append((clause[1], _parts(clause[2])))
    return tuple(found)


def admits(clauses: Iterable[Clause], found: tuple[int, ...]) -> bool:
    """Return whether a release number fulfils each comparison."""
    return all(_COMPARISONS[sign](found, number) for sign, number in clauses)


def _parts(numbers: str) -> tuple[int, ...]:
    parts = [int(part) for part in numbers.split(".")]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)
