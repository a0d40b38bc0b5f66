"""Objects that have `__array__`: pandas, xarray, polars and others."""

from __future__ import annotations

import ctypes
import gc
import weakref
from ctypes import POINTER, PYFUNCTYPE, c_char_p, c_int, c_int64, c_void_p, py_object
from importlib import import_module
from typing import Any

import dlx
import numpy as np
import pytest
from support.optional_libraries import requires


class Series:
    """What has `__array__` as NumPy 2 has it, over memory that it keeps."""

    def __init__(self, array: Any) -> None:
        """Keep the array."""
        self.array = array
        self.asked: list[bool | None] = []

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return the memory, or a copy of it on request."""
        self.asked.append(copy)
        return self.array.copy() if copy else self.array


def without_base(array: Any) -> Any:
    """Make an array of doubles over memory that it does not name, as C code may."""
    prototype = PYFUNCTYPE(c_void_p, py_object, c_char_p)
    pointer = prototype(("PyCapsule_GetPointer", ctypes.pythonapi))
    core = "core" if np.__version__ < "2" else "_core"
    multiarray = import_module(f"numpy.{core}._multiarray_umath")
    api = pointer(multiarray._ARRAY_API, None)
    functions = ctypes.cast(api, POINTER(c_void_p))
    pyarray_new = PYFUNCTYPE(
        *(py_object, py_object, c_int, POINTER(c_int64), c_int, c_void_p, c_void_p),
        *(c_int, c_int, c_void_p),
    )(functions[93])
    writable, double = 0x400, 12
    dims = (c_int64 * 1)(array.size)
    made = (np.ndarray, 1, dims, double, None, array.ctypes.data, 0, writable, None)
    return pyarray_new(*made)


class Copying(Series):
    """What can only copy, and says so."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return a copy."""
        self.asked.append(copy)
        if copy is False:
            raise ValueError("Unable to avoid copy")
        return self.array.copy()


class Old(Series):
    """What has `__array__` as it was before NumPy 2."""

    def __array__(self, dtype: Any = None) -> Any:  # type: ignore[override]
        """Return the memory."""
        return self.array


class OldCopying(Series):
    """The same, which copies and does not say so."""

    def __array__(self, dtype: Any = None) -> Any:  # type: ignore[override]
        """Return a view of a copy, which does not own its memory."""
        return self.array.copy()[:]


class Liar(Series):
    """What copies although it was asked not to."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return a copy."""
        return self.array.copy()


@pytest.mark.parametrize("kind", [Series, Old])
@pytest.mark.parametrize("copy", [None, False])
def test_memory_that_an_object_shows_is_shared(kind: Any, copy: bool | None) -> None:
    """The address is the same each time."""
    a = np.arange(3.0)
    t = dlx.from_dlpack(kind(a), copy=copy)
    assert t.data_ptr == a.ctypes.data
    assert not t.is_copied


@pytest.mark.parametrize("kind", [Copying, OldCopying, Liar])
def test_a_copy_is_called_a_copy(kind: Any) -> None:
    """R37: by IS_COPIED, and R58: `copy=False` refuses it."""
    x = kind(np.arange(3.0))
    t = dlx.from_dlpack(x)
    assert t.is_copied
    assert t.tolist() == [0, 1, 2]
    with pytest.raises(dlx.CopyRefused, match="the producer made a copy"):
        dlx.from_dlpack(x, copy=False)


def test_memory_that_an_object_keeps_for_itself_is_copied() -> None:
    """R37: IS_COPIED promises that nobody else writes to it."""

    class Pool:
        def __init__(self) -> None:
            self.made: list[Any] = []

        def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
            self.made.append(np.zeros(2))
            return self.made[-1]

    pool = Pool()
    t = dlx.from_dlpack(pool)
    for made in pool.made:
        made[:] = 5
    assert t.is_copied
    assert t.tolist() == [0, 0]


def test_a_masked_array_is_refused_here_too() -> None:
    """Its memory does not show the mask."""
    masked = np.ma.masked_array([1.0, -999.0], mask=[False, True])
    with pytest.raises(BufferError, match="mask"):
        dlx.from_dlpack(Series(masked))


def test_an_error_that_is_no_refusal_is_not_tried_again() -> None:
    """A method that imports its own object ends at once, as in NumPy."""
    calls = []

    class Endless:
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
            calls.append(copy)
            return np.asarray(dlx.from_dlpack(self))

    with pytest.raises(RecursionError):
        dlx.from_dlpack(Endless())
    assert len(calls) < 2000


@pytest.mark.parametrize("name", ["__array__", "__arrow_c_stream__"])
def test_a_method_that_is_none_is_no_method(name: str) -> None:
    """Python's way to take one away."""
    x = type("Without", (), {name: None})()
    with pytest.raises(AttributeError, match="has no __dlpack__"):
        dlx.from_dlpack(x)


def test_a_copy_that_belongs_to_nobody_else_is_made_once() -> None:
    """It may be all of a file."""
    x = Copying(np.arange(3.0))
    dlx.from_dlpack(x)
    assert x.asked == [None]


def test_the_array_keeps_the_memory_alive() -> None:
    """R11: the object itself may go."""
    x = Series(np.arange(3.0))
    t, gone = dlx.from_dlpack(x), weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None
    assert t.tolist() == [0, 1, 2]


def test_read_only_memory_stays_read_only() -> None:
    """R39: pandas shows its memory as that."""
    a = np.arange(3.0)
    a.flags.writeable = False
    assert dlx.from_dlpack(Series(a)).readonly


