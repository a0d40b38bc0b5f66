"""Requirements without a row: what no row can check, and why."""

from __future__ import annotations

from dlx_check.conformance.suite.row import NotCheckable

__all__ = ["NOT_CHECKABLE"]

NOT_CHECKABLE = (
    NotCheckable("R12", "a read of a freed struct shows only under a sanitizer"),
    NotCheckable("R65", "a MAY: BufferError in place of a tensor is never wrong"),
    NotCheckable("R69", "asks for documentation"),
    NotCheckable("R79", "a producer may ignore streams, and the sources allow it"),
    NotCheckable("R110", "a formula for sizes, which no struct carries"),
    NotCheckable("R118", "how fast a lookup is, not what it finds"),
    NotCheckable("R142", "a handle that was kept shows only when it is used too late"),
    NotCheckable(
        "R144", "a C++ exception or a panic that crosses is a crash of any row"
    ),
    NotCheckable(
        "R146", "what the caller of a table owes, and the suite is the caller"
    ),
)
"""Requirements that no row can check."""
