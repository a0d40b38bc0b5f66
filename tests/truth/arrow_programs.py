"""Programs of pyarrow."""

from __future__ import annotations

from random import Random

from .program import Library, one_of

TYPES = (
    "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 bool_ "
    "date32 date64 time32('s') time64('us') timestamp('ns') duration('s') "
    "decimal128(10) decimal32(5) string binary large_string"
)

STARTS = (
    "x = pa.array([1, 2, 3, 4, 5, 6]).cast(pa.{kind})",
    "x = pa.array([1, 2, 3, 4, 5, 6], pa.{kind})",
    "x = pa.array(range(1, 70), pa.{kind})",
    "x = pa.array([], pa.{kind})",
    "x = pa.array([1, None, 3], pa.{kind})",
    "x = pa.array([True, False, True, True])",
    "x = pa.array([True, False, True]).cast(pa.bool8())",
    "x = pa.array([True, None, True]).cast(pa.bool8())",
    "x = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, 2], pa.int8()))",
    "x = pa.ExtensionArray.from_storage(pa.opaque(pa.int32(), 'a', 'b'), "
    "pa.array([1, 2], pa.int32()))",
    "x = pa.ExtensionArray.from_storage("
    "pa.uuid(), pa.array([b'1' * 16], pa.binary(16)))",
    "x = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12.).reshape(3, 2, 2))",
    "x = pa.array([[1, 2], [3, 4]], pa.list_(pa.{kind}, 2))",
    "x = pa.array([[1, 2], [3]], pa.list_(pa.{kind}))",
    "x = pa.array(['a', 'b', 'a']).dictionary_encode()",
    "x = pa.array([1, 1, 2]).dictionary_encode()",
    "x = pa.RunEndEncodedArray.from_arrays("
    "pa.array([2, 3], pa.int32()), pa.array([1, 2]))",
    "x = pa.array(np.arange(1., 7.))",
    "x = pa.array(np.arange(1., 13.)[::2])",
    "x = pa.array(frozen(np.arange(1, 7)))",
    "x = pa.nulls(3)",
    "x = pa.nulls(3, pa.{kind})",
    "x = pa.chunked_array([[1, 2], [3]])",
    "x = pa.chunked_array([[1, 2, 3]])",
    "x = pa.Tensor.from_numpy(np.arange(6.).reshape(2, 3))",
    "x = pa.table({{'a': [1, 2]}})",
    "x = pa.record_batch({{'a': [1, 2]}})",
    "x = pa.scalar(1.5)",
    "x = pa.Array.from_buffers(pa.{kind}, 3, "
    "[None, pa.py_buffer(bytes(range(1, 25)))])",
    "x = pa.Array.from_buffers(pa.{kind}, 2, "
    "[pa.py_buffer(b'\\x03'), pa.py_buffer(bytes(range(1, 25)))])",
    "x = pa.Array.from_buffers(pa.{kind}, 2, "
    "[pa.py_buffer(b'\\x06'), pa.py_buffer(bytes(range(1, 33)))], offset=1)",
)
STEPS = (
    "x = x.slice(1)",
    "x = x.slice(1, 2)",
    "x = x.slice(0, 0)",
    "x = x[::2]",
    "x = x[::-1]",
    "x = x.take(pa.array([0, 1]))",
    "x = x.cast(pa.float64())",
    "x = x.view(pa.int64())",
    "x = x.view(pa.uint8())",
    "x = pa.concat_arrays([x, x])",
    "x = pa.concat_arrays([x, x.slice(1)]).slice(2)",
    "x = x.filter(pa.array([True] * len(x)))",
    "x = x.drop_null()",
    "x = x.fill_null(0)",
    "x = x.dictionary_encode()",
    "x = x.storage",
    "x = x.indices",
    "x = x.values",
    "x = x.flatten()",
    "x = x.chunk(0)",
    "x = x.combine_chunks()",
    "x = x.column(0)",
    "x = x[0]",
    "x = pickled(x)",
    "x = copy.copy(x)",
    "x = Carrier(x)",
    "x = x.buffers()[1]",
    "x = pa.array(x.to_numpy(zero_copy_only=False))",
)


def start(r: Random) -> str:
    """Draw the first line."""
    kind = r.choice(TYPES.split())
    return r.choice(STARTS).format(kind=kind if "(" in kind else f"{kind}()")


step = one_of(STEPS)
LIBRARY = Library(start, step, (), ("pa",))
