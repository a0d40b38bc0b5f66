"""The dispatch key sets of CUDA tensors, which dlx makes of torch's keys."""

from __future__ import annotations

from typing import Any

from dlx._libraries.torch import key_sets
from support.optional_libraries import requires

torch = requires("torch")


def keys(x: Any) -> int:
    """Return the key set of a tensor."""
    number: int = torch._C._dispatch_keys(x).raw_repr()
    return number


def test_plain_tensors_have_the_sets_that_dlx_knows() -> None:
    """S13: outside and in inference mode, views, with and without gradients."""
    x = torch.ones(2, 3, device="cuda")
    with torch.inference_mode():
        inferred = torch.ones(2, 3, device="cuda")
    plain, inference = key_sets(torch, "CUDA") or [0, 0]
    made = [x, x[1:], x.t(), x.clone().requires_grad_(), x.detach(), x.half()]
    assert {keys(y) for y in made} == {plain}
    assert {keys(inferred), keys(inferred[1:])} == {inference}


def test_no_lazy_tensor_has_one_of_them() -> None:
    """R125: conjugated, negated and sparse ones."""
    x = torch.ones(2, dtype=torch.complex64, device="cuda")
    lazy = [x.conj(), torch._neg_view(x), x.to_sparse()]
    assert not set(key_sets(torch, "CUDA") or ()) & {keys(y) for y in lazy}
