"""Pickles of tensors: the bytes of any dtype, and the type at the other end.

A `dlx.Tensor` pickles by itself, in every protocol; with protocol 5 and a
``buffer_callback`` its memory is not copied. `dlx_share.dumps` and `dlx_share.Pickler`
do the same for tensors of torch, JAX and MLX, and arrays of ml_dtypes, inside any
object; to load what they write takes dlx alone.
The README of dlx-share says what becomes of which tensor. Unpickling runs code: load
only what you trust.
"""

from __future__ import annotations

import sys
from pickle import PickleBuffer

from ._core import (
    DType,
    Tensor,
    __version__,
    convert,
    from_buffer,
    from_pointer,
    import_tensor,
)
from ._mixin import ExchangeMixin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

__all__ = ["device"]

device: Literal["refuse", "cpu"] = "refuse"
"""What pickles of this process do with tensors on a GPU.

``"refuse"`` raises ``BufferError``; ``"cpu"`` copies their elements to the host, and
they arrive there. It counts for all threads, because queues pickle in their own.
"""

_VERSION = 1
_READ_ONLY, _PADDED = 1, 4  # as in dlpack.h
_IN_BAND = 8  # The bytes are of a pickle, which nobody writes to: a copy may.

# Whose tensors arrive as what they were: the package and the name of the exact class,
# and the module to import there.
_LIBRARIES = {
    "numpy": ("numpy", "ndarray", "numpy"),
    "torch": ("torch", "Tensor", "torch"),
    "jax": ("jaxlib", "ArrayImpl", "jax"),
    "mlx": ("mlx", "array", "mlx.core"),
}
# What was found once, and cannot change: the class of each library.
_classes_found: dict[str, type] = {}


def _other_order() -> BufferError:
    return BufferError("pickled tensors are little-endian; this machine is not")


def _on_host(t: Tensor) -> Tensor:
    """Return ``t`` in memory of the host, or refuse."""
    kind = t.device.type.name
    if kind in ("CUDA_HOST", "ROCM_HOST"):
        return t
    if device == "cpu" or kind == "CUDA_MANAGED":
        return t.to(device="cpu")
    if device != "refuse":
        raise ValueError(
            f"dlx.pickling.device is {device!r}; expected 'refuse' or 'cpu'"
        )
    raise BufferError(
        f"the tensor is on {t.device}, and a pickle holds memory of the host; pickle "
        't.to(device="cpu"), or set dlx.pickling.device = "cpu", and it arrives there'
    )


def _dense(t: Tensor) -> tuple[memoryview, tuple[int, ...]]:
    """Return bytes without gaps that hold the elements of ``t``, and its strides there.

    They are its own memory, or a copy of the elements that strides do not repeat.
    """
    try:
        return t.raw(), t.strides
    except BufferError:
        pass
    once = tuple(slice(1) if stride == 0 else slice(None) for stride in t.strides)
    copied = t[once].to(device="cpu", copy=True)
    pairs = zip(t.strides, copied.strides, strict=True)
    return copied.raw(), tuple(new and old and new for old, new in pairs)


