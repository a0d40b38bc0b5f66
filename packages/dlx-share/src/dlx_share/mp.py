"""Tensors in `multiprocessing`: of any dtype, and shared memory as what it is.

`register` has queues, pipes, pools and arguments of processes send tensors by dlx.
Linux only.
"""

from __future__ import annotations

import copyreg
import os
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import parent_process, resource_sharer
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler, send_handle
from typing import Any

from dlx._core import OpenFile, Tensor
from dlx._mixin.pickled import beside
from dlx.pickling import _delivered, _leave

from .pickling import _described, _exact, _target, _word
from .sharing import Handle, _checked, _read, attach, share
from .sharing._handle import Lost

__all__ = ["register"]

_Reducer = Callable[[Any], Any]
_IN = os.getpid()
# Descriptors that wait at once. Those of a process are few, and it needs others.
_MOST = 64
_sharer: Any = vars(resource_sharer)["_resource_sharer"]


class LostTensor(Lost):
    """What arrives in place of a tensor that cannot: it says why when it is used.

    Pools read results in a thread of their own, which an exception would end.
    """

    __slots__ = ()

    def __init__(self, data: bytes = b"", reason: str = "") -> None:
        """Note why it is lost."""
        super().__init__(data, reason)

    def _refuse(self, *_: object, **__: object) -> Any:
        raise BufferError(self._reason)

    __array__ = __bool__ = __dlpack__ = __getitem__ = __iter__ = __len__ = _refuse
    __setitem__ = __float__ = __int__ = _refuse

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        """Pickle the reason."""
        return LostTensor, (b"", self._reason)


def _lost(error: Exception) -> LostTensor:
    return LostTensor(reason=f"the tensor has not arrived: {error}")


def _arrived(target: object, waiting: object, data: bytes) -> object:
    """Attach what another process has shared; called by ``pickle``."""
    try:
        described = _read(data)
        with _sharer.get_connection(waiting) as there:
            there.poll(None)
            _, (file,), _ = OpenFile.received(there.fileno(), 1)
        with Handle._of(_checked(file, described), described, False) as handle:
            return _delivered(attach(handle, like=None, mode=None), target)
    except Exception as error:  # Also what the library of the tensor raises.
        return _lost(error)


def _made(make: Callable[..., object], *fields: object) -> object:
    """Make a tensor of its bytes; called by ``pickle``."""
    try:
        return make(*fields)
    except Exception as error:
        return _lost(error)


def _lend(x: Tensor) -> tuple[object, bytes] | None:
    """Have a descriptor of shared memory wait; return where, and the handle's bytes.

    None for other memory, and where the memory itself would not arrive: a child may end
    before it is read, and of descriptors a process has few.
    """
    if parent_process() is not None or os.getpid() != _IN:
        return None
    if len(_sharer._cache) >= _MOST:
        return None
    with suppress(BufferError, OSError):
        with share(x, copy=False, readonly=False) as handle:
            data, (file, _) = bytes(handle), handle._duplicate(False)

        def send(there: Connection, pid: int) -> None:
            send_handle(there, file.fileno(), pid)

        waiting: object = _sharer.register(send, file.close)
        return waiting, data
    return None


def _reducer(before: _Reducer | None) -> _Reducer:
    """Return a reducer, which leaves to ``before`` what it cannot do."""

    def reduce(x: Any) -> Any:
        target = _target(x)
        t = _described(target, x)
        if t is None or t.device != "cpu" or (type(x) is target and beside(x)):
            return before(x) if before else x.__reduce_ex__(4)
        if lent := _lend(t):
            return _arrived, (target, *lent)
        # Its bytes would be a copy, and torch's other end sees what is written.
        if before and target == "torch" and x.is_shared():
            return before(x)
        make, fields = _leave(t, 4, target)  # For protocol 4 and any other.
        return _made, (make, *fields)

    return reduce


class _Reducers(dict[type, _Reducer]):
    """Reducers, and dlx's for the tensors of libraries that may be imported later."""

    def copy(self) -> _Reducers:
        """Return what a pickler begins with, and then adds those of this engine to."""
        return _Reducers(copyreg.dispatch_table)

    def __getitem__(self, cls: type) -> _Reducer:
        """Return dlx's reducer, which may need the one that is there."""
        there = self.get(cls)
        if not _is_of_dlx(there) and (issubclass(cls, Tensor) or _word(cls)):
            return _reducer(there)
        if there is None:
            raise KeyError(cls)
        return there


def _is_of_dlx(reducer: _Reducer | None) -> bool:
    return getattr(reducer, "__module__", None) == __name__


def register(*types: type) -> None:
    """Have `multiprocessing` send instances of these classes by dlx.

    Without classes: a `dlx.Tensor`, and tensors of NumPy, torch, JAX and MLX, whenever
    these are imported. It counts for what this process sends; the receiver needs dlx,
    and no call. Shared memory of a process that `multiprocessing` has not started is
    the same memory at the other end. All else travels as its bytes, and arrives though
    its sender has ended. What dlx cannot describe, and tensors on devices, go to the
    reducer that was registered before.

    Raises ``TypeError`` for classes that are none of dlx, of a mixin, NumPy, torch, JAX
    or MLX.
    """
    if not types:
        setattr(ForkingPickler, "_copyreg_dispatch_table", _Reducers())  # noqa: B010
    reducers: dict[type, Any] = vars(ForkingPickler)["_extra_reducers"]
    for cls in (kind for given in types for kind in _exact(given)):
        before = reducers.get(cls)
        if not _is_of_dlx(before):
            ForkingPickler.register(cls, _reducer(before))
