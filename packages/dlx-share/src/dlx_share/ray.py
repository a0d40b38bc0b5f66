"""Tensors in Ray: torch's and JAX's in its object store, and between actors.

`register` is called where objects are made, and in workers by
``runtime_env={"worker_process_setup_hook": "dlx_share.ray.register"}``. Who reads them
needs dlx and no call. `examples/ray_store.py` and `ray_actors.py` of dlx-share are
programs that do so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pickle import PickleBuffer
from typing import Any

from dlx._core import CopyRefused
from dlx.pickling import _delivered
from ray.cloudpickle import CloudPickler
from ray.experimental import (
    CommunicatorMetadata,
    TensorTransportManager,
    TensorTransportMetadata,
    register_tensor_transport,
)

from .pickling import Pickler, _exact, _target, _word
from .sharing import Handle, attach, share

__all__ = ["SharedMemory", "register", "register_transport"]

_pickler = Pickler(BytesIO())


class _Buffer:
    """The buffer of a tensor, out of band where the pickler's protocol has that."""

    __slots__ = ("buffer",)

    def __init__(self, buffer: PickleBuffer) -> None:
        self.buffer = buffer

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        if protocol >= 5:
            return memoryview, (self.buffer,)
        return bytearray, (bytes(self.buffer.raw()),)


def _in_any_protocol(reduced: Any) -> Any:
    """Return the reduction of a tensor, which does not know the pickler's protocol."""
    if isinstance(reduced, str):
        return reduced
    make, given, *more = reduced
    given = [_Buffer(x) if type(x) is PickleBuffer else x for x in given]
    return (make, tuple(given), *more)


class _Reducers(dict[type, Callable[[Any], Any]]):
    """Ray's reducers, and dlx's for classes that may be imported later."""

    def __init__(self, before: dict[type, Callable[[Any], Any]]) -> None:
        super().__init__(before)
        # Ray keeps functions among the classes.
        classes = [cls for cls in before if isinstance(cls, type)]
        self._before = {cls: self.pop(cls) for cls in classes if _word(cls)}

    def __missing__(self, cls: type) -> Callable[[Any], Any]:
        if _word(cls) is None:
            raise KeyError(cls)
        return self._reduce

    def _reduce(self, x: Any) -> Any:
        reduced = _pickler.reducer_override(x)
        if reduced is not NotImplemented:
            return _in_any_protocol(reduced)
        before = self._before.get(type(x))
        return before(x) if before else _in_any_protocol(x.__reduce_ex__(5))


def register() -> None:
    """Have Ray put tensors of torch, JAX and MLX into its store by dlx, in any dtype.

    JAX, NumPy and `dlx.Tensor` then read the store in place, and torch gets a copy of
    its own, because it has no read-only tensors. It counts for objects that this
    process makes. What dlx cannot describe goes to what was registered before, or is
    pickled as ever. No library is imported; call it as often as you like.
    """
    reducers = CloudPickler.dispatch_table.maps
    if not isinstance(reducers[0], _Reducers):
        reducers[0] = _Reducers(reducers[0])


@dataclass
class _Metadata(TensorTransportMetadata):  # type: ignore[misc]
    """What Ray sends to the receiver instead of the tensors."""

    handles: tuple[tuple[Any, bytes], ...] = ()


class SharedMemory(TensorTransportManager):  # type: ignore[misc]
    """Ray Direct Transport by `dlx.share`, between actors of one host.

    Memory that is shared already is the same memory in the receiver. Other memory is
    copied once, and frozen: what a receiver writes stays its own. Ray's reference count
    decides how long a handle is held.
    """

    def __init__(self) -> None:
        """Hold nothing."""
        self._held: dict[str, list[Handle]] = {}

    @property
    def tensor_transport_backend(self) -> str:
        """The name in ``tensor_transport=``."""
        return "DLX_SHM"

    @staticmethod
    def is_one_sided() -> bool:
        """Say that the receiver asks nobody."""
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        """Say that a transfer that fails leaves nobody waiting."""
        return True

    def actor_has_tensor_transport(self, actor: object) -> bool:
        """Say that every actor has shared memory."""
        return True

    def extract_tensor_transport_metadata(
        self, obj_id: str, rdt_object: list[Any]
    ) -> _Metadata:
        """Share the tensors of an object until Ray releases it."""
        handles = [self._share(x) for x in rdt_object]
        self._held.setdefault(obj_id, []).extend(handles)
        pairs = zip(rdt_object, handles, strict=True)
        return _Metadata(
            tensor_meta=[(x.shape, x.dtype) for x in rdt_object],
            tensor_device="cpu",
            handles=tuple((_target(x), bytes(h)) for x, h in pairs),
        )

    @staticmethod
    def _share(x: object) -> Handle:
        try:
            return share(x, copy=False, readonly=False)
        except CopyRefused:
            return share(x, copy=True, readonly=True)

    def get_communicator_metadata(self, *_: object) -> CommunicatorMetadata:
        """Return nothing: the handles say all."""
        return CommunicatorMetadata()

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: _Metadata,
        communicator_metadata: object,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        """Attach the tensors of an object."""
        if target_buffers:
            raise ValueError(
                "DLX_SHM does not receive into buffers; copy what it gives"
            )
        return [
            # torch gets a private mapping of what is frozen, and not a copy.
            attach(data, like="torch", mode=None)
            if target == "torch"
            else _delivered(attach(data, like=None, mode=None), target)
            for target, data in tensor_transport_metadata.handles
        ]

    def send_multiple_tensors(self, *_: object) -> None:
        """Raise: the receiver reads."""
        raise NotImplementedError

    def garbage_collect(self, obj_id: str, *_: object) -> None:
        """Close the handles of an object."""
        for handle in self._held.pop(obj_id, ()):
            handle.close()

    def abort_transport(self, *_: object) -> None:
        """Do nothing: no side waits for the other."""


def register_transport(data_type: type | None = None, name: str = "DLX_SHM") -> None:
    """Register `SharedMemory` for ``@ray.method(tensor_transport="DLX_SHM")``.

    Call it before the class of the actor is defined, in the process that creates the
    actors. ``data_type`` is the class of the tensors, by default ``torch.Tensor``; Ray
    takes one for each name, so another one needs another ``name``.

    Raises ``ValueError`` for a name that is registered, and ``TypeError`` for a class
    that is none of dlx, of a mixin, NumPy, torch, JAX or MLX.
    """
    if data_type is None:
        import torch

        data_type = torch.Tensor
    register_tensor_transport(name, ["cpu"], SharedMemory, _exact(data_type)[0])
