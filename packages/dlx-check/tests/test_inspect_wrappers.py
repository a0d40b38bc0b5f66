"""`dlx.inspect` of objects whose class says little, or allows little."""

from __future__ import annotations

from typing import Any

import dlx
import numpy as np
import pytest
from support.dlx_producers import Stored
from support.optional_libraries import requires


def without_module(*bases: type) -> type:
    """Make a class without `__module__`."""
    made: dict[str, Any] = {"bases": bases}
    exec("kind = type('Sub', bases, {})", made, made)
    kind: type = made["kind"]
    assert not hasattr(kind, "__module__") or kind.__module__ is None
    return kind


def test_a_class_without_a_module_is_inspected() -> None:
    """docs/inspect.md: so are its instances, and a library is none's."""
    kind = without_module(np.ndarray)
    x: Any = np.arange(3.0).view(kind)
    found = dlx.inspect(x)
    assert found.tensor is not None
    assert found.tensor.shape == (3,)
    assert "Sub" in found.subject
    assert "Sub" in dlx.inspect(kind).subject


def test_a_class_without_a_module_is_traced() -> None:
    """docs/inspect.md: it has a name there."""
    x: Any = np.arange(3.0).view(without_module(np.ndarray))
    with dlx.trace() as trace:
        t = dlx.from_dlpack(x)
        assert "Sub" in trace.live[0].producer
    del t


def test_a_class_without_a_module_has_errors_and_no_importer() -> None:
    """R60: the error names it."""
    kind = without_module()
    with pytest.raises(TypeError, match="Sub cannot be made"):
        dlx.convert(np.ones(3), kind)
    with pytest.raises(AttributeError, match="Sub has no __dlpack__"):
        dlx.from_dlpack(kind())
    tree = without_module(set)([Stored(np.ones(3))])
    with pytest.raises(TypeError, match="Sub cannot hold"):
        dlx.convert_tree(tree, np)


@pytest.mark.parametrize("kind", ["plain", "conjugated", "negated", "recording"])
def test_a_tensor_that_only_exports_is_inspected(kind: str) -> None:
    """R42: its class allows no other question."""
    torch = requires("torch")
    module = requires("torch.utils.dlpack")
    if not hasattr(module, "ReadOnlyTensorWrapper"):
        pytest.skip("this torch has no ReadOnlyTensorWrapper")
    x = {
        "plain": lambda: torch.ones(2),
        "conjugated": lambda: torch.ones(2, dtype=torch.complex64).conj(),
        "negated": lambda: torch._neg_view(torch.ones(2)),
        "recording": lambda: torch.ones(2, requires_grad=True),
    }[kind]()
    hints = " ".join(
        hint.text for hint in dlx.inspect(module.ReadOnlyTensorWrapper(x)).hints
    )
    assert ("resolve_neg" in hints) == (kind == "negated")
    assert ("resolve_conj" in hints) == (kind == "conjugated")
