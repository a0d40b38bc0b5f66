"""Tables in plain text, where rich is not installed: its interface as far as used."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any

__all__ = ["Console", "Table", "box", "escape"]

box = SimpleNamespace(SIMPLE_HEAD=None)
"""The kinds of lines; plain tables have one kind."""


def escape(text: str) -> str:
    """Return markup that shows as ``text``."""
    return text.replace("[", r"\[")


def _shown(markup: str) -> str:
    """Return what markup shows, without styles."""
    return re.sub(
        r"\\\[|\[/?[a-z ]+\]",
        lambda found: "[" if found[0] == r"\[" else "",
        markup,
    )


class Table:
    """Rows of text in columns as wide as their widest line."""

    def __init__(self, **_style: Any) -> None:
        """Make a table without columns."""
        self._headers: list[str] = []
        self._rights: list[bool] = []
        self._rows: list[list[str]] = []
        self._breaks: set[int] = set()

    @classmethod
    def grid(cls, **style: Any) -> Table:
        """Make a table without headers."""
        return cls(**style)

    def add_column(self, header: str = "", *, justify: str = "", **_: Any) -> None:
        """Add a column; the lines of its header are divided by newlines."""
        self._headers.append(_shown(header))
        self._rights.append(justify == "right")

    def add_row(self, *cells: str, end_section: bool = False, **_style: Any) -> None:
        """Add a row of markup, and an empty line after a section."""
        self._rows.append([_shown(cell) for cell in cells])
        if end_section:
            self._breaks.add(len(self._rows) - 1)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the table."""
        headers = [header.split("\n")[::-1] for header in self._headers]
        # Short headers stand at the bottom.
        above = [list(line) for line in zip_longest(*headers, fillvalue="")][::-1]
        every = [*above, *self._rows]
        widths = [max(map(len, column)) for column in zip_longest(*every, fillvalue="")]
        rights = [*self._rights, *[False] * (len(widths) - len(self._rights))]

        def line(cells: list[str]) -> str:
            return "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(cells, widths, rights, strict=False)
            ).rstrip()

        for cells in above:
            yield line(cells)
        if above:
            yield "  ".join("-" * width for width in widths)
        for index, cells in enumerate(self._rows):
            yield line(cells)
            if index in self._breaks:
                yield ""


class Console:
    """The standard output."""

    is_terminal = False

    def __init__(self, **_: Any) -> None:
        """Write to what is the standard output now."""
        self.encoding = sys.stdout.encoding
        self.width = 0
        self._file = sys.stdout

    def print(self, content: str | Table, **_style: Any) -> None:
        """Print markup or a table, without styles."""
        lines = content.lines() if isinstance(content, Table) else [_shown(content)]
        for line in lines:
            print(line, file=self._file)
