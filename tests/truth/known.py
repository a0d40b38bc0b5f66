"""Faults that dlx has and that another issue mends.

Random runs pass over them and find everything else. Each has a program in ``corpus``,
which is expected to fail, strictly: once the fault is mended, its row has to go.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple


TITLE = (
    "Never a wrong number, again: ask the object, not a name, a version or a neighbour"
)
"""The issue that mends all of these."""


class Fault(NamedTuple):
    """What was wrong, with what."""

    says: str
    x: Any
    text: str = ""
    game: str = ""


Of = Callable[[Fault], bool]


class Row(NamedTuple):
    """A known fault: a pattern of what is wrong, and of which looks."""

    says: str
    of: Of = lambda fault: True


def of_library(*names: str) -> Of:
    """Whether the tensor is one of these libraries, or stands for one."""
    return lambda fault: package_of(innermost(fault.x)) in names


def of_torch(that: Callable[[Any], bool] = lambda x: True) -> Of:
    """Whether it is about a tensor of torch of which something is true."""

    def is_such(fault: Fault) -> bool:
        x = innermost(fault.x)
        if not is_torch(x):
            return False
        with undisturbed():
            return that(x)

    return is_such




ENDS = "it ends the process"
MADE = "^made .* of what has no numbers"

KNOWN: dict[str, Row] = {
    "torch_traced": Row("a trace takes it for a constant"),
}
"""Each is called as its program in ``corpus``."""


def name_of(fault: Fault) -> str:
    """Return the name of a known fault, or ""."""
    return next(
        (
            name
            for name, row in KNOWN.items()
            if re.search(row.says, fault.says) and row.of(fault)
        ),
        "",
    )
