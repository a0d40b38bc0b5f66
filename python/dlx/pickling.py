"""Pickles of tensors: the bytes of any dtype, and the type at the other end.

A `dlx.Tensor` pickles by itself, in every protocol; with protocol 5 and a
``buffer_callback`` its memory is not copied. `dumps` and `Pickler` do the same for
tensors of torch, JAX and MLX, and arrays of ml_dtypes, inside any object.
`docs/sharing.md` says what becomes of which tensor. Unpickling runs code: load only
what you trust.
"""

from __future__ import annotations

import pickle
import sys
from io import BytesIO
from pickle import PickleBuffer

from ._core import (
    DType,
    Tensor,
    __version__,
    convert,
    from_buffer,
    from_dlpack,
    from_pointer,
    import_tensor,
)
from ._mixin import ExchangeMixin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from _typeshed import SupportsWrite

__all__ = ["Pickler", "device", "dumps"]

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
_PAIRS = "torch.float4_e2m1fn_x2"
_WORDS = {(entry[1], entry[0]): word for word, entry in _LIBRARIES.items()}
_NAMES = {name for name, _ in _WORDS}

# Asked of `type`, because a metaclass may answer otherwise.
_name_of = type.__dict__["__name__"].__get__
_module_of = type.__dict__["__module__"].__get__

# What libraries raise that cannot export a tensor.
_REFUSALS = BufferError, RuntimeError, TypeError, ValueError

# What was found once, and cannot change: the libraries of exact classes, the class of
# each library, and what a dtype of a library is in DLPack.
_words_found: dict[type, str] = {}
_classes_found: dict[str, type] = {}
_dtypes_found: dict[object, tuple[DType, tuple[int, int, int]]] = {}


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


def _word(kind: type) -> str | None:
    """Return the library whose tensors are of exactly this class."""
    if (name := _name_of(kind)) not in _NAMES:
        return None
    if not isinstance(package := _module_of(kind), str):
        return None
    word = _WORDS.get((name, package.partition(".")[0]))
    if word is None:
        return None
    _, name, module = _LIBRARIES[word]
    library = sys.modules.get(module)
    if getattr(library, name, kind) is not kind:
        return None
    if library is not None:
        _words_found[kind] = word
    return word


_SENT = (
    "expected dlx.Tensor, a mixin class, numpy.ndarray, torch.Tensor, jax.Array or "
    "mlx.core.array"
)


def _exact(cls: type) -> list[type]:
    """Return the classes of tensors that a class stands for: itself, or subclasses."""
    if not isinstance(cls, type):
        raise TypeError(f"{type(cls).__name__} is no class; {_SENT}")
    if issubclass(cls, ExchangeMixin):
        return [cls]
    if cls is Tensor:  # The other is that of tensors that can be part of a cycle.
        return [cls, *cls.__subclasses__()]
    # `jax.Array` is only the base of the class that arrays have.
    below = [] if cls is object else cls.__subclasses__()
    found = [kind for kind in (cls, *below) if _word(kind)]
    if not found:
        raise TypeError(
            f"{cls.__qualname__} is no class of tensors that dlx sends; {_SENT}"
        )
    return found


def _target(x: object) -> str | type[ExchangeMixin]:
    """Return as what a tensor of such a class arrives."""
    if isinstance(x, ExchangeMixin):
        return type(x)
    return _word(type(x)) or "dlx"


def _whole(word: str, x: Any, t: Tensor) -> tuple[int, int, int] | None:
    """Return the dtype of ``t`` if it says all that there is to say of ``x``.

    None if it does not, or if the library could not make ``x`` of it.
    """
    dtype, given = t.dtype, x.dtype
    found = _dtypes_found.get(given)
    if found is None or found[0] != dtype:
        # torch's pairs have a name of their own, and its int4 is exported as uint8.
        names = dtype.name, str(given)
        if dtype != given and names != ("float4_e2m1fnx2", _PAIRS):
            return None
        found = _dtypes_found[given] = dtype, _triple(dtype)
    _, triple = found
    if word == "torch":
        lost = x.__dict__
    else:
        lost = word != "numpy" and (triple[1] < 8 or getattr(x, "weak_type", False))
    return None if lost else triple


def _described(target: object, x: Any) -> Tensor | None:
    """Return the tensor of dlx that says all that there is to say of one, if any.

    Raises what a mixin class raises.
    """
    if target == "dlx" or not isinstance(target, str):
        return from_dlpack(x)
    try:
        t = from_dlpack(x)
    except _REFUSALS:
        return None
    return t if _whole(target, x, t) else None


class _Pickler(pickle.Pickler):
    """A pickler that reduces tensors of other libraries, in protocol 5.

    The next one is this with other defaults, which take as long as a small pickle.
    """

    __slots__ = ()
    _protocol = 5

    def reducer_override(self, obj: Any) -> Any:
        """Reduce a tensor of another library; leave all else to ``pickle``."""
        word = _words_found.get(type(obj)) or _word(type(obj))
        # NumPy itself leaves its own dtypes out of band, but not those of ml_dtypes.
        if word is None or (word == "numpy" and obj.dtype.isbuiltin != 2):
            return NotImplemented
        try:
            t = from_dlpack(obj)
        except _REFUSALS:
            return NotImplemented
        dtype = _whole(word, obj, t)
        return _leave(t, self._protocol, word, dtype) if dtype else NotImplemented


class Pickler(_Pickler):
    """A ``pickle.Pickler`` that also pickles tensors of torch, JAX and MLX by dlx.

    They arrive as what they were, or as `dlx.Tensor` where the library is missing.
    NumPy's arrays count if their dtype is of ml_dtypes; NumPy leaves others out of band
    by itself. Only the exact classes count. Subclasses, and tensors that have more than
    DLPack describes (gradients, attributes, sparse layouts), are pickled as ever.
    ``protocol`` defaults to 5. ``pickle.load`` reads what it writes.
    """

    def __init__(
        self,
        file: SupportsWrite[bytes],
        protocol: int | None = None,
        *,
        fix_imports: bool = True,
        buffer_callback: Callable[[PickleBuffer], Any] | None = None,
    ) -> None:
        """Write to ``file``, and pass each buffer to ``buffer_callback``."""
        protocol = 5 if protocol is None or protocol < 0 else protocol
        super().__init__(
            file, protocol, fix_imports=fix_imports, buffer_callback=buffer_callback
        )
        self._protocol = protocol


def dumps(
    obj: object,
    protocol: int | None = None,
    *,
    fix_imports: bool = True,
    buffer_callback: Callable[[PickleBuffer], Any] | None = None,
) -> bytes:
    """Return the pickle of ``obj``, as ``pickle.dumps`` but written by `Pickler`."""
    file = BytesIO()
    protocol = 5 if protocol is None or protocol < 0 else protocol
    if protocol == 5:
        pickler = _Pickler(file, 5, fix_imports, buffer_callback)
    else:
        pickler = Pickler(
            file, protocol, fix_imports=fix_imports, buffer_callback=buffer_callback
        )
    pickler.dump(obj)
    return file.getvalue()
