"""What torch and Paddle note of what is written to: their graphs, and counts."""

from __future__ import annotations

import sys

from .torch import known_to, records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    # Unversioned and versioned capsules, each with the count of its tensor.
    Samples = list[list[tuple[object, int]]]

RECORDED = (
    "{what}, and no graph records what is written to it, so a backward pass would give "
    "the gradients of what was there before; write in `with {library}.no_grad():`, or "
    "pass tensor.detach()"
)
TIMES = (11, 37, 101)


def recorded(tensor: Any) -> str | None:
    """Explain why a write would make wrong what torch or Paddle records of a tensor.

    None if they record nothing.
    """
    if any(map(known_to, type(tensor).__mro__)):
        found = records(tensor)
        if found == "has a tangent":
            return f"{found}, which a write would not change; pass tensor.detach()"
        return found and RECORDED.format(what=found, library="torch")
    if getattr(tensor, "stop_gradient", True):
        return None
    # A module of that name counts only if the tensor is its own.
    paddle: Any = sys.modules.get("paddle")
    own = getattr(paddle, "Tensor", None)
    is_known = any(own is base for base in type(tensor).__mro__)
    if is_known and paddle.is_grad_enabled() is False:
        return None
    return RECORDED.format(what="records gradients", library="paddle")


def of_torch(kind: Any) -> Samples:
    """Export tensors of torch, made by their class alone: no mode takes part."""
    torch = known_to(kind)
    if torch is None:
        if getattr(kind.__base__, "__module__", None) == "torch._C":
            raise TypeError("torch.Tensor is not as torch made it")
        return []  # a class of that name
    # No trace records the first, which older versions of torch lack.
    write = getattr(torch.autograd.graph, "increment_version", kind.zero_)
    with (
        torch._C.DisableTorchFunction(),
        torch.utils._python_dispatch._disable_current_modes(),
        torch.inference_mode(False),
    ):
        return _samples(lambda: kind(2), write, "_version")


def of_paddle(kind: Any) -> Samples:
    """Export tensors of Paddle."""
    import numpy

    zeros = numpy.zeros(2, "float32")
    bump: Callable[[Any], object] = kind._bump_inplace_version
    return _samples(lambda: kind(zeros), bump, "inplace_version")


def _samples(
    make: Callable[[], Any], write: Callable[[Any], object], count: str
) -> Samples:
    """Export tensors in both ways, written to as often as `TIMES` says."""
    made: Samples = [[], []]
    for times in TIMES:
        x = make()
        for _ in range(times):
            write(x)
        found = getattr(x, count)
        made[0].append((x.__dlpack__(), found))
        made[1].append((x.__dlpack__(max_version=(1, 3)), found))
    return made
