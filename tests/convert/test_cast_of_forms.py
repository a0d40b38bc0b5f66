"""`dtype=` casts numbers that NumPy alone knows at the source, whatever shows them."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import dlx
import numpy as np
import pytest
from support.optional_libraries import requires


class Holder(dlx.ExchangeMixin, exchange="held"):
    """A tensor, if what it holds is one."""

    def __init__(self, held: Any) -> None:
        """Hold anything."""
        self.held = held


class Interface(dlx.ArrayInterfaceMixin, exchange="held"):
    """An array by the mixin for those."""

    def __init__(self, held: Any) -> None:
        """Hold anything."""
        self.held = held


class Described:
    """An object that has one attribute or method of an array."""

    def __init__(self, array: Any, name: str, **more: Any) -> None:
        """Show an array."""
        self.array, self.name, self.more = array, name, more

    def __getattr__(self, name: str) -> Any:
        """Have that one."""
        if name != self.name:
            raise AttributeError(name)
        found = getattr(self.array, name)
        return {**found, **self.more} if self.more else found


class Making:
    """An object with `__array__`."""

    def __init__(self, array: Any) -> None:
        """Keep an array."""
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        """Show it."""
        return self.array


FORMS: dict[str, Any] = {
    "itself": lambda x: x,
    "mixin": Holder,
    "mixin of a mixin": lambda x: Holder(Holder(x)),
    "memoryview": memoryview,
    "held memoryview": lambda x: Holder(memoryview(x)),
    "interface": lambda x: Described(x, "__array_interface__"),
    "struct": lambda x: Described(x, "__array_struct__"),
    "held interface": lambda x: Holder(Described(x, "__array_interface__")),
    "mixin of interfaces": Interface,
    "method": Making,
    "Series": lambda x: requires("pandas").Series(x.ravel()),
    "DataArray": lambda x: requires("xarray").DataArray(x),
    "held DataArray": lambda x: Holder(requires("xarray").DataArray(x)),
}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Any:
    """Each of them."""
    return FORMS[request.param]


def packed() -> Any:
    """Return a field of a struct without padding, whose stride is no multiple."""
    struct = np.zeros(3, np.dtype([("a", "i1"), ("b", "f8")]))
    struct["b"] = [1, np.nan, 3]
    return struct["b"]


ODD: dict[str, Any] = {
    ">f8": np.array([1, np.nan, 3], ">f8"),
    ">i2": np.array([1, 2, 3], ">i2"),
    "longdouble": np.array([1, np.nan, 3], "longdouble"),
    "packed": packed(),
}


@pytest.fixture(params=ODD)
def odd(request: pytest.FixtureRequest) -> Any:
    """Numbers of each kind."""
    return ODD[request.param]


@pytest.mark.parametrize("to", [np, dlx.Tensor, Holder, "torch"])
def test_they_are_cast(form: Any, odd: Any, to: Any) -> None:
    """docs/convert.md, "dtypes and gradients": their own library casts before."""
    if to == "torch":
        requires(to)
    made = dlx.convert(form(odd), to, dtype="float32")
    found = np.from_dlpack(made)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, odd.astype("float32"))
    assert not np.shares_memory(found, odd)


@pytest.mark.parametrize("key", ["own", "native"])
def test_a_map_names_them(form: Any, odd: Any, key: str) -> None:
    """A byte order is no other type."""
    own = odd.dtype.newbyteorder("=")
    name = str(own) if key == "own" else own
    made = dlx.convert(form(odd), np, dtype={name: "float32"})
    assert made.dtype == np.float32
    np.testing.assert_array_equal(made, odd.astype("float32"))


@pytest.mark.parametrize("key", ["longdouble", "float128", np.longdouble, "g"])
def test_a_long_double_has_names_in_a_map(key: Any) -> None:
    """Those of NumPy; beside others, too, and for arrays that are none."""
    how = {key: "float64", "int64": "int32"}
    assert dlx.convert(ODD["longdouble"], np, dtype=how).dtype == np.float64
    assert dlx.convert(np.ones(2, "int64"), np, dtype=how).dtype == np.int32
    x = np.ones(2, "float32")
    assert dlx.convert(x, np, dtype=how) is x


@pytest.mark.parametrize("key", ["str", "object", "M8[s]", "nothing", None, "V4"])
def test_a_map_has_no_other_names(key: Any) -> None:
    """Of what is no number."""
    with pytest.raises((BufferError, TypeError, ValueError)):
        dlx.convert(np.ones(2), np, dtype={key: "float32"})


def test_copy_false_is_an_error(form: Any, odd: Any) -> None:
    """A cast is a copy."""
    for dtype in ("float32", {odd.dtype.newbyteorder("="): "float32"}):
        with pytest.raises(BufferError):
            dlx.convert(form(odd), np, dtype=dtype, copy=False)


SHAPES: dict[str, Any] = {
    "0-d": lambda x: x[0, :1].reshape(()),
    "empty": lambda x: x[:0],
    "backwards": lambda x: x[::-1, ::-2],
    "transposed": lambda x: x.T,
    "read-only": lambda x: x,
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", [name for name in FORMS if name != "Series"])
def test_each_layout_is_cast(name: str, shape: str) -> None:
    """As it is for an array."""
    x = SHAPES[shape](np.arange(12, dtype=">f8").reshape(3, 4))
    x.flags.writeable = shape != "read-only"
    made = dlx.convert(FORMS[name](x), np, dtype="float32")
    assert made.flags.writeable
    np.testing.assert_array_equal(made, x.astype("float32"))


def test_a_tree_casts_them(form: Any, odd: Any) -> None:
    """Beside others."""
    made = dlx.convert_tree([{"x": form(odd)}], np, dtype="float32", strict=True)
    assert made[0]["x"].dtype == np.float32


def test_ctypes_of_the_other_byte_order_are_cast() -> None:
    """PEP 3118: their buffer says so."""
    x = (ctypes.c_double.__ctype_be__ * 2)(1, 2)
    assert dlx.convert(x, np, dtype="float32").tolist() == [1, 2]


MASKED: Any = np.ma.masked_array([1.0, 2.0], [False, True], ">f8")
FIELDS: Any = np.zeros(2, [("x", ">f8")])


@pytest.mark.parametrize(
    "x",
    [
        MASKED,
        Holder(MASKED),
        Making(MASKED),
        Described(
            ODD[">f8"], "__array_interface__", mask=np.array([False, True, False])
        ),
        Holder(np.array(["1"])),
        memoryview(FIELDS),
        Making(np.array(["2026-11-28"], ">M8[D]")),
        Making(np.array([1.0, "x"], object)),
    ],
    ids=["masked", "held", "made", "interface", "text", "fields", "dates", "objects"],
)
def test_what_a_cast_would_lose_is_refused(x: Any) -> None:
    """A mask, text, dates, objects."""
    with pytest.raises(BufferError):
        dlx.convert(x, np, dtype="float32")


@pytest.mark.parametrize("code", ["pa.array([1, None])", "pd.array([1, None])"])
def test_nulls_are_refused(code: str) -> None:
    """R63: whatever array NumPy makes of them."""
    known = {"pa": requires("pyarrow"), "pd": requires("pandas")}
    for x in (eval(code, known), Holder(eval(code, known))):
        with pytest.raises(BufferError):
            dlx.convert(x, np, dtype="float32")


def test_imaginary_parts_are_not_dropped() -> None:
    """docs/convert.md, "dtypes and gradients"."""
    x: Any = np.array([1 + 2j], ">c16")
    for each in (x, Holder(x), memoryview(x), x.astype("clongdouble")):
        with pytest.raises(BufferError):
            dlx.convert(each, np, dtype="float32")
        assert dlx.convert(each, np, dtype="complex64").tolist() == [1 + 2j]


def test_threads_cast_one_array() -> None:
    """What they share is read alone."""
    x, found = Holder(np.arange(1000, dtype=">f8")), []

    def run() -> None:
        for _ in range(50):
            found.append(float(dlx.convert(x, np, dtype="float32").sum()))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [499500.0] * 200
