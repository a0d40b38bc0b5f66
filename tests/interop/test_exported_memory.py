"""What a library exports is the memory of its arrays, where dlx relies on that.

Of a copy that an array made for its export, the address would say nothing about
whether the array itself shares read-only memory.
"""

from __future__ import annotations

import subprocess
import sys
from itertools import chain

import pytest
from dlx._libraries import importers
from support.optional_libraries import needs

LISTED = {
    (row.module, row.attribute)
    for row in [*chain(*importers._CLASSES.values()), *importers._BETTER.values()]
    if row.shows_memory
}


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


# In a process of its own: not all of these libraries bear each other.
PROGRAM = """
import sys
from importlib import import_module

import dlx
import numpy as np

module, name = sys.argv[1:]
library = import_module(module)
if module == "warp":
    library.init()
for dtype in "uint8", "int32", "float32":
    source = dlx.empty((4, 64), dtype)
    np.asarray(source)[...] = np.arange(256).reshape(4, 64) % 100
    made = dlx.convert(source, getattr(library, name))
    one, two = dlx.from_dlpack(made), dlx.from_dlpack(made)
    assert one.data_ptr == two.data_ptr
    assert (one.data_ptr == source.data_ptr) == (module != "mlx.core")
    assert np.array_equal(one, source)
"""


@pytest.mark.parametrize(("module", "name"), sorted(LISTED))
def test_two_exports_of_an_array_have_one_address(module: str, name: str) -> None:
    """R42: while both live, so neither is a copy."""
    needs(module)
    command = [sys.executable, "-c", PROGRAM, module, name]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