def _may_repeat(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether strides may lead to one element twice, so that nobody should write.

    Not if each stride leads beyond what the smaller ones reach.
    """
    if 0 in shape:
        return False
    reached = 0
    steps = zip(map(abs, strides), shape, strict=True)
    for stride, extent in sorted(step for step in steps if step[1] > 1):
        if stride <= reached:
            return True
        reached += stride * (extent - 1)
    return False


def _triple(dtype: DType) -> tuple[int, int, int]:
    return dtype.code, dtype.bits, dtype.lanes


def _strided(
    t: Tensor, target: str | type[ExchangeMixin]
) -> tuple[Tensor, memoryview, tuple[int, ...] | None]:
    """Return how a tensor travels that has no bytes in row-major order: with strides.

    On a device it is refused, or what travels is a copy.
    """
    if t.device != "cpu":
        t = _on_host(t)
    # Arrays of these libraries take no strides, so they get no memory but this.
    if target in ("jax", "mlx") and not t.is_contiguous:
        t = t.to(device="cpu", copy=True)
    raw, strides = _dense(t)
    given = None if t.is_contiguous else strides
    # What writes to a repeated element writes to others. torch takes that.
    if t.readonly or (given and target != "torch" and _may_repeat(t.shape, strides)):
        raw = raw.toreadonly()
    return t, raw, given


def _leave(
    t: Tensor,
    protocol: int,
    target: str | type[ExchangeMixin] = "dlx",
    dtype: tuple[int, int, int] | None = None,
) -> tuple[Callable[..., object], tuple[object, ...]]:
    """Return what ``pickle`` writes for ``t``, which arrives as ``target``."""
    if sys.byteorder != "little":
        raise _other_order()
    strides = None
    try:
        raw = t.raw() if t.is_contiguous else None
    except BufferError:  # It is on a device, or begins within a byte.
        raw = None
    if raw is None:
        t, raw, strides = _strided(t, target)
    flags = _READ_ONLY if raw.readonly else 0
    if t.is_padded:
        flags |= _PADDED
    buffer: object
    if protocol >= 5:
        buffer = PickleBuffer(raw)
    else:
        buffer, flags = bytes(raw), flags | _IN_BAND
    if dtype is None:
        dtype = _triple(t.dtype)
    return _arrive, (_VERSION, target, t.shape, strides, dtype, flags, buffer)


def _arrive(version: int, *fields: Any) -> object:
    """Make the tensor that a pickle holds; called by ``pickle``.

    Raises ``BufferError`` for fields that do not fit each other, and what
    ``__dlx_import__`` raises.
    """
    if version != _VERSION:
        raise BufferError(
            f"the pickled tensor has version {version}; dlx {__version__} reads "
            f"version {_VERSION}: use the same dlx here as where it was pickled"
        )
    if sys.byteorder != "little":
        raise _other_order()
    try:
        target, shape, strides, dtype, flags, buffer = fields
        if flags & ~(_READ_ONLY | _PADDED | _IN_BAND):
            raise ValueError(f"flags {flags} are not known")
        view = memoryview(buffer)
        if target == "torch":
            if strides is not None and min(strides) < 0:
                raise ValueError(f"torch has no strides {strides}")
            # Its tensors are never read-only. Only the bytes are copied: no stride
            # changes.
            readonly, copy = False, view.readonly or None
        else:
            if strides is not None and target in ("jax", "mlx"):
                raise ValueError(f"{target} has no strides {strides}")
            readonly = bool(flags & _READ_ONLY)
            copy = flags & (_IN_BAND | _READ_ONLY) == _IN_BAND or None
        tensor = from_buffer(
            buffer,
            shape,
            dtype,
            strides=strides,
            copy=copy,
            readonly=readonly,
            padded=bool(flags & _PADDED),
        )
        taken = tensor.nbytes if strides is None else tensor.span[1]
        if taken != view.nbytes:
            raise ValueError(
                f"{tensor} takes {taken} bytes, but there are {view.nbytes}"
            )
    except (TypeError, ValueError, ArithmeticError) as error:
        raise BufferError(f"the pickled tensor is damaged: {error}") from error
    return _delivered(tensor, target)


def _delivered(tensor: Tensor, target: object) -> object:
    """Return a tensor as what it was where it left."""
    if target == "dlx":
        return tensor
    if isinstance(target, type) and issubclass(target, ExchangeMixin):
        return import_tensor(target, tensor)
    if not isinstance(target, str) or target not in _LIBRARIES:
        raise BufferError(
            f"the pickled tensor is for {target!r}; expected 'dlx', "
            f"{', '.join(map(repr, _LIBRARIES))} or a mixin class"
        )
    shared = tensor
    if target == "jax" and tensor.readonly:
        # It never writes to an array, and copies what is called read-only.
        shared = from_pointer(tensor.data_ptr, tensor.shape, tensor.dtype, owner=tensor)
    if (like := _classes_found.get(target)) is not None:
        return convert(shared, like)
    package, _, module = _LIBRARIES[target]
    try:
        made = convert(shared, module)
    except ModuleNotFoundError as error:
        if error.name not in (package, module, target):
            raise
        return tensor  # There is no such library here.
    _classes_found[target] = type(made)
    return made
