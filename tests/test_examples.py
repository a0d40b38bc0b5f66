"""`examples/`: each runs, and its arrays go through every library and come back."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import dlx
import numpy as np
import pytest
from compiled import load_doubled
from ctypes_array import Array
from labelled import Labelled
from mapped_file import Mapped, load, save
from support.optional_libraries import requires

EXAMPLES = Path(__file__).parents[1] / "examples"
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


@pytest.mark.parametrize("name", ["ctypes_array", "labelled", "mapped_file"])
def test_an_example_runs_as_a_program(name: str) -> None:
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
