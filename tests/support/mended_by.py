"""Titles of the issues that mend what is expected to fail until then."""

from __future__ import annotations

import pytest

WRONG_NUMBERS = (
    "Never a wrong number, again: ask the object, not a name, a version or a neighbour"
)


def fails_until(request: pytest.FixtureRequest, title: str) -> None:
    """Expect the running test to fail, where a library tells that it has to.

    With the mark of a test, the library would be asked while tests are collected.
    """
    request.applymarker(pytest.mark.xfail(reason=title, strict=True))
