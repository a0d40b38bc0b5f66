"""`convert(dtype=, detach=)`, and targets given by name or by namespace."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import array_api_strict
import dlx
import ml_dtypes
import numpy as np
import pytest
import tvm_ffi
from support.optional_libraries import needs, requires
from support.python_process import run_python

LIBRARIES = ["numpy", "torch", "jax", "array_api_strict"]


@pytest.mark.parametrize("to", LIBRARIES)
@pytest.mark.parametrize("name", ["float32", "int16", "complex64", "bool"])
def test_the_target_casts_what_is_of_another_dtype(to: str, name: str) -> None:
    """Array API, `astype`: the values are those of NumPy's cast."""
    requires(to)
    x = np.array([0, 1, 2], "i4")
    made = dlx.convert(x, to, dtype=name)
    t = dlx.from_dlpack(made)
    assert t.dtype == name
    assert t.tolist() == x.astype(name).tolist()


@pytest.mark.parametrize("to", LIBRARIES)
def test_what_is_of_that_dtype_is_shared(to: str) -> None:
    """R59: `dtype=` alone copies nothing; a plain array comes back itself."""
    requires(to)
    x = np.arange(16, dtype="f4")
    made = dlx.convert(x, to, dtype=np.float32, copy=False if to != "jax" else None)
    assert dlx.convert(made, to, dtype="float32") is made
    if to != "jax":  # It copies what is less aligned than its own.
        assert dlx.from_dlpack(made).data_ptr == x.ctypes.data


@pytest.mark.parametrize("dtype", ["float32", np.float32, np.dtype("f4"), (2, 32, 1)])
def test_a_dtype_is_given_as_dlx_takes_dtypes(dtype: Any) -> None:
    """Also as the object of a library that is not the target."""
    made = dlx.convert(np.arange(3), array_api_strict, dtype=dtype)
    assert made.dtype == array_api_strict.float32
    assert dlx.convert(np.arange(3), np, dtype=made.dtype).dtype == "f4"


def test_a_dtype_of_ml_dtypes_is_cast_to() -> None:
    """NumPy knows it by name only."""
    made = dlx.convert(np.arange(3.0), np, dtype="bfloat16")
    assert made.dtype == ml_dtypes.bfloat16
    assert made.tolist() == [0, 1, 2]


def test_a_cast_is_a_copy() -> None:
    """R58: which `copy=False` rules out."""
    with pytest.raises(dlx.CopyRefused, match="is of int64 and not of float32"):
        dlx.convert(np.arange(3), np, dtype="float32", copy=False)


@pytest.mark.parametrize("to", LIBRARIES)
def test_no_cast_drops_imaginary_parts(to: str) -> None:
    """Array API, `astype`: which leaves that undefined."""
    requires(to)
    x = np.ones(2, "c8")
    with pytest.raises(BufferError, match="drop the imaginary parts; pass the real"):
        dlx.convert(x, to, dtype="float32")
    assert dlx.from_dlpack(dlx.convert(x.real, to, dtype="float32")).tolist() == [1, 1]


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype:UserWarning")
def test_a_cast_to_another_dtype_is_refused() -> None:
    """JAX casts to float32 unless it is told to have float64."""
    requires("jax")
    with pytest.raises(BufferError, match=r"to float32, not to float64.*enable_x64"):
        dlx.convert(np.ones(2, "f4"), "jax", dtype="float64")


def test_an_importer_that_casts_is_taken_at_its_word() -> None:
    """JAX imports float64 as float32, which is refused unless one asks for that."""
    jax = requires("jax")
    x = np.arange(3.0)
    narrower = {"float64": "float32"}
    with pytest.raises(BufferError, match=rf"or pass dtype={narrower}"):
        dlx.convert(x, jax)
    assert dlx.convert(x, jax, dtype=narrower).tolist() == [0, 1, 2]
    batch = {"x": x, "ids": np.arange(3, dtype="i4")}
    taken = dlx.convert_tree(batch, jax, dtype=narrower)
    assert [str(each.dtype) for each in taken.values()] == ["float32", "int32"]


