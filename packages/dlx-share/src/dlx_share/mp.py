"""Tensors in `multiprocessing`: through shared memory instead of a pipe.

`register` has queues, pipes, pools and arguments of processes send tensors as segments
of `dlx.share`. `docs/sharing.md` shows it. Linux only.
"""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from multiprocessing.resource_sharer import DupFd
from typing import Any

from dlx._core import CopyRefused, Tensor
from dlx.pickling import _delivered, _leave

from .pickling import _described, _exact, _target
from .sharing import Handle, _checked, _read, attach, share

__all__ = ["register"]

_SMALL = 65536  # Bytes below which a pipe is as fast as a segment.


def _arrived(target: object, file: DupFd, data: bytes) -> object:
    """Attach what another process has sent; called by ``pickle``."""
    described = _read(data)
    opened = _checked(file.detach(), described)
    with Handle._of(opened, described, False) as handle:
        return _delivered(attach(handle, like=None, mode=None), target)


def _shared(t: Tensor) -> Handle | None:
    """Return a handle to a tensor's memory or to a copy; None for a small copy."""
    try:
        return share(t, copy=False, readonly=False)
    except CopyRefused:
        if t.span[1] < _SMALL:
            return None
        return share(t, copy=True, readonly=t.readonly)


def _reducer(before: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """Return a reducer, which leaves to ``before`` what it cannot do."""

    def reduce(x: Any) -> Any:
        target = _target(x)
        t = _described(target, x)
        if t is None or t.device != "cpu":
            return before(x) if before else x.__reduce_ex__(4)
        handle = _shared(t)
        if handle is None:
            return _leave(t, 4, target)  # For protocol 4 and any other.
        with handle:
            return _arrived, (target, DupFd(handle._fileno()), bytes(handle))

    return reduce


def register(*types: type) -> None:
    """Have `multiprocessing` send instances of these classes through shared memory.

    It counts for what this process sends. Memory that is shared already is the same
    memory at the other end; other memory is copied once, into a segment that the
    receiver has alone, and below 64 KiB through the pipe. The receiver needs dlx, and
    no call. What dlx cannot describe, and tensors on devices, go to the reducer that
    was registered before.

    Raises ``TypeError`` for classes that are none of dlx, of a mixin, NumPy, torch, JAX
    or MLX.
    """
    reducers: dict[type, Any] = vars(ForkingPickler)["_extra_reducers"]
    for cls in (kind for given in types for kind in _exact(given)):
        before = reducers.get(cls)
        if getattr(before, "__module__", None) != __name__:
            ForkingPickler.register(cls, _reducer(before))
