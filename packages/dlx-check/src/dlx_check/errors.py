"""What an exception of somebody else says."""

from __future__ import annotations

__all__ = ["message_of"]


def message_of(error: BaseException) -> str:
    """Return the message of an exception, also of one that cannot be shown."""
    try:
        return str(error)
    except Exception as other:
        return f"(its message raises {type(other).__name__})"