@pytest.mark.parametrize("to", [dlx.Tensor, tvm_ffi.Tensor, "pyarrow"])
def test_where_the_result_has_no_cast_the_source_casts(to: Any) -> None:
    """`help(dlx.convert)`, ``dtype``."""
    made = dlx.convert(np.arange(3), to, dtype="float32")
    assert dlx.from_dlpack(made).dtype == "float32"
    assert dlx.from_dlpack(made).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("x", "to", "dtype"),
    [
        (np.arange(4).astype(ml_dtypes.int4), "torch", "int8"),
        (np.arange(4).astype(ml_dtypes.float8_e4m3), "torch", "float32"),
        (np.arange(4).astype(">f4"), "torch", "float32"),
        (np.arange(4).astype("longdouble"), "torch", "float64"),
        (np.arange(4) > 1, "pyarrow", "uint8"),
        (np.arange(4), "jax", "float32"),
        (np.arange(4.0), "jax", "int8"),
        (dlx.from_dlpack(np.arange(4.0)), "jax", "bfloat16"),
        (np.arange(4.0).data, "jax", "float32"),
    ],
)
def test_what_the_target_cannot_import_is_cast_before(
    x: Any, to: str, dtype: str
) -> None:
    """docs/convert.md: JAX without x64 would narrow, torch has no such dtype."""
    requires(to)
    made = dlx.from_dlpack(dlx.convert(x, to, dtype=dtype))
    assert made.dtype == dtype
    assert made.tolist() == np.asarray(x).astype(made.dtype.name).tolist()


@pytest.mark.parametrize("to", ["numpy", "dlx", "torch"])
@pytest.mark.parametrize(
    "x",
    [
        np.array(["1", "2"]),
        np.array(["2026-11-28"], "M8[D]"),
        np.array([1, "2"], object),
        np.ma.masked_array([1.0, 2.0], [False, True]),
    ],
    ids=["str", "datetime64", "object", "masked"],
)
def test_what_is_refused_for_more_than_its_dtype_is_not_cast(x: Any, to: str) -> None:
    """docs/convert.md: NumPy would read strings, count days, and drop the mask."""
    requires(to)
    for dtype in "float32", "int64":
        with pytest.raises(BufferError):
            dlx.convert(x, to, dtype=dtype)


@pytest.mark.parametrize("dtype", ["int32", "float64", {"float32": "int8"}])
def test_a_cast_loses_no_gradient(dtype: Any) -> None:
    """R61: torch's cast to an integer records none."""
    torch = requires("torch")
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(BufferError, match="requires grad"):
        dlx.convert(x, np, dtype=dtype)
    assert dlx.convert(x, np, dtype=dtype, detach=True).tolist() == [1, 1, 1]


def test_a_mapping_asks_for_the_dtype_of_the_elements() -> None:
    """An attribute of that name may say something else."""

    class Lying(dlx.ExchangeMixin, exchange="data"):
        dtype = "float64"

        def __init__(self) -> None:
            self.data = np.ones(2, "float32")

    assert dlx.convert(Lying(), np, dtype={"float64": "int8"}).dtype == "float32"
    assert dlx.convert(Lying(), np, dtype={"float32": "int8"}).dtype == "int8"


def test_a_cast_before_the_conversion_drops_no_imaginary_parts() -> None:
    """Array API, `astype`: which leaves that undefined."""
    requires("torch")
    for x in np.ones(2, "clongdouble"), np.ones(2, ">c8"):
        with pytest.raises(BufferError):
            dlx.convert(x, "torch", dtype="float32")


def test_a_cast_before_the_conversion_is_ruled_out_with_other_copies() -> None:
    """R58: `copy=False`."""
    with pytest.raises(BufferError):
        dlx.convert(np.arange(3), "pyarrow", dtype="float32", copy=False)


