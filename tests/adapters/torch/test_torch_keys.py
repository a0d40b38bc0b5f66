"""The dispatch key sets by which dlx knows plain tensors of torch."""

from __future__ import annotations

from typing import Any

import pytest
from dlx._libraries.torch import key_sets
from support.optional_libraries import requires

torch = requires("torch")


def keys(x: Any) -> int:
    """Return the key set of a tensor."""
    number: int = torch._C._dispatch_keys(x).raw_repr()
    return number


def test_the_keys_of_a_backend_make_the_set_of_its_tensors() -> None:
    """S13: on the CPU, where tensors show it; so CUDA's are known without one."""
    with torch.inference_mode():
        inferred = torch.zeros(2)
    assert key_sets(torch, "CPU") == [keys(torch.zeros(2)), keys(inferred)]
    assert not set(key_sets(torch, "CUDA") or ()) & set(key_sets(torch, "CPU") or ())


@pytest.mark.parametrize("part", ["backend", "CPU", "Autograd"])
def test_of_a_torch_without_these_names_nothing_is_known(part: str) -> None:
    """S13: dlx asks torch then."""
    backend = {"backend": "Unheard", "CPU": "AutocastCPU", "Autograd": "Functionalize"}
    assert key_sets(torch, backend[part]) is None


def test_no_lazy_tensor_has_a_set_of_plain_ones() -> None:
    """R125: conjugated, negated, sparse and functional ones."""
    x = torch.ones(2, dtype=torch.complex64)
    lazy = [x.conj(), torch._neg_view(x), x.to_sparse(), torch._to_functional_tensor(x)]
    plain = {*(key_sets(torch, "CPU") or ()), *(key_sets(torch, "CUDA") or ())}
    assert not plain & {keys(y) for y in lazy}
