"""Protocols to annotate with: what an object must have for dlx and others to read it.

``isinstance`` works with both and looks at names alone. ``import dlx`` leaves this
module out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

__all__ = ["SupportsDLPack", "SupportsExchangeAPI"]


@runtime_checkable
class SupportsDLPack(Protocol):
    """An object that exports itself through the Python protocol (R1, R64).

    The other keywords of ``__dlpack__`` came later; `dlx.from_dlpack` can do without.
    """

    def __dlpack__(self, *, stream: int | None = ...) -> CapsuleType:
        """Export a capsule."""

    def __dlpack_device__(self) -> tuple[int, int]:
        """``(device type, device id)``."""


@runtime_checkable
class SupportsExchangeAPI(Protocol):
    """An object whose class has a C exchange table (R112, R113).

    A property, because some libraries declare the attribute on the instance and as
    ``object``; C consumers look it up on the class.
    """

    @property
    def __dlpack_c_exchange_api__(self) -> object:
        """The capsule named ``dlpack_exchange_api``."""
