"""NumPy arrays of strings, dates, objects and fields: tensors in no library."""

from __future__ import annotations

from typing import Any

import dlx
import numpy as np
import pytest
from support.optional_libraries import requires

LABELS = {
    "str": np.array(["a", "b"]),
    "bytes": np.array([b"a", b"b"]),
    "object": np.array([1, "b"], object),
    "datetime64": np.array(["2026-11-28"], "M8[D]"),
    "timedelta64": np.array([3], "m8[s]"),
    "fields": np.zeros(2, [("x", "f4")]),
}
if hasattr(np.dtypes, "StringDType"):
    LABELS["StringDType"] = np.array(["a", "b"], np.dtypes.StringDType())


@pytest.fixture(params=LABELS)
def labels(request: pytest.FixtureRequest) -> Any:
    """An array of each kind."""
    return LABELS[request.param]


def test_they_stay_in_a_tree(labels: Any) -> None:
    """docs/convert.md, "Trees": other leaves stay."""
    x = np.ones(2)
    made = dlx.convert_tree({"x": x, "labels": [labels]}, dlx.Tensor)
    assert type(made["x"]) is dlx.Tensor
    assert made["labels"][0] is labels


def test_a_strict_tree_refuses_them_and_says_where(labels: Any) -> None:
    """docs/convert.md, "Trees": `strict=True` converts or refuses."""
    with pytest.raises(BufferError, match="elements of type") as refused:
        dlx.convert_tree([np.ones(2), labels], dlx.Tensor, strict=True)
    assert refused.value.__notes__ == ["at tree[1]"]


def test_an_argument_and_a_result_of_a_bridge_may_be_one(labels: Any) -> None:
    """docs/bridge.md, "Arguments": all else passes through."""
    torch = requires("torch")
    seen = []

    @dlx.bridge(torch)
    def function(x: Any, names: Any) -> Any:
        seen.append(type(x))
        return x * 2, labels

    doubled, names = function(np.ones(2, "float32"), labels)
    assert (seen, type(doubled)) == ([torch.Tensor], np.ndarray)
    assert names is labels


def test_one_alone_is_refused(labels: Any) -> None:
    """docs/convert.md: who asks for its conversion is told what it holds."""
    with pytest.raises(BufferError, match="elements of type"):
        dlx.convert(labels, dlx.Tensor)


def test_a_kernel_is_not_given_one(labels: Any) -> None:
    """docs/launcher.md, "Arguments": NumPy arrays are tensors, whatever they hold."""
    launch: Any = dlx.launcher(lambda x: x)
    with pytest.raises(BufferError, match="elements of type"):
        launch(labels)
