"""What other libraries say of a tensor, read without dlx and without DLPack."""

from __future__ import annotations

from typing import Any

import numpy as np

from .libraries import FOUND
from .said import Said, memory, of_buffer, of_numpy


def of_jax(x: Any) -> Said | None:
    """Read a JAX array through NumPy; JAX calls all of them immutable."""
    jax = FOUND["jax"]
    if isinstance(x, jax.core.Tracer) or jax.dtypes.issubdtype(
        x.dtype, jax.dtypes.extended
    ):
        return None
    if x.is_deleted() or not x.is_fully_addressable:
        return None
    plain = np.asarray(x)
    return Said(x.shape, plain.dtype.name, plain.tobytes(), protected=True)


def of_tensorflow(x: Any) -> Said | None:
    """Read a TensorFlow tensor through NumPy; None for strings, handles and symbols.

    TensorFlow calls tensors immutable; to assign to a variable makes another.
    """
    tf = FOUND["tf"]
    if isinstance(x, tf.Variable):
        x = x.value()
    if not hasattr(x, "numpy") or not isinstance(x, tf.Tensor):
        return None
    if x.dtype in (tf.string, tf.variant, tf.resource) or x.dtype.is_quantized:
        return None
    plain = x.numpy()
    return Said(tuple(x.shape), plain.dtype.name, plain.tobytes(), protected=True)


def of_mlx(x: Any) -> Said | None:
    """Read an MLX array through its buffer protocol, which lacks bfloat16.

    Its memory is shared with arrays that must not change: an assignment makes a copy.
    """
    mx = FOUND["mx"]
    name = str(x.dtype).removeprefix("mlx.core.").removesuffix("_")
    plain = np.array(x.view(mx.uint16) if name == "bfloat16" else x)
    return Said(tuple(x.shape), name, plain.tobytes(), protected=True)


def of_paddle(x: Any) -> Said | None:
    """Read a Paddle tensor through NumPy, where bfloat16 and float8 are integers."""
    if not x.is_dense() or (x.size and not x._is_initialized()):
        return None
    name = str(x.dtype).removeprefix("paddle.")
    if name == "bfloat16" and "dtype=uint16" in repr(x.detach()):
        # Paddle has one name for both.
        name = "uint16"
    data = x.detach().numpy().tobytes()
    return Said(tuple(x.shape), name, data, tracked=not x.stop_gradient)


def of_arrow(x: Any) -> Said | None:
    """Read an Arrow array through pyarrow's conversion; None if it has nulls."""
    pa = FOUND["pa"]
    if isinstance(x, pa.Bool8Array) and not x.null_count:
        plain = x.to_numpy(zero_copy_only=False).astype(bool)
        return Said((len(x),), "bool", plain.tobytes(), protected=True)
    if isinstance(x, pa.FixedShapeTensorScalar) and not x.is_valid:
        return None
    tensors = (pa.Tensor, pa.FixedShapeTensorArray, pa.FixedShapeTensorScalar)
    if isinstance(x, (*tensors, pa.RecordBatch)):
        tensor = x if isinstance(x, pa.Tensor) else x.to_tensor()
        numbers = of_numpy(tensor.to_numpy())
        protected = not (isinstance(x, pa.Tensor) and x.is_mutable)
        return None if numbers is None else numbers._replace(protected=protected)
    if isinstance(x, pa.ChunkedArray):
        # One chunk is one piece of memory; those without elements do not count.
        chunks = [chunk for chunk in x.chunks if len(chunk)]
        empty = pa.array([], x.type)
        if len(chunks) < 2 and not pa.types.is_boolean(x.type):
            return of_arrow(*chunks or [empty])
        return of_pieces(x)
    if not isinstance(x, pa.Array):
        return of_buffer(x)
    if x.null_count or not pa.types.is_primitive(x.type):
        return None
    is_bits = pa.types.is_boolean(x.type)
    if not (is_bits or pa.types.is_integer(x.type) or pa.types.is_floating(x.type)):
        return None
    plain = x.to_numpy(zero_copy_only=False)
    # Of bits, only a copy can be shown.
    return Said((len(x),), plain.dtype.name, plain.tobytes(), protected=not is_bits)


def of_pieces(x: Any) -> Said | None:
    """Read a chunked array of Arrow's that only a copy can show."""
    types = FOUND["pa"].types
    kinds = (types.is_integer, types.is_floating, types.is_boolean)
    if x.null_count or not any(is_one(x.type) for is_one in kinds):
        return None
    plain = x.to_numpy()
    return Said((len(x),), plain.dtype.name, plain.tobytes())


def of_pandas(x: Any) -> Said | None:
    """Read a Series, an Index or an array of pandas; None if a value is missing.

    An Index is immutable, and its elements are hashed. What a Series shows of itself
    is read-only where its memory may be another's.
    """
    pd = FOUND["pd"]
    if isinstance(x, pd.DataFrame):
        return of_columns(x)
    if not may_be_nan(x) and bool(np.any(x.isna())):
        return None
    dtype = getattr(x.dtype, "numpy_dtype", x.dtype)
    if str(dtype) == "object" and hasattr(x, "__arrow_c_stream__"):
        # It exports what all of the objects are.
        dtype = FOUND["pa"].array(x).to_numpy(zero_copy_only=False).dtype
    if not isinstance(dtype, np.dtype):
        # Categories, sparse elements: pandas says which numbers they stand for.
        dtype = np.asarray(x).dtype
    numbers = of_numpy(np.array(x, dtype))
    if numbers is None:
        return None
    values = getattr(x, "values", None)
    shown = isinstance(values, np.ndarray) and not values.flags.writeable
    # Arrow's bools are bits: who gives bytes has copied them.
    arrow = isinstance(x.dtype, pd.ArrowDtype) and dtype.kind != "b"
    return numbers._replace(protected=isinstance(x, pd.Index) or shown or arrow)


def may_be_nan(x: Any) -> bool:
    """Whether NaN, which pandas takes for missing, is among the numbers of a dtype."""
    pd = FOUND["pd"]
    dtype = x.dtype
    if isinstance(dtype, pd.SparseDtype):
        dtype = dtype.subtype
    elif isinstance(x, pd.arrays.NumpyExtensionArray):
        dtype = dtype.numpy_dtype
    return isinstance(dtype, np.dtype) and dtype.kind in "fc"


def of_columns(x: Any) -> Said | None:
    """Read a table of pandas; None if its columns are not all of one dtype."""
    columns = [of_pandas(x.iloc[:, number]) for number in range(x.shape[1])]
    if None in columns or len({column.dtype for column in columns if column}) != 1:
        return None
    plain = np.stack([column.numbers() for column in columns if column], axis=1)
    name = columns[0].dtype if columns[0] else ""
    return Said(x.shape, name, plain.tobytes())


def of_tvm(x: Any) -> Said | None:
    """Read a tvm-ffi tensor through its attributes; None for complex dtypes."""
    try:
        name = str(x.dtype)
    except ValueError:
        # Without a dtype the itemsize is unknown.
        return None
    item = x.dtype.itemsize
    data = memory(x.data_ptr(), x.shape, x.strides, item)
    return Said(tuple(x.shape), name, data)
