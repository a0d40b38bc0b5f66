"""`examples/`: each runs, and its arrays go through every library and come back."""

import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import dlx
import numpy as np
import pytest
from compiled import load_doubled
from ctypes_array import Array
from dlx_check.testing import check_mixin
from kernel import compile_for_gpu, gated
from labelled import Labelled
from launchers import WAYS
from mapped_file import Mapped, load, save
from support.optional_libraries import requires

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
NUMBERS = [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


def make_array(_: Path) -> Array:
    a = Array((2, 3))
    for i in range(6):
        a[divmod(i, 3)] = i
    return a


def make_labelled(_: Path) -> Labelled:
    return Labelled(np.array(NUMBERS, "float32"), ("row", "column"))


def make_labelled_torch(_: Path) -> Labelled:
    return Labelled(requires("torch").tensor(NUMBERS), ("row", "column"))


def make_mapped(folder: Path) -> Mapped:
    save(folder / "file", {"x": np.array(NUMBERS, "float32")})
    return load(folder / "file")["x"]


MAKERS = [make_array, make_labelled, make_labelled_torch, make_mapped]


@pytest.fixture(params=MAKERS)
def x(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """An array of each example with the same numbers."""
    make: Callable[[Path], Any] = request.param
    return make(tmp_path)


NEEDS = {
    "ctypes_array": [],
    "kernel": [],
    "labelled": [],
    "launch_triton": ["torch"],
    "launchers": ["numpy"],
    "mapped_file": [],
    "masked_grid": ["torch", "jax"],
    "season": ["polars", "torch", "jax"],
    "shared": ["torch", "jax"],
}


@pytest.mark.parametrize("name", NEEDS)
def test_an_example_runs_as_a_program(name: str) -> None:
    for library in NEEDS[name]:
        requires(library)
    load_doubled()  # not twice at once, where tests run in parallel
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout


def test_numpy_shares_the_memory(x: Any) -> None:
    """R49: a write to the array is seen in the object."""
    a = np.from_dlpack(x)
    assert a.tolist() == NUMBERS
    a[1, 1] = 9
    assert np.from_dlpack(x)[1, 1] == 9


def test_torch_shares_the_memory(x: Any) -> None:
    """R49: a write to the tensor is seen in the object."""
    t = requires("torch").from_dlpack(x)
    assert t.tolist() == NUMBERS
    t[1, 1] = 9
    assert np.from_dlpack(x)[1, 1] == 9


def test_compiled_code_reads_it_and_gives_back_its_own_class(x: Any) -> None:
    """R130: the table makes an object of the class that went in."""
    y = load_doubled()(x)
    assert type(y) is type(x)
    assert np.from_dlpack(y).tolist() == (2 * np.array(NUMBERS)).tolist()


def test_its_class_is_made_of_any_array(x: Any) -> None:
    a = np.array(NUMBERS, "float32")
    y = type(x).from_dlpack(a)
    assert type(y) is type(x)
    assert dlx.from_dlpack(y).data_ptr == a.ctypes.data


def test_what_was_exported_outlives_the_array(tmp_path: Path) -> None:
    exported = [np.from_dlpack(make(tmp_path)) for make in (make_array, make_mapped)]
    assert [a.tolist() for a in exported] == [NUMBERS, NUMBERS]


def test_compiled_code_gets_its_memory_from_the_class() -> None:
    """R134: what comes back is memory of ctypes, which the class allocated."""
    made: list[Array] = []

    class Noting(Array):
        @classmethod
        def __dlx_empty__(
            cls, shape: tuple[int, ...], dtype: dlx.DType, device: dlx.Device
        ) -> Self:
            empty = super().__dlx_empty__(shape, dtype, device)
            made.append(empty)
            return empty

    y = load_doubled()(Noting((2,)))
    assert type(y) is Noting
    assert dlx.from_dlpack(y).data_ptr == dlx.from_dlpack(made[0]).data_ptr


@pytest.mark.parametrize(
    "source",
    [
        np.array(NUMBERS).T,
        np.frombuffer(b"12345678", "int32"),
        np.zeros((2, 0)),
        np.array(3, "int64"),
    ],
)
def test_a_ctypes_array_takes_layouts_that_ctypes_does_not_have(
    source: np.ndarray[Any, Any],
) -> None:
    a = Array.from_dlpack(source)
    np.testing.assert_array_equal(np.from_dlpack(a), source)


def test_a_labelled_array_is_transposed_by_name_without_a_copy() -> None:
    x = make_labelled(EXAMPLES)
    y = x.transpose("column", "row")
    assert y.sizes == {"column": 3, "row": 2}
    assert np.asarray(y).tolist() == np.array(NUMBERS).T.tolist()
    assert np.shares_memory(np.asarray(y), x.data)


def test_a_part_of_a_labelled_array_is_taken_by_name_without_a_copy() -> None:
    x = make_labelled(EXAMPLES)
    y = x.isel(row=1, column=slice(None, None, 2))
    assert (y.dims, np.asarray(y).tolist()) == (("column",), [3.0, 5.0])
    assert np.shares_memory(np.asarray(y), x.data)
    with pytest.raises(ValueError, match="rows"):
        x.isel(rows=1)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_labelled_array_keeps_the_rules_of_exchange(library: str) -> None:
    """docs/classes.md, Testing your class."""
    xp = requires(library)
    check_mixin(Labelled, lambda: Labelled(xp.ones((2, 3)), ("row", "column"), "mm"))


def test_a_bridge_keeps_the_unit_of_a_labelled_array() -> None:
    """docs/classes.md, Hooks: also its names, where there are as many dimensions."""

    @dlx.bridge(np.ndarray)
    def total(a: Any, axis: int, keepdims: bool) -> Any:
        return a.sum(axis, keepdims=keepdims)

    x = Labelled(np.array(NUMBERS), ("row", "column"), "mm")
    kept, dropped = total(x, 0, True), total(x, 0, False)
    assert (kept.unit, kept.dims, dropped.unit, dropped.dims) == (
        "mm",
        ("row", "column"),
        "mm",
        ("dim_0",),
    )
    assert np.asarray(dropped).tolist() == [3.0, 5.0, 7.0]


def test_new_memory_like_a_labelled_array_has_its_unit() -> None:
    """docs/classes.md, Hooks."""
    x = Labelled(np.array(NUMBERS), ("row", "column"), "mm")
    y = dlx.empty((4, 3), "int16", like=x)
    assert (type(y), y.unit, y.sizes) == (Labelled, "mm", {"row": 4, "column": 3})


def silu(x: Any) -> Any:
    """The factor of `gated`, in NumPy."""
    return x / (1 + np.exp(-x))


def test_a_kernel_reads_tensors_of_two_libraries() -> None:
    """docs/bridge.md, Results: as there, the result is of the first one's library."""
    jax = requires("jax")
    x, gate = np.arange(6, dtype="float32"), np.linspace(-2, 2, 6, dtype="float32")
    y = gated(jax.numpy.asarray(x), requires("torch").tensor(gate))
    assert isinstance(y, jax.Array)
    np.testing.assert_allclose(y, x * silu(gate), rtol=1e-5)


def test_a_kernel_writes_into_the_out_of_its_caller() -> None:
    x, out = np.ones((2, 3), "float32"), np.zeros((2, 3), "float32")
    assert gated(x, x, out) is out
    np.testing.assert_allclose(out, silu(x), rtol=1e-5)


@pytest.mark.parametrize(
    ("refuse", "follow"),
    [
        (lambda x: x.astype("float64"), lambda x: dlx.convert(x, np, dtype="float32")),
        (lambda x: x[::-1], lambda x: dlx.from_dlpack(x, copy=True)),
        (lambda x: x[1:], lambda x: dlx.from_dlpack(x, copy=True)),
    ],
    ids=["dtype", "strides", "alignment"],
)
def test_the_advice_makes_what_the_kernel_accepts(refuse: Any, follow: Any) -> None:
    """docs/convert.md: what a refusal names is what helps."""
    x = refuse(dlx.empty(5, "float32", like=np))
    x[...] = np.arange(x.size)
    with pytest.raises(
        BufferError, match=r"dlx\.(convert|from_dlpack)\(x, "
    ) as refused:
        gated(x, x)
    assert refused.value.__notes__ == ["argument 0 of dlx.borrow"]
    y = dlx.from_dlpack(gated(follow(x), follow(x))).numpy()
    np.testing.assert_allclose(y, x * silu(x), rtol=1e-5)


def test_a_kernel_refuses_tensors_of_two_shapes() -> None:
    x = np.ones(4, "float32")
    with pytest.raises(ValueError, match="differ in shape"):
        gated(x, x.reshape(2, 2))


def test_the_source_of_the_kernel_compiles_for_a_gpu() -> None:
    requires("cuda.core")
    requires("cuda.bindings.nvrtc")
    assert b"gated" in bytes(compile_for_gpu("sm_90").code)


@pytest.mark.parametrize("name", ["ctypes", "Numba"])
@pytest.mark.parametrize("library", ["numpy", "torch", "jax.numpy"])
def test_a_launcher_takes_tensors_of_each_library(name: str, library: str) -> None:
    """docs/launcher.md, Examples: those that run without a GPU."""
    if name == "Numba":
        requires("numba")
    module, saxpy = requires(library), WAYS[name][0]()
    x = dlx.convert(np.arange(6, dtype="f4"), module)
    y = dlx.convert(np.ones(6, dtype="f4"), module)
    out = np.zeros(6, "f4")
    saxpy(2.0, x, y, out, 6)
    assert out.tolist() == [1, 3, 5, 7, 9, 11]
    with pytest.raises(BufferError, match="float64") as refused:
        saxpy(2.0, x, out.astype("f8"), out, 6)
    assert refused.value.__notes__[0].startswith("argument ")


def test_triton_interprets_a_kernel_over_tensors_of_two_libraries() -> None:
    """docs/launcher.md, Examples: elsewhere, as TensorFlow may be here."""
    requires("torch")
    if find_spec("triton") is None:
        pytest.skip("triton is not installed: torch brings it on Linux")
    command = [sys.executable, str(EXAMPLES / "launch_triton.py")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.endswith(": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]\n")


def test_writing_to_a_mapped_tensor_leaves_the_file(tmp_path: Path) -> None:
    np.from_dlpack(make_mapped(tmp_path))[:] = 9
    assert np.from_dlpack(load(tmp_path / "file")["x"]).tolist() == NUMBERS


def test_a_file_holds_what_numpy_has_no_name_for(tmp_path: Path) -> None:
    bits = np.array([0x3F80, 0x4000], "uint16")
    x = dlx.from_pointer(bits.ctypes.data, (2,), "bfloat16", owner=bits)
    save(tmp_path / "file", {"x": x})
    back = load(tmp_path / "file")["x"].tensor
    assert back.dtype == "bfloat16"
    assert back.numpy().tolist() == [1.0, 2.0]


def test_a_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "file", {"x": np.ones(100)})
    whole = (tmp_path / "file").read_bytes()
    (tmp_path / "file").write_bytes(whole[:-1])
    with pytest.raises(ValueError, match="does not hold all of x"):
        load(tmp_path / "file")
