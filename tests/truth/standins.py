"""Objects that stand for others: by dlx's mixins, or by handing on a protocol."""

from __future__ import annotations

import sys
from typing import Any

import dlx
import numpy as np

from .said import Said, package_of, says


class Held(dlx.ExchangeMixin, exchange="data"):
    """Stands for what its attribute holds."""

    def __init__(self, data: Any) -> None:
        """Keep what it stands for."""
        self.data = data

    def __truth__(self) -> Said | None:
        """Say what that says."""
        return says(self.data)


class Given(dlx.ExchangeMixin):
    """Stands for what its method gives."""

    def __init__(self, data: Any) -> None:
        """Keep what it stands for."""
        self.data = data

    def __dlx_export__(self) -> Any:
        """Hand on."""
        return self.data

    def __truth__(self) -> Said | None:
        """Say what that says."""
        return says(self.data)


class Interface(dlx.ArrayInterfaceMixin, exchange="data"):
    """Shows what its attribute holds by NumPy's array interface."""

    def __init__(self, data: Any) -> None:
        """Keep what it stands for."""
        self.data = data

    def __truth__(self) -> Said | None:
        """Say what that says."""
        return says(self.data)


def handed_on(inner: Any) -> Said | None:
    """Say what an object's own ``__dlpack__`` gives.

    NumPy's forgets the mask, and torch's the negation.
    """
    if isinstance(inner, np.ma.MaskedArray):
        return says(inner.data)
    if package_of(inner) == "torch" and inner.is_neg():
        return says(sys.modules["torch"]._neg_view(inner))
    return says(inner)


class Forward:
    """Forwards the protocol as it is, as wrappers in torch's tests do."""

    def __init__(self, inner: Any) -> None:
        """Keep what answers."""
        self.inner = inner

    def __dlpack__(self, **keywords: Any) -> Any:
        """Hand on."""
        return self.inner.__dlpack__(**keywords)

    def __dlpack_device__(self) -> Any:
        """Hand on."""
        return self.inner.__dlpack_device__()

    def __truth__(self) -> Said | None:
        """Say what the inner object says."""
        return handed_on(self.inner)


class Old:
    """A producer of before versions: nothing in its capsule can say read-only."""

    def __init__(self, inner: Any) -> None:
        """Keep what answers."""
        self.inner = inner

    def __dlpack__(self, stream: Any = None) -> Any:
        """Hand on."""
        return self.inner.__dlpack__()

    def __dlpack_device__(self) -> Any:
        """Hand on."""
        return self.inner.__dlpack_device__()

    def __truth__(self) -> Said | None:
        """Say what the inner object says."""
        said = handed_on(self.inner)
        return None if said is None else said._replace(unsaid=True)


class Proxy:
    """Answers what its inner object answers, by ``__getattr__``."""

    def __init__(self, inner: Any) -> None:
        """Keep what answers."""
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        """Hand on."""
        return getattr(self._inner, name)

    def __dlpack__(self, *positional: Any, **keywords: Any) -> Any:
        """Hand on."""
        return self._inner.__dlpack__(*positional, **keywords)

    def __dlpack_device__(self) -> Any:
        """Hand on."""
        return self._inner.__dlpack_device__()

    def __truth__(self) -> Said | None:
        """Say what the inner object says."""
        return handed_on(self._inner)


class Carrier:
    """Gives the capsules of an Arrow array, and is none."""

    def __init__(self, inner: Any) -> None:
        """Keep what answers."""
        self.inner = inner

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        """Hand on."""
        return self.inner.__arrow_c_array__(requested_schema)

    def __truth__(self) -> Said | None:
        """Say what the inner object says."""
        return says(self.inner)


INNER: dict[type, str] = {
    **dict.fromkeys((Held, Given, Interface), "data"),
    **dict.fromkeys((Forward, Old, Carrier), "inner"),
    Proxy: "_inner",
}
"""Where each class keeps what its objects stand for."""

FORWARDERS = (Forward, Old, Proxy)
"""The classes whose answer is the own ``__dlpack__`` of what they stand for."""
