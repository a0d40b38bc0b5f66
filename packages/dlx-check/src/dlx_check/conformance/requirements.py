"""The requirements that rows check, with their sources in words.

In `requirements.tsv`, H:n is line n of dlpack.h 1.3, and P:n of DLPack's
python_spec.rst; `_WORDS` has the other letters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["Requirement", "requirements"]

_WORDS = {
    "A": "array API, `__dlpack__`",
    "AF": "array API, `from_dlpack`",
    "AD": "array API, `__dlpack_device__`",
    "AX": "array API draft, `__dlpack_c_exchange_api__`",
    "DI": "array API, data interchange",
    "CV": "array API, copies and views",
    "CAI": "CUDA Array Interface 3",
    "ARW": "Arrow's C device interface",
    "CUDA": "cuda.h",
    "S1": "dlpack issue 179",
    "S2": "array-api issue 829",
    "S3": "dlpack issue 176",
    "obs": "observed in other libraries",
}


@dataclass(frozen=True)
class Requirement:
    """One line of the table."""

    name: str
    who: str
    level: str
    statement: str
    source: str

    @property
    def derived(self) -> bool:
        """Return whether it is dlx's reading of its sources."""
        return self.level.startswith("d-")


def spelled(source: str) -> str:
    """Write a source out, for readers who do not know the table's letters."""
    source = re.sub(r"\bH:([\d-]+)", r"dlpack.h line \1", source)
    source = re.sub(r"\bP:([\d-]+)", r"DLPack's Python specification line \1", source)
    source = re.sub(
        r"\bP (?=snippet|example)", "DLPack's Python specification, ", source
    )
    pattern = (
        rf"(?<![\w.`])({'|'.join(sorted(_WORDS, key=len, reverse=True))})\b(?![.`])"
    )
    return re.sub(pattern, lambda match: _WORDS[match[1]], source)


@cache
def requirements() -> dict[str, Requirement]:
    """Read the table; the keys are R-numbers."""
    found = {}
    text = Path(__file__).with_suffix(".tsv").read_text(encoding="utf-8")
    for line in text.splitlines():
        name, who, level, statement, source = line.split("\t")
        found[name] = Requirement(name, who, level, statement, spelled(source))
    return found
