"""Objects that stand in for others: mixin classes, and forwarders of a protocol."""

from __future__ import annotations

import sys
from typing import Any

import dlx
import numpy as np

from .said import Said, package_of, says


class Held(dlx.ExchangeMixin, exchange="data"):
    """Exports its attribute."""

    def __init__(self, data: Any) -> None:
        """Keep the inner object."""
        self.data = data

    def __truth__(self) -> Said | None:
        """Return what the inner object says."""
        return says(self.data)


class Given(dlx.ExchangeMixin):
    """Exports the result of its method."""

    def __init__(self, data: Any) -> None:
        """Keep the inner object."""
        self.data = data

    def __dlx_export__(self) -> Any:
        """Forward to the inner object."""
        return self.data

    def __truth__(self) -> Said | None:
        """Return what the inner object says."""
        return says(self.data)


class Interface(dlx.ArrayInterfaceMixin, exchange="data"):
    """Exports its attribute, also through NumPy's array interface."""

    def __init__(self, data: Any) -> None:
        """Keep the inner object."""
        self.data = data

    def __truth__(self) -> Said | None:
        """Return what the inner object says."""
        return says(self.data)


def handed_on(inner: Any) -> Said | None:
    """Return what an object's own ``__dlpack__`` exports.

    NumPy's forgets the mask, and torch's the negation.
    """
    if isinstance(inner, np.ma.MaskedArray):
        return says(inner.data)
    if package_of(inner) == "torch" and inner.is_neg():
        return says(sys.modules["torch"]._neg_view(inner))
    return says(inner)


class Forward:
    """Forwards the protocol unchanged, like the wrappers in torch's tests."""

    def __init__(self, inner: Any) -> None:
        """Keep the inner object."""
        self.inner = inner

    def __dlpack__(self, **keywords: Any) -> Any:
        """Forward to the inner object."""
        return self.inner.__dlpack__(**keywords)

    def __dlpack_device__(self) -> Any:
        """Forward to the inner object."""
        return self.inner.__dlpack_device__()

    def __truth__(self) -> Said | None:
        """Return what the inner object says."""
        return handed_on(self.inner)


class Old:
    """A producer from before DLPack 1, whose capsules cannot say read-only."""

    def __init__(self, inner: Any) -> None:
        """Keep the inner object."""
        self.inner = inner

    def __dlpack__(self, stream: Any = None) -> Any:
        """Forward to the inner object."""
        return self.inner.__dlpack__()

    def __dlpack_device__(self) -> Any:
        """Forward to the inner object."""
        return self.inner.__dlpack_device__()

    def __truth__(self) -> Said | None:
        """Return what the inner object says."""
        said = handed_on(self.inner)
        return None if said is None else said._replace(unsaid=True)


class Proxy:
    """Forwards every attribute, through ``__getattr__``."""

    def __init__(self, inner: Any) -> None:
        """Keep the inner object."""
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        """Forward to the inner object."""
        return getattr(self._inner, name)

    def __dlpack__(self, *positional: Any, **keywords: Any) -> Any:
        """Forward to the inner object."""
        return self._inner.__dlpack__(*positional, **keywords)

    def __dlpack_device__(self) -> Any:
        """Forward to the inner object."""
        return self._inner.__dlpack_device__()

    def __truth__(self) -> Said | None:
        """Return what the inner object says."""
        return handed_on(self._inner)


class Carrier:
    """Not an Arrow array, but returns the capsules of one."""

    def __init__(self, inner: Any) -> None:
        """Keep the inner object."""
        self.inner = inner

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        """Forward to the inner object."""
        return self.inner.__arrow_c_array__(requested_schema)

    def __truth__(self) -> Said | None:
        """Return what the inner object says."""
        return says(self.inner)


INNER: dict[type, str] = {
    **dict.fromkeys((Held, Given, Interface), "data"),
    **dict.fromkeys((Forward, Old, Carrier), "inner"),
    Proxy: "_inner",
}
"""The attribute in which each class keeps the inner object."""

FORWARDERS = (Forward, Old, Proxy)
"""The classes that forward the inner object's own ``__dlpack__``."""
