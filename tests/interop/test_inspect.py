"""`dlx.inspect` of libraries that only `tests/tasks.py interop` installs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.optional_libraries import needs

from .matrix import ENVIRONMENT

TESTS = Path(__file__).parents[1]


def run(code: str, library: str) -> None:
    """Run code that imports a library in a process of its own."""
    needs(library)
    places = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(places)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, f"{ran.returncode}: {ran.stderr[-2000:]}"


@pytest.mark.parametrize(
    ("library", "module"), [("mlx", "mlx.core"), ("tensorflow", "tensorflow")]
)
def test_immutable_tensors_are_exported_as_if_they_were_not(
    library: str, module: str
) -> None:
    """R40."""
    code = f"""if True:
        import {module} as library
        from support.inspections import can_be_written, hint
        x = library.ones(3)
        assert hint(x, "immutable")
        assert can_be_written(x)
    """
    run(code, library)


def test_a_negated_view_of_a_quantized_torch_tensor_is_not_asked_for_its_device() -> (
    None
):
    """`is_pinned` ends the process for it."""
    code = """if True:
        import dlx, torch
        x = torch.quantize_per_tensor(torch.ones(3), 0.5, 1, torch.quint8)
        protocols = dlx.inspect(torch._neg_view(x)).protocols
        [note] = [x.note for x in protocols if x.name == "__dlpack_device__"]
        assert note.startswith("not called"), note
    """
    run(code, "torch")


def test_no_table_is_called_with_a_sparse_tensor_of_paddle() -> None:
    """Paddle's reads it as if it were dense, which may end the process."""
    code = """if True:
        import paddle
        from dlx_check.inspection import exports, objects
        x = paddle.ones([2, 3]).to_sparse_csr()
        table = objects._table(type(x))
        for export in exports.borrowed, exports.exported_by_table:
            assert export(x, table).refusal.startswith("not called")
    """
    run(code, "paddle")


def test_a_string_tensor_of_tensorflow_is_not_exported() -> None:
    """TensorFlow ends the process when a string tensor is exported."""
    code = """if True:
        import dlx, tensorflow
        protocols = dlx.inspect(tensorflow.constant("a")).protocols
        [note] = [each.note for each in protocols if each.name == "__dlpack__"]
        assert note.startswith("not called"), note
    """
    run(code, "tensorflow")