def test_what_nothing_can_cast_is_refused() -> None:
    """A GPU that is not there, and a dtype that its memory may not become."""
    x = dlx.from_pointer(4096, (2,), "float32", device="cuda:0")
    with pytest.raises(BufferError, match=r"cannot be cast to int8"):
        dlx.convert(x, dlx.Tensor, dtype="int8")


def test_a_dtype_that_the_library_lacks_is_refused() -> None:
    """With the library's error as the cause."""
    with pytest.raises(BufferError, match="cannot be cast to bfloat16") as refused:
        dlx.convert(np.arange(3), array_api_strict, dtype="bfloat16")
    assert refused.value.__cause__ is not None


def test_a_tensor_that_records_gradients_is_detached_on_request() -> None:
    """R61: it shares the memory, and the tensor goes on recording."""
    torch = requires("torch")
    x = torch.ones(3, requires_grad=True)
    a = dlx.convert(x, np, detach=True)
    a[0] = 5
    assert x.tolist() == [5, 1, 1]
    assert x.requires_grad
    with pytest.raises(BufferError, match="requires grad"):
        dlx.convert(x, np)


def test_the_export_of_a_class_is_detached_on_request() -> None:
    """docs/classes.md: it is the tensor that records."""
    torch = requires("torch")

    class Parameters(dlx.ExchangeMixin, exchange="data"):
        def __init__(self, data: Any) -> None:
            self.data = data

    x = Parameters(torch.ones(3, requires_grad=True))
    assert dlx.convert(x, np, detach=True).tolist() == [1, 1, 1]


def test_what_records_nothing_is_not_asked() -> None:
    """Arrays of NumPy have no `detach`."""
    x = np.ones(3)
    assert dlx.convert(x, np, detach=True) is x


def test_a_name_is_imported() -> None:
    """As `import` would; what is not installed is said to be that."""
    assert dlx.convert(np.ones(3), "array_api_strict").shape == (3,)
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        dlx.convert(np.ones(3), "no_such_library")
    assert "no_such_library" not in sys.modules


@pytest.mark.parametrize("name", ["numpy.ndarray", "dlx.Tensor", "ml_dtypes"])
def test_a_name_is_that_of_a_namespace_or_of_a_class_in_one(name: str) -> None:
    """`help(dlx.convert)`, ``to``; what has no arrays is a TypeError."""
    if name == "ml_dtypes":
        with pytest.raises(TypeError, match="ml_dtypes has no array type"):
            dlx.convert(np.ones(3), name)
    else:
        assert type(dlx.convert(np.ones(3), to=name)).__name__ == name.split(".")[1]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("numpi", "numpy"),
        ("pytorch", "torch"),
        ("Jax", "jax"),
        ("jnp", "jax.numpy"),
        ("numpy.ndaray", "numpy"),
        ("np.ndarray", "numpy.ndarray"),
        ("jnp.ndarray", "jax.numpy.ndarray"),
        ("pytorch.Tensor", "torch.Tensor"),
        ("Numpy.ndarray", "numpy.ndarray"),
        ("Tensor", "torch.Tensor"),
        ("ndarray", "numpy.ndarray"),
    ],
)
def test_a_name_that_is_not_found_is_compared_with_those_of_libraries(
    name: str, meant: str
) -> None:
    with pytest.raises(ModuleNotFoundError) as raised:
        dlx.convert(np.ones(3), name)
    assert raised.value.__notes__ == [f"did you mean {meant!r}?"]


def test_a_module_that_lacks_another_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_a_library.py").write_text("import the_other_half")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="the_other_half") as raised:
        dlx.convert(np.ones(3), "half_a_library")
    assert not hasattr(raised.value, "__notes__")


CASTS = {"float64": "float32", np.int64: "int32"}
SWAPPED = np.arange(4.0).astype(">f8")


