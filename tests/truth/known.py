"""What dlx does not see: docs/convert.md names each, with the reason.

Random runs pass over them and find everything else. Each has a program in ``corpus``,
which is expected to fail, strictly: once dlx sees it, its row has to go.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from .duties import layers
from .said_torch import is_refused_by_a_mode
from .vetoes import Firm, is_vetoed


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


def is_vetoed_beside_a_table(fault: Fault) -> bool:
    """Whether an instance refuses whose class has an exchange table."""
    return any(
        is_vetoed(x)
        and not isinstance(x, Firm)
        and hasattr(type(x), "__dlpack_c_exchange_api__")
        for x in layers(fault.x)
    )


ENDS = "it ends the process"
MADE = "^made .* of what has no numbers"

KNOWN: dict[str, Row] = {
    "table_veto": Row(MADE, is_vetoed_beside_a_table),
    "torch_mode_refuses": Row(MADE, lambda fault: is_refused_by_a_mode()),
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
