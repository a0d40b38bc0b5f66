"""torch's tensors."""

from __future__ import annotations

from functools import partial
from typing import Any

from interop.cases import elements
from interop.making import in_torch, late

from .objects import Object, Objects, made, of_dtypes, sent, viewed

NARROW = " ".join(f"{sign}{bits}" for sign in ("int", "uint") for bits in range(1, 8))
"""Integers of less than a byte: torch has the dtypes, and cannot compute with them."""


def of_bytes(name: str) -> Any:
    """Return bytes as another dtype of one byte."""
    torch = late("torch")
    return torch.zeros((4, 6), dtype=torch.uint8).view(getattr(torch, name))


def of_words(name: str) -> Any:
    """Return zeros of a wider dtype."""
    torch = late("torch")
    return torch.zeros((4, 6), dtype=getattr(torch, name))


def tensor() -> Any:
    """Return the elements."""
    return in_torch(elements())


def torchs() -> Objects:
    """Yield tensors, among them lazy ones and some that record gradients."""
    from support.torch_kinds import KINDS

    yield from sent("torch")
    yield from of_dtypes(f"{NARROW} float4_e2m1fn_x2 bits8", of_bytes)
    yield from of_dtypes("bits16", of_words)
    yield from viewed(in_torch)
    for name, make in KINDS.items():
        yield Object("kind-" + name.replace(", ", "-").replace(" ", "-"), make)
    yield from special()
    yield from read_only()


def special() -> Objects:
    """Yield tensors over other memory."""
    torch = late("torch")
    yield from made(
        over_bytes=lambda: torch.frombuffer(bytes(96), dtype=torch.float32),
        meta=lambda: torch.zeros(3, device="meta"),
        shared=lambda: tensor().share_memory_(),
    )


def read_only() -> Objects:
    """Yield torch's wrappers that only export, as read-only; torch 2.15 has them."""
    torch = late("torch")
    wrapper = getattr(torch.utils.dlpack, "ReadOnlyTensorWrapper", None)
    if wrapper is None:
        return
    views = {
        "row-major": lambda x: x,
        "strided": lambda x: x[::2, 1::2],
        "0-d": lambda x: x[1, 2],
        "empty": lambda x: x[:0],
        "bfloat16": lambda x: x.to(torch.bfloat16),
        "conj": lambda x: x.to(torch.complex64).conj(),
        "grad": lambda x: x.requires_grad_(),
    }
    for name, view in views.items():
        yield Object(
            f"read-only-{name}", partial(lambda view: wrapper(view(tensor())), view)
        )
