"""What to pass instead of an object that dlx cannot take: imported to word an error."""

from __future__ import annotations

import sys

from .. import _core
from .._containers.elements import is_of
from . import columns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["tensor"]

_TRACED = "stands for an array whose elements are not known while"

# Module and name of a class, what its instances are, and what to pass in their place.
# Nothing is imported to find the class; the first that fits counts.
_CLASSES = (
    (
        "jax.core",
        "Tracer",
        f"{_TRACED} jit, grad or vmap trace; call dlx outside of the traced function, "
        "or inside by jax.pure_callback",
    ),
    (
        "torch.fx",
        "Proxy",
        f"{_TRACED} torch.fx traces; call dlx in a function that torch.fx.wrap names",
    ),
    (
        "keras",
        "KerasTensor",
        f"{_TRACED} Keras builds a model; call dlx on what the model returns",
    ),
    ("tensorflow", "Variable", "is a variable; pass x.value()"),
    ("keras", "Variable", "is a variable; pass keras.ops.convert_to_numpy(x)"),
    ("tensorflow", "SparseTensor", "is sparse; pass tf.sparse.to_dense(x)"),
    ("tensorflow", "RaggedTensor", "has rows of several lengths; pass x.to_tensor()"),
    (
        "tensorflow.python.framework.ops",
        "SymbolicTensor",
        f"{_TRACED} tf.function traces; call dlx outside of the traced function, "
        "or inside by tf.py_function",
    ),
    (
        "torch.nn",
        "Module",
        "holds tensors; pass one of its parameters, "
        "or x.state_dict() to dlx.convert_tree",
    ),
    ("polars", "LazyFrame", "is a query; pass x.collect().to_numpy()"),
    ("xarray", "Dataset", "holds arrays; pass one of them, x[name].data"),
    ("scipy.sparse", "sparray", "is sparse; pass x.toarray()"),
    ("scipy.sparse", "spmatrix", "is sparse; pass x.toarray()"),
    ("sparse", "SparseArray", "is sparse; pass x.todense()"),
    ("dask.array", "Array", "is not computed yet; pass x.compute()"),
    ("tinygrad", "Tensor", "has no DLPack; pass x.numpy()"),
)


def tensor(x: Any) -> str | None:
    """Say what ``x`` is, which was passed as a tensor, and what to pass instead.

    None for an object of a class that dlx does not know.
    """
    if (advice := columns.advice(x)) is not None:
        return advice
    for module, name, hint in _CLASSES:
        if is_of(x, module, name):
            return f"it {hint}"
    if is_of(x, "jax", "Array"):
        try:
            bits = _core.DType(x.dtype).bits
        except TypeError:  # of keys of jax.random, whose own error says what to pass
            return None
        if bits < 8:
            return (
                f"it is of {x.dtype}, which JAX does not export; pass x.astype('int8')"
            )
    if x is None:
        return "expected a tensor; a function without a return statement gives None"
    if isinstance(x, (type, type(sys))):
        kind = "class" if isinstance(x, type) else "module"
        name = x.__qualname__ if isinstance(x, type) else x.__name__
        return (
            f"{name} is a {kind} and no tensor; dlx.convert takes the tensor first, "
            "then what to convert it to"
        )
    if isinstance(x, (bool, int, float, complex)):
        return "it is a Python number; pass numpy.asarray(x)"
    if isinstance(x, str) and not hasattr(x, "dtype"):
        return "expected a tensor; a str holds no numbers"
    return _container(x)


class _FoundError(Exception):
    """A tensor was found."""


def _container(x: object) -> str | None:
    """As `tensor`, for a container."""
    if hasattr(type(x), "__dlpack__"):
        return None  # a tensor, whatever it holds
    from .._containers.parts import held_by
    from .._containers.tree import map_tree

    def look(leaf: object) -> object:
        if _core.is_tensor(leaf):
            raise _FoundError
        return leaf

    try:
        # An object that is no container is no tensor either.
        if held_by(x):
            map_tree(look, x)
    except _FoundError:
        return "it holds tensors; pass it to dlx.convert_tree, or pass one of them"
    if isinstance(x, (list, tuple)):
        return "it is a sequence of Python objects; pass numpy.asarray(x)"
    if isinstance(x, (dict, set, frozenset)):
        return "it is a container and no tensor; dlx.convert_tree takes containers"
    return None


PROTOCOLS = (
    "from_dlpack takes objects with an exchange table, objects with __dlpack__ and "
    "__dlpack_device__, DLPack capsules, Python buffers, and objects with "
    "__array_struct__, __array_interface__, __cuda_array_interface__, "
    "__arrow_c_device_array__, __arrow_c_array__, __arrow_c_stream__ or __array__"
)


def missing(x: object) -> str:
    """As `tensor`, or else what dlx takes."""
    return tensor(x) or PROTOCOLS


def noted(x: object, name: str, error: Exception) -> Exception:
    """Return the error of a protocol of ``x`` with a note of what to pass, if any.

    By exceptions of Arrow's stream, a column or a table says that it is no tensor: that
    is a refusal.
    """
    if (hint := tensor(x)) is None:
        return error
    note = f"{name}: {hint}"
    is_of_arrow = isinstance(error, (TypeError, ValueError, NotImplementedError))
    if is_of_arrow and any(
        hasattr(x, name) for name in ("__arrow_c_stream__", "__arrow_c_array__")
    ):
        refused = BufferError(note)
        refused.__cause__ = error
        return refused
    said, _, advice = str(error).partition("; pass ")
    if advice and type(error) is BufferError:
        # Of the array that x has made, which is not what the caller has.
        cause, error = error.__cause__, BufferError(said)
        error.__cause__ = cause
    error.add_note(note)
    return error
