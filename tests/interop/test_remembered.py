"""What dlx remembers of a library's importer: the dtypes that it was seen to keep."""

from __future__ import annotations

import importlib
from typing import Any

import array_api_strict as strict
import dlx
import numpy as np
import pyarrow  # type: ignore[import-untyped]
import pytest
from support.optional_libraries import requires

# The object that has the importer, its name, and the array type.
IMPORTERS = [
    ("mlx.core", "", "from_dlpack", "mlx.core", "array"),
    ("warp", "", "from_dlpack", "warp", "array"),
    ("onnxruntime", "OrtValue", "from_dlpack", "onnxruntime", "OrtValue"),
    ("array_api_strict", "", "from_dlpack", "array_api_strict._array_object", "Array"),
]


def found(name: str, attribute: str) -> Any:
    """Return a module, or what it has."""
    module = requires(name)
    return getattr(module, attribute) if attribute else module


def array(dtype: str = "float32") -> Any:
    """Return four elements, aligned for every library."""
    memory = np.zeros(512, dtype="u1")
    start = -memory.ctypes.data % 256
    made = memory[start : start + 4 * np.dtype(dtype).itemsize].view(dtype)
    made[...] = np.arange(4)
    return made


@pytest.mark.parametrize(
    ("module", "attribute", "name", "of", "kind"),
    IMPORTERS,
    ids=[each[0] for each in IMPORTERS],
)
def test_another_importer_is_asked_anew_for_a_dtype_that_the_former_kept(
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    attribute: str,
    name: str,
    of: str,
    kind: str,
) -> None:
    """What one keeps shows no other."""
    to = found(of, kind)
    if module == "warp":
        importlib.import_module("warp").init()
    owner = found(module, attribute)
    own = getattr(owner, name)
    for _ in range(3):
        assert dlx.from_dlpack(dlx.convert(array(), to)).dtype == "float32"
    other = own(array("int32"))
    monkeypatch.setattr(owner, name, lambda *_: other)
    with pytest.raises(BufferError, match="would import float32 as int32"):
        dlx.convert(array(), to)
    monkeypatch.undo()
    assert dlx.from_dlpack(dlx.convert(array(), to)).dtype == "float32"


@pytest.mark.parametrize("kind", ["Array", "FloatArray"])
def test_a_class_of_pyarrow_is_checked_after_many_of_its_arrays(kind: str) -> None:
    """R58: pyarrow's importer makes what the dtype says, whichever class has it."""
    to = getattr(pyarrow, kind)
    for _ in range(3):
        made = dlx.convert(array(), to, copy=False)
        assert made.to_pylist() == [0.0, 1.0, 2.0, 3.0]
    wrong = array("int32")
    if kind == "Array":
        assert dlx.convert(wrong, to).type == pyarrow.int32()
    else:
        with pytest.raises(TypeError, match="FloatArray cannot be made"):
            dlx.convert(wrong, to)


def test_onnxruntime_keeps_each_dtype_or_refuses_it_after_it_kept_bytes() -> None:
    """docs/interop.md: it gets a capsule, in which a bool has a code of its own."""
    to = found("onnxruntime", "OrtValue")
    for _ in range(3):
        assert dlx.convert(array("uint8"), to).numpy().tolist() == [0, 1, 2, 3]
        made = dlx.convert(np.array([True, False]), to).numpy()
        assert (made.dtype, made.tolist()) == (np.bool, [True, False])
        with pytest.raises(BufferError, match="does not accept the complex64"):
            dlx.convert(array("complex64"), to)


def test_mlx_refuses_float64_after_it_kept_float32() -> None:
    """docs/interop.md: it would make float32 of them."""
    to = found("mlx.core", "array")
    for _ in range(3):
        assert dlx.from_dlpack(dlx.convert(array(), to)).dtype == "float32"
        with pytest.raises(BufferError, match="would import float64 as float32"):
            dlx.convert(array("float64"), to)


def test_an_array_of_the_strict_namespace_is_looked_at_by_what_it_holds() -> None:
    """With `copy=False` the address is that of the array it holds."""
    a = array()
    made = dlx.convert(a, strict, copy=False)
    assert np.from_dlpack(made).ctypes.data == a.ctypes.data
    a.flags.writeable = False
    assert not np.from_dlpack(dlx.convert(a, strict, copy=False)).flags.writeable


def test_a_class_with_an_importer_of_its_own_that_changes_is_asked_each_time() -> None:
    """Only what Python code cannot change is remembered."""
    made: list[str] = []

    class Own:
        """Exports and imports an array."""

        def __init__(self, x: Any) -> None:
            self.x = x

        def __dlpack__(self, **keywords: Any) -> Any:
            """Export the array."""
            return self.x.__dlpack__(**keywords)

        def __dlpack_device__(self) -> tuple[int, int]:
            """Return the CPU."""
            return (1, 0)

        @classmethod
        def from_dlpack(cls, x: Any) -> Own:
            """Import by the first importer."""
            made.append("first")
            return cls(np.from_dlpack(x))

    def second(x: Any) -> Own:
        made.append("second")
        return Own(np.from_dlpack(x))

    dlx.convert(array(), Own)
    Own.from_dlpack = second  # type: ignore[method-assign]
    dlx.convert(array(), Own)
    assert made == ["first", "second"]
