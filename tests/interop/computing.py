"""An array plus itself, where a library has no operator for that."""

from __future__ import annotations

from functools import cache
from typing import Any

from .making import late


def double_warp(x: Any) -> Any:
    """Double in Warp, which compiles its own function."""
    warp = late("warp")
    return warp.map(warp.add, x, x)


@cache
def adder(element_type: int) -> Any:
    """Return an ONNX Runtime session that adds."""
    helper = late("onnx.helper")
    x = helper.make_tensor_value_info("x", element_type, None)
    y = helper.make_tensor_value_info("y", element_type, None)
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])], "", [x], [y]
    )
    version = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=version, ir_version=8)
    return late("onnxruntime").InferenceSession(model.SerializeToString())


def double_onnxruntime(x: Any) -> Any:
    """Double in ONNX Runtime, which runs models."""
    (y,) = adder(x.element_type()).run_with_ort_values(["y"], {"x": x})
    return y