@pytest.mark.parametrize("dtype", ["float32", CASTS])
@pytest.mark.parametrize("kind", ["pandas.Series", "xarray.DataArray", "numpy.asarray"])
def test_elements_in_the_other_byte_order_are_cast(kind: str, dtype: Any) -> None:
    """docs/convert.md: their own library casts before, whatever shows them."""
    library, _, name = kind.partition(".")
    x = getattr(requires(library), name)(SWAPPED)
    made = dlx.convert(x, tvm_ffi, dtype=dtype)
    assert np.from_dlpack(made).tolist() == [0, 1, 2, 3]
    with pytest.raises(BufferError):
        dlx.convert(x, tvm_ffi)


def test_a_mask_is_not_lost_by_a_cast() -> None:
    """`convert` refuses masked arrays, also where a dtype is another reason."""
    masked = np.ma.masked_array(SWAPPED, [True, False, True, False])
    with pytest.raises(BufferError, match="mask"):
        dlx.convert(masked, tvm_ffi, dtype="float32")


def test_a_mapping_is_taken_while_jax_traces() -> None:
    """As one dtype is."""
    jax = requires("jax")
    called = jax.jit(lambda x: dlx.convert(x, jax, dtype=CASTS) * 2)
    assert called(np.ones(2, "float32")).tolist() == [2, 2]


TINYGRAD = """\
import dlx, numpy as np
from tinygrad import Tensor
for cast, given in (("float32", np.arange(3.0)), ("int8", np.arange(3))):
    made = dlx.convert(given, Tensor, dtype=cast)
    assert made.numpy().dtype == cast
    assert made.tolist() == [0, 1, 2]
"""


def test_tinygrad_takes_what_is_cast_before() -> None:
    """It has no DLPack, and names types as C does.

    Apart, because it changes the recursion limit and how modules are pickled.
    """
    needs("tinygrad")
    status, _, errors = run_python(TINYGRAD, DEV="PYTHON")
    assert status == 0, errors


@pytest.mark.parametrize(
    ("name", "cast"),
    [("float64", "float32"), ("int64", "int32"), ("int8", "int8"), ("bool", "bool")],
)
def test_a_mapping_casts_the_dtypes_that_it_names(name: str, cast: str) -> None:
    """`help(dlx.convert)`, ``dtype``."""
    x = np.ones(3, name)
    assert dlx.convert(x, np, dtype=CASTS).dtype == cast
    assert dlx.convert_tree([x, "a"], np, dtype=CASTS)[0].dtype == cast


def test_a_batch_of_wide_numbers_goes_to_jax_by_a_mapping() -> None:
    """JAX has 32 bits by default, and NumPy 64."""
    jax = requires("jax")
    batch = {"ids": np.arange(3), "x": [np.ones(2), np.ones(2, "float32")]}
    made = dlx.convert_tree(batch, jax, dtype=CASTS)
    dtypes = [made["ids"].dtype, *(x.dtype for x in made["x"])]
    assert dtypes == ["int32", "float32", "float32"]


def test_a_mapping_with_what_is_no_dtype_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="not a dtype"):
        dlx.convert(np.ones(3), np, dtype={"float65": "float32"})


def test_a_mapping_casts_what_is_detached() -> None:
    torch = requires("torch")
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    assert dlx.convert(x, np, detach=True, dtype=CASTS).dtype == "float32"


@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_namespaces_of_array_api_compat_are_targets(name: str) -> None:
    """Of which `array_namespace(x)` returns one."""
    compat = requires(f"array_api_compat.{name}")
    made = dlx.convert(np.ones(3), compat)
    assert type(made) is type(getattr(requires(name), "ones")(3))  # noqa: B009


