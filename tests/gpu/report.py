"""Measurements of the tests, for the end of pytest's output."""

from __future__ import annotations

FOUND: list[str] = []
"""Lines, in the order of the tests."""


def found(line: str) -> None:
    """Add a line."""
    FOUND.append(line)
