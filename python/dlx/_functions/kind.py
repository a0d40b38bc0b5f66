"""Kinds of tensors that bridged functions take and return."""

from __future__ import annotations

from .. import _core
from .._containers.tree import has_no_numbers
from .._core import convert
from .._mixin import ExchangeMixin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

__all__ = ["Kind"]


class Kind(_core.Kind):
    """A kind of tensor, and the conversion to it."""

    how: dict[str, Any]
    """The keywords of `dlx.convert` that the bridge was given."""

    def __new__(cls, to: type, how: dict[str, Any]) -> Self:
        is_mixin = issubclass(to, ExchangeMixin)
        default = ExchangeMixin.__dlx_like__ if is_mixin else None
        made = super().__new__(cls, to, _core.Types(), default)
        made.how = how
        return made

    def leaf(self, x: Any, copy: bool | None = None, like: Any = None) -> Any:
        """Convert ``x`` if it is a tensor of another kind, if need be ``like`` one."""
        # Types of other objects are not remembered: they may become tensor types.
        if not _core.is_tensor(x):
            return x
        self.known.add(type(x), None)
        if isinstance(x, self.to) and not _core.only_exports(x):
            return x
        into = self.to if like is None else like
        # Of what is written in place (copy=False) nothing is recorded: see `Outs.take`.
        how = self.how if copy is None else {"detach": True}
        try:
            return convert(x, into, copy=copy, **how)
        except Exception:
            if copy is None and has_no_numbers(x):
                return x  # as of a class that is no tensor's
            raise

    def stands_for(self, cls: type) -> bool:
        """Whether ``cls`` derives from this type, judged by its bases alone."""
        # By identity: a metaclass can override equality.
        return any(base is self.to for base in cls.__mro__)
