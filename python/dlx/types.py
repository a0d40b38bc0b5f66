"""Protocols for type annotations: objects that dlx and other consumers can read.

``isinstance`` works with both and only checks that the names exist. ``import dlx`` does
not import this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

__all__ = ["SupportsDLPack", "SupportsExchangeAPI"]


@runtime_checkable
class SupportsDLPack(Protocol):
    """An object that exports itself through the Python protocol.

    `dlx.from_dlpack` does not need the keywords that ``__dlpack__`` got later.

    Source: the array API.
    """

    def __dlpack__(self, *, stream: int | None = ...) -> CapsuleType:
        """Export a capsule."""

    def __dlpack_device__(self) -> tuple[int, int]:
        """``(device type, device id)``."""


@runtime_checkable
class SupportsExchangeAPI(Protocol):
    """An object whose class has a C exchange table.

    Declared as a property because some libraries annotate the attribute on the instance
    and as ``object``; C consumers look it up on the class.

    Source: dlpack.h 1.3.
    """

    @property
    def __dlpack_c_exchange_api__(self) -> object:
        """The capsule named ``dlpack_exchange_api``."""
