"""The fixture ``dlx_trace`` for pytest, which finds this module by its entry point."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dlx._tracing import Trace

__all__ = ["dlx_trace"]


@pytest.fixture
def dlx_trace(request: pytest.FixtureRequest) -> Iterator[Trace]:
    """Trace the test, which fails if it leaves memory behind that it moved."""
    # Most tests do not use it, and then dlx is not imported.
    import dlx

    failed = request.session.testsfailed
    with dlx.trace() as trace:
        yield trace
    # The traceback of a test that has failed holds its variables.
    if request.session.testsfailed == failed:
        trace.assert_released()
