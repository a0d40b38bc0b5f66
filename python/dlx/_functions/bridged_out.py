"""``out`` of bridged functions: written in place, where its owner looks."""

from __future__ import annotations

from operator import is_

from .. import _core
from .._containers.parts import held_by
from .._containers.tree import place
from .._core import placed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .kind import Kind

__all__ = ["Outs"]


class Outs:
    """The ``out`` tensors of one call, and the caller's objects behind them."""

    def __init__(self) -> None:
        # By the id of the object that the function sees, which the values keep alive.
        self.seen: dict[int, tuple[Any, Any]] = {}
        # What the caller passed.
        self.tree: Any = None
        # Objects passed in place of the caller's own, and their state before the call;
        # of a tensor also that object.
        self.tensors: list[tuple[Any, Any, Any]] = []
        self.containers: list[tuple[Any, list[Any]]] = []
        # Tensors that another library writes to, with what was lent of each.
        self.lent: list[tuple[Any, Any]] = []

    def take(self, into: Kind, x: Any) -> Any:
        """Convert a tensor without copying it."""
        is_own = isinstance(x, into.to) and not _core.only_exports(x)
        own, lent = (x, None) if is_own else _core.written(x)
        try:
            new = into.leaf(own, copy=False)
        except _core.CopyRefused as refused:
            # Its advice is for who calls `convert`.
            why = str(refused).removeprefix("copy=False, but ").partition("; pass ")[0]
            raise _core.CopyRefused(
                f"out is written in place, where its owner looks, but {why}; pass an "
                "out that needs no copy"
            ) from refused
        if new is not x:
            now = placed(new)
            if now[:2] != placed(x)[:2]:
                raise _core.CopyRefused(
                    "out is written in place, where its owner looks: "
                    f"{type(x).__qualname__} exports other memory each time"
                )
            self.tensors.append((new, now, x))
            # The function's own library knows what it does to its own tensors.
            if lent is not None:
                self.lent.append((x, lent))
        self.seen[id(new)] = (new, x)
        return new

    def note(self, new: Any, x: Any, rebuilt: list[Any]) -> None:
        """Record that ``new``, with its ``rebuilt`` containers, is passed for ``x``."""
        self.tree = x
        self.seen[id(new)] = (new, x)
        self.containers += [(container, held_by(container)) for container in rebuilt]

    def written(self) -> None:
        """Let the owners know that the function may have written to their tensors."""
        failed: list[Exception] = []
        for x, lent in self.lent:
            try:
                _core.increment_version(x, lent)
            except Exception as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def replaced(self) -> Iterator[tuple[BufferError, str]]:
        """Yield an error and a place for what the function gave other memory."""
        for new, before, x in self.tensors:
            try:
                now = placed(new)
            except Exception as error:
                why = str(error).partition("\n")[0]  # C++ libraries append a backtrace
                found = _elsewhere(f"made it one that cannot be read: {why}")
                found.__cause__ = error
                yield found, place(x, self.tree)
                continue
            if now != before:
                what = f"gave it {_described(now)}, not {_described(before)}"
                yield _elsewhere(what), place(x, self.tree)
        for new, held in self.containers:
            now_held = held_by(new)
            if len(now_held) != len(held) or not all(map(is_, now_held, held)):
                yield _elsewhere("put something else into it"), ""

    def given(self, x: Any) -> Any:
        """Return the caller's own object for ``x``, or None."""
        own = self.seen.get(id(x))
        return None if own is None else own[1]


def _elsewhere(what: str) -> BufferError:
    return BufferError(
        "out is written in place, where its owner looks, but the function "
        f"{what}; assign to its elements, out[...] = value, or return the result"
    )


def _described(placed: tuple[int, Any, Any, str, str]) -> str:
    address, shape, strides, dtype, device = placed
    return f"{dtype} {shape} with strides {strides} at {address:#x} on {device}"
