"""Programs of pandas."""

from __future__ import annotations

from random import Random

from .program import Library, one_of

DTYPES = (
    "int8 int16 int32 int64 uint8 uint64 float32 float64 bool "
    "Int8 Int32 Int64 UInt8 UInt64 Float32 Float64 boolean "
    "int64[pyarrow] uint8[pyarrow] float[pyarrow] double[pyarrow] bool[pyarrow] "
    "category Sparse[int64] datetime64[ns] timedelta64[s] string object"
)

STARTS = (
    "x = pd.Series([1, 0, 3, 2], dtype='{dtype}')",
    "x = pd.array([1, 0, 3, 2], dtype='{dtype}')",
    "x = pd.Index([1, 0, 3, 2], dtype='{dtype}')",
    "x = pd.Series([2**53 + 1, 2], dtype='{dtype}')",
    "x = pd.array([2**53 + 1, 2], dtype='{dtype}')",
    "x = pd.Series([2, None], dtype='{dtype}')",
    "x = pd.array([2**53 + 1, None], dtype='{dtype}')",
    "x = pd.array([1, None, 3], dtype='{dtype}')",
    "x = pd.Index([1, None, 3], dtype='{dtype}')",
    "x = pd.Series([], dtype='{dtype}')",
    "x = pd.Series(np.arange(1.0, 5.0))",
    "x = pd.Series(np.arange(8)[::2], copy=False)",
    "x = pd.array(np.arange(1, 5), copy=False)",
    "x = pd.Index(np.arange(1, 5), copy=False)",
    "x = pd.RangeIndex(1, 7, 2)",
    "x = pd.DataFrame(np.arange(6.0).reshape(2, 3))",
    "x = pd.DataFrame({{'a': [1, 2], 'b': [3, 4]}}, dtype='{dtype}')",
    "x = pd.DataFrame({{'a': [2**53 + 1, 2], 'b': [0.5, 1.5]}})",
    "x = pd.arrays.SparseArray([0, 0, 1, 2])",
    "x = pd.interval_range(0, 3)",
    "x = pd.MultiIndex.from_tuples([(1, 2), (3, 4)])",
    "x = pd.date_range('2026-01-01', periods=3)",
)
STEPS = (
    "x = x[1:]",
    "x = x[::2]",
    "x = x[::-1]",
    "x = x[:0]",
    "x = x[x == x]",
    "x = x.astype('{dtype}')",
    "x = x + x",
    "x = -x",
    "x = x.copy()",
    "x = x.array",
    "x = x.values",
    "x = x.to_numpy()",
    "x = x._data",
    "x = x._ndarray",
    "x = x.index",
    "x = x.columns",
    "x = x['a']",
    "x = x.iloc[:, 0]",
    "x = x.iloc[1:]",
    "x = x.iloc[:].reindex([0, 1, 9])",
    "x = x.shift(1)",
    "x = x.dropna()",
    "x = x.fillna(0)",
    "x = x.isna()",
    "x = x.T",
    "x = x.convert_dtypes()",
    "x = x.codes",
    "x = x.categories",
    "x = x.cat.codes",
    "x = x.sparse.to_dense()",
    "x = x.to_dense()",
    "x = x.sort_values()",
    "x = pd.concat([x, x])",
    "x = pd.concat([x, x + 0.5], axis=1)",
    "x = x.to_frame()",
    "x = pd.Series(x)",
    "x = pd.Series(x, copy=False)",
    "x = pd.Index(x)",
    "x = pd.Index(x, copy=False)",
    "x = pd.array(x, copy=False)",
    "x = pa.array(x)",
    "x = pickled(x)",
    "x = copy.copy(x)",
    "x.iloc[0] = 5",
    "x[0] = 5",
    "x[0] = None",
    "x.iloc[0] = None",
    "x.get_loc(2)",
)


def start(r: Random) -> str:
    """Draw the first line."""
    return r.choice(STARTS).format(dtype=r.choice(DTYPES.split()))


def step(r: Random, x: object) -> str:
    """Draw a line."""
    return one_of(STEPS)(r, x).replace("{dtype}", r.choice(DTYPES.split()))


LIBRARY = Library(start, step, (), ("pd",))
