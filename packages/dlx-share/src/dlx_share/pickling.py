"""Pickles of any object whose tensors of other libraries travel by dlx.

`dumps` and `Pickler` pickle tensors of torch, JAX and MLX, and arrays of ml_dtypes, as
`dlx.pickling` does a `dlx.Tensor`. The README of dlx-share says what becomes of which
tensor. Unpickling runs code: load only what you trust.
"""

from __future__ import annotations

import pickle
import sys
from io import BytesIO
from pickle import PickleBuffer

from dlx import ExchangeMixin, Tensor, from_dlpack
from dlx.pickling import _LIBRARIES, _leave, _triple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from _typeshed import SupportsWrite
    from dlx import DType

__all__ = ["Pickler", "dumps"]

_PAIRS = "torch.float4_e2m1fn_x2"
_WORDS = {(entry[1], entry[0]): word for word, entry in _LIBRARIES.items()}
_NAMES = {name for name, _ in _WORDS}

# Asked of `type`, because a metaclass may answer otherwise.
_name_of = type.__dict__["__name__"].__get__
_module_of = type.__dict__["__module__"].__get__

# What libraries raise that cannot export a tensor.
_REFUSALS = BufferError, RuntimeError, TypeError, ValueError

# What was found once, and cannot change: the libraries of exact classes, and what a
# dtype of a library is in DLPack.
_words_found: dict[type, str] = {}
_dtypes_found: dict[object, tuple[DType, tuple[int, int, int]]] = {}


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