def test_a_namespace_need_not_be_a_module() -> None:
    """Array API: an object with its functions."""
    functions: dict[str, Any] = {"__array_namespace_info__": None, "Array": np.ndarray}
    namespace: Any = SimpleNamespace(**functions)
    assert type(dlx.convert(dlx.empty(3, "float32"), namespace)) is np.ndarray
    with pytest.raises(TypeError, match=r"a namespace .* or its name"):
        dlx.convert(np.ones(3), object())  # type: ignore[call-overload]


def test_nothing_is_kept_of_a_refused_cast() -> None:
    """docs/design.md, Who owns what."""
    x = np.arange(3)
    before = sys.getrefcount(x)
    for _ in range(10):
        with pytest.raises(BufferError):
            dlx.convert(x, array_api_strict, dtype="bfloat16")
    gc.collect()
    assert sys.getrefcount(x) == before


def test_an_instance_that_is_detached_keeps_what_it_says_of_itself() -> None:
    """docs/classes.md: `__dlx_like__`, with gradients and without."""
    torch = requires("torch")

    class Length(dlx.ExchangeMixin, exchange="data"):
        def __init__(self, data: Any, unit: str = "m") -> None:
            self.data, self.unit = data, unit

        def __dlx_like__(self, tensor: dlx.Tensor) -> Length:
            return type(self)(tensor, self.unit)

    for data in (torch.ones(2, requires_grad=True), np.ones(2)):
        x = Length(data, "km")
        assert dlx.convert(x, Length, detach=True).unit == "km"
        assert dlx.convert(x, Length, detach=True, copy=True).unit == "km"


def test_a_file_is_not_detached(tmp_path: Path) -> None:
    """It has a method of that name, too."""
    with (tmp_path / "file").open("w") as file:
        with pytest.raises(TypeError, match="has no __dlpack__"):
            dlx.convert(file, np, detach=True)
        file.write("text")


def test_a_cast_that_the_library_has_not_written_is_refused() -> None:
    """torch names int4, and cannot cast to it."""
    torch = requires("torch")
    with pytest.raises(BufferError, match="cannot be cast to int4"):
        dlx.convert(torch.ones(2), torch, dtype="int4")


def test_a_library_that_cannot_name_its_dtype_is_asked_by_an_import() -> None:
    """array API, `from_dlpack`: what it raises for `dtype` is none of the cast's."""
    x = np.ones(2, "c8")
    made = dlx.convert(x, tvm_ffi.Tensor)
    with pytest.raises(ValueError, match="type_code"):
        _ = made.dtype
    assert dlx.convert(x, tvm_ffi.Tensor, dtype="complex64").shape == (2,)
    with pytest.raises(BufferError, match="drop the imaginary parts"):
        dlx.convert(x, tvm_ffi.Tensor, dtype="float32")


def test_a_name_that_is_right_is_not_proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`help(dlx.convert)`, ``to``: the library is not installed."""
    monkeypatch.setitem(sys.modules, "warp", None)
    with pytest.raises(ModuleNotFoundError) as raised:
        dlx.convert(np.ones(2), "warp")
    assert not hasattr(raised.value, "__notes__")


@pytest.mark.parametrize("to", ["numpy", "torch"])
def test_elements_of_four_bits_of_jax_are_cast_by_it(to: str) -> None:
    """JAX raises RuntimeError where it exports them."""
    requires("torch")
    jnp = requires("jax.numpy")
    x = jnp.array([1, -2], dtype=jnp.int4)
    made = dlx.convert(x, to, dtype="int8")
    assert dlx.from_dlpack(made).dtype == "int8"
    assert made.tolist() == [1, -2]
    with pytest.raises(RuntimeError, match="no DLPack equivalent"):
        dlx.convert(x, to)


def test_a_cast_before_the_import_is_a_copy_that_may_be_ruled_out() -> None:
    """docs/convert.md: by the exception of all copies."""
    jax = requires("jax")
    with pytest.raises(dlx.CopyRefused, match="is of float64 and not of float32"):
        dlx.convert(np.ones(3), jax, dtype={"float64": "float32"}, copy=False)