def test_the_copy_of_an_object_is_not_lent_for_writing() -> None:
    """N0: what is written to it would be lost."""
    with (
        pytest.raises(BufferError, match="what is written would be lost"),
        dlx.borrow(out=Copying(np.zeros(3))),
    ):
        pass
    with dlx.borrow(out=Series(a := np.zeros(3))) as (t, _):
        t.numpy()[:] = 1
    assert a.tolist() == [1, 1, 1]


def test_the_copy_of_a_producer_is_not_lent_for_writing() -> None:
    """R37: a capsule says so by its flag."""

    class Exporting:
        def __dlpack__(self, **keywords: Any) -> Any:
            return np.zeros(3).__dlpack__(**keywords | {"copy": True})

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    with (
        pytest.raises(BufferError, match="what is written would be lost"),
        dlx.borrow(out=Exporting()),
    ):
        pass
    own = dlx.from_dlpack(Exporting())
    with dlx.borrow(out=own) as (t, _):
        t.numpy()[:] = 1
    assert own.tolist() == [1, 1, 1]


@pytest.mark.parametrize("answer", [None, [1.0], 3])
def test_what_returns_no_array_is_a_type_error(answer: Any) -> None:
    """As NumPy says."""
    with pytest.raises(TypeError, match=r"not a numpy\.ndarray"):
        dlx.from_dlpack(Series(answer))


def test_an_array_of_objects_is_refused() -> None:
    """R102: DLPack has none."""
    with pytest.raises(BufferError, match="object"):
        dlx.from_dlpack(Series(np.array(["a", None])))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit()])
def test_an_interruption_is_not_taken_for_a_refusal(error: BaseException) -> None:
    """R60."""

    class Interrupted:
        def __array__(self, **_: Any) -> Any:
            raise error

    with pytest.raises(type(error)):
        dlx.from_dlpack(Interrupted())


def test_a_class_has_no_array() -> None:
    """Its attribute is a function of instances."""
    with pytest.raises(AttributeError, match="type has no __dlpack__"):
        dlx.from_dlpack(Series)


def test_what_is_only_convertible_is_no_tensor() -> None:
    """docs/bridge.md: `bridge` hands it on as it is."""
    x = Series(np.zeros(3))
    assert dlx.bridge(np.ndarray)(lambda x: x)(x) is x


def test_pandas_is_shared_where_it_can_be() -> None:
    """Series and frames of one dtype; NaN stays NaN."""
    pd = requires("pandas")
    a = np.array([1, 2, np.nan])
    t = dlx.from_dlpack(pd.Series(a, copy=False))
    assert (t.data_ptr, t.readonly, t.is_copied) == (a.ctypes.data, True, False)
    frame = pd.DataFrame(np.array([[1, 2], [3, 4]]), copy=False)
    t = dlx.from_dlpack(frame, copy=False)
    assert t.tolist() == [[1, 2], [3, 4]]
    assert dlx.from_dlpack(pd.Series([1, 2], dtype="Int64")).tolist() == [1, 2]


def test_a_table_of_several_dtypes_is_refused() -> None:
    """NumPy's common dtype would be another one: 2**53 + 1 is no float."""
    pd = requires("pandas")
    frame = pd.DataFrame({"a": [2**53 + 1, 2], "b": [0.5, 3]})
    with pytest.raises(BufferError, match="several dtypes, as int64 and float64"):
        dlx.from_dlpack(frame)
    assert dlx.from_dlpack(frame["a"]).tolist() == [2**53 + 1, 2]


def test_pandas_with_missing_integers_is_refused() -> None:
    """DLPack has no nulls, and 2**53 + 1 is no float."""
    pd = requires("pandas")
    with pytest.raises(BufferError, match="has missing values"):
        dlx.from_dlpack(pd.Series([2**53 + 1, None], dtype="Int64"))


def test_polars_is_shared_where_it_is_one_chunk() -> None:
    """Read-only; more chunks are copied."""
    pl = requires("polars")
    s = pl.Series([1, 2, 3])
    t = dlx.from_dlpack(s, copy=False)
    assert t.readonly
    assert dlx.from_dlpack(s).data_ptr == t.data_ptr
    s = s.append(pl.Series([4]))
    assert dlx.from_dlpack(s).tolist() == [1, 2, 3, 4]
    with pytest.raises(dlx.CopyRefused):
        dlx.from_dlpack(s, copy=False)
    with pytest.raises(BufferError, match="null"):
        dlx.from_dlpack(s.append(pl.Series([None], dtype=pl.Int64)))


def test_polars_with_nulls_is_refused() -> None:
    """Its `__array__` would make floats of them."""
    pl = requires("polars")
    with pytest.raises(BufferError, match="null_count 1"):
        dlx.from_dlpack(pl.Series([2**53 + 1, None]))


def test_xarray_is_shared() -> None:
    """Also for writing."""
    xr = requires("xarray")
    a = np.zeros((2, 3))
    with dlx.borrow(out=xr.DataArray(a, dims=("x", "y"))) as (t, _):
        t.numpy()[1] = 1
    assert a.tolist() == [[0, 0, 0], [1, 1, 1]]


def test_an_index_of_pandas_is_not_lent_for_writing() -> None:
    """N0: a RangeIndex shows an array that it keeps beside its numbers."""
    pd = requires("pandas")
    with (
        pytest.raises(BufferError, match=r"is a pandas\.Index, which is immutable"),
        dlx.borrow(out=pd.RangeIndex(4)),
    ):
        pass


def test_memory_that_an_array_does_not_own_is_no_copy() -> None:
    """R37: an array made in C may name no base for memory that is somebody's."""
    memory = np.zeros(4)

    class InC(Series):
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
            return without_base(self.array)

    assert without_base(memory).base is None
    t = dlx.from_dlpack(InC(memory), copy=False)
    assert (t.is_copied, t.data_ptr) == (False, memory.ctypes.data)
