"""Objects that stand in for others: mixin classes, and forwarders of a protocol."""

from __future__ import annotations

from typing import Any

import dlx
import numpy as np
from support.dlpack_abi import DLManagedTensorVersioned, managed_in

from .libraries import FOUND
from .said import Said, is_masked
from .said_torch import is_negated, is_torch
from .says import says


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
    if isinstance(inner, np.ndarray) and is_masked(inner):
        return says(np.array(inner.data))
    said = says(inner)
    if said is not None and is_torch(inner) and is_negated(inner):
        return says(FOUND["torch"]._neg_view(inner))
    return said


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


class Flagged:
    """A producer of a later DLPack, with flags that DLPack 1.3 does not define."""

    def __init__(self, inner: Any, flags: int, minor: int = 3) -> None:
        """Keep the inner object."""
        self.inner, self.flags, self.minor = inner, flags, minor

    def __dlpack__(self, **keywords: Any) -> Any:
        """Change what the inner object exports."""
        capsule = self.inner.__dlpack__(**keywords | {"max_version": (1, 3)})
        managed = managed_in(capsule)
        if isinstance(managed, DLManagedTensorVersioned):
            managed.flags |= self.flags
            managed.version.minor = self.minor
        elif self.flags:
            raise BufferError("there are no flags in this version")
        return capsule

    def __dlpack_device__(self) -> Any:
        """Forward to the inner object."""
        return self.inner.__dlpack_device__()

    def __truth__(self) -> Said | None:
        """Return what the inner object says; nobody knows what unknown flags change."""
        return handed_on(self.inner) if self.flags == 0 else None


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
        """Return what the innermost object says; Arrow asks no ``__dlpack__``."""
        inner = self.inner
        while isinstance(inner, Carrier):
            inner = inner.inner
        return says(inner)


INNER: dict[type, str] = {
    **dict.fromkeys((Held, Given, Interface), "data"),
    **dict.fromkeys((Forward, Old, Flagged, Carrier), "inner"),
    Proxy: "_inner",
}
"""The attribute in which each class keeps the inner object."""

FORWARDERS = (Forward, Old, Flagged, Proxy)
"""The classes that forward the inner object's own ``__dlpack__``."""
