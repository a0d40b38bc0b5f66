"""Requirements without a row: what no row can check, and what is not yet written."""

from __future__ import annotations

from dlx.check.suite.row import NotCheckable

__all__ = ["NOT_CHECKABLE", "NOT_YET_WRITTEN"]

NOT_CHECKABLE = (
    NotCheckable("R12", "a read of a freed struct shows only under a sanitizer"),
    NotCheckable("R65", "a MAY: BufferError in place of a tensor is never wrong"),
    NotCheckable("R69", "asks for documentation"),
    NotCheckable("R79", "a producer may ignore streams, and the sources allow it"),
    NotCheckable("R110", "a formula for sizes, which no struct carries"),
    NotCheckable("R116", "a MAY: types without a table are as good"),
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

NOT_YET_WRITTEN = frozenset(
    (
        # A child that finalizes its interpreter.
        "R14",
        # Streams: they need a GPU, or a simulated driver.
        *("R50", "R55", "R72", "R73", "R75", "R80", "R81", "R82", "R83", "R84", "R85"),
        *("R86", "R87", "R126", "R140", "R141", "R143"),
        # Other protocols.
        *("R148", "R149", "R150", "R151", "R152", "R153", "R154"),
        # Elements of less than a byte, packed.
        "R107",
        # Byte order is one of the kinds of `cannot_export`, and has no row of its own.
        "R101",
    )
)
"""Requirements whose rows are still to be written; this list only shrinks."""
