"""What a library exports is the memory of its arrays, where dlx relies on that.

Of a copy that an array made for its export, the address would say nothing about
whether the array itself shares read-only memory.
"""

from __future__ import annotations

import operator

import dlx
import numpy as np
import pytest
from dlx import _provided
from dlx._core import Kept

LISTED = {
    (module, name)
    for rows in _provided._CLASSES.values()
    for module, name, _, look in rows
    if isinstance(look, Kept)
} | {(module, name) for name, (module, _, _) in _provided._BETTER.items()}


def test_each_listed_library_is_tried_here() -> None:
    """R42: dlx asks an array of these for its address alone."""
    assert {
        ("mlx.core", "array"),
        ("onnxruntime", "OrtValue"),
        ("pyarrow", "FixedShapeTensorArray"),
        ("tensorflow", "Tensor"),
        ("tvm_ffi", "Tensor"),
        ("warp", "array"),
    } == LISTED


@pytest.mark.parametrize(("module", "name"), sorted(LISTED))
@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32"])
def test_two_exports_of_an_array_have_one_address(
    module: str, name: str, dtype: str
) -> None:
    """R42: while both live, so neither is a copy."""
    library = pytest.importorskip(module)
    if module == "warp":
        library.init()
    source = dlx.empty((4, 64), dtype)
    np.asarray(source)[...] = np.arange(256).reshape(4, 64) % 100
    made = dlx.convert(source, operator.attrgetter(name)(library))
    one, two = dlx.from_dlpack(made), dlx.from_dlpack(made)
    assert one.data_ptr == two.data_ptr
    assert (one.data_ptr == source.data_ptr) == (module != "mlx.core")
    assert np.array_equal(one, source)
