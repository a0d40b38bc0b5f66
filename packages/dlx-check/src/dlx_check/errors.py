"""What an exception of somebody else says, in the standard library alone."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["described", "message_of", "name_of"]

_LONGEST = 2000
"""Characters of a message that are looked at."""

name_of: Callable[[type], str] = type.__dict__["__name__"].__get__
"""Return the name of a class, which its metaclass may hide."""


def message_of(error: BaseException, caught: type[BaseException] = Exception) -> str:
    """Return the message of an exception, also of one that cannot be shown.

    What its `__str__` raises is caught if it is of this class.
    """
    try:
        text = str(error)[:_LONGEST]
    except caught as other:
        return f"(its message raises {name_of(type(other))})"
    # UTF-8 has no surrogates.
    return text.encode(errors="backslashreplace").decode()


def described(error: BaseException) -> str:
    """Return an exception in one line; one of dlx that says all is its message."""
    text, name = message_of(error, BaseException), name_of(type(error))
    whole = text if text and name == "CannotCheck" else f"{name}: {text}"
    return whole.splitlines()[0].removesuffix(": ")
