"""Names for programs of torch, besides torch itself."""

from __future__ import annotations

from typing import Any

import torch
import torch.autograd.forward_ad as fwd
import torch.masked
import torch.nested._internal.nested_tensor
import torch.utils.dlpack
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.two_tensor import TwoTensor

from .vetoes import refuse


class Subclass(torch.Tensor):  # type: ignore[misc]
    """A subclass that changes nothing."""


class Talking(torch.Tensor):  # type: ignore[misc]
    """A subclass whose ``__torch_function__`` does what torch does."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Do what torch does."""
        return super().__torch_function__(func, types, args, kwargs or {})


def two_tensor(x: Any) -> Any:
    """Return a wrapper subclass without memory of its own."""
    return TwoTensor(x, x)


def leaked(transform: Any, x: Any) -> Any:
    """Return the wrapper that a transform passed to its function, once it has ended."""
    seen: list[Any] = []

    def keep(t: Any) -> Any:
        seen.append(t)
        return t.sum()

    transform(keep)(x)
    return seen[0]


def dual(x: Any) -> Any:
    """Return a tensor with a tangent."""
    return fwd.make_dual(x, x.clone())


def traced(function: Any, x: Any) -> Any:
    """Record what a function does to ``x`` in a graph."""
    ends = TypeError("torch may end the process once the function has returned")
    wide = (torch.uint16, torch.uint32, torch.uint64)
    is_plain = type(x) in (torch.Tensor, torch.nn.Parameter) and x.dtype not in wide
    if x.is_nested or x.layout is not torch.strided or not is_plain:
        raise ends
    try:
        torch.equal(x, x)
    except RuntimeError:
        # What looks at the tensor compares, and torch also ends the process if an
        # operator raises in the function.
        raise ends from None

    def named(t: Any) -> Any:
        return function(t)

    return torch.jit.trace(named, (x,), check_trace=False)


class Refusing(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
    """A mode in which no tensor may be exported."""

    refuses_dlpack = True

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Do what torch does, but for the export."""
        return (refuse if func is torch.Tensor.__dlpack__ else func)(
            *args, **kwargs or {}
        )


def distributed(x: Any) -> Any:
    """Return a tensor whose memory is one process's part of it."""
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    if not torch.distributed.is_initialized():
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    return distribute_tensor(x, init_device_mesh("cpu", (1,)), [Shard(0)])


KIT = {
    "ReadOnly": getattr(torch.utils.dlpack, "ReadOnlyTensorWrapper", None),
    "traced": traced,
    "Refusing": Refusing,
    "Subclass": Subclass,
    "Talking": Talking,
    "leaked": leaked,
    "dual": dual,
}


def load_slow() -> None:
    """Do the slow imports once, for all workers."""
    import torch._decomp.decompositions_for_jvp
    import torch._dynamo
    import torch.distributed.tensor

    KIT["distributed"] = distributed
    KIT["two_tensor"] = two_tensor
    KIT["dual_level"] = fwd.dual_level
    KIT["func"] = torch.func
    KIT["nested"] = torch.nested
    KIT["fake_mode"] = lambda: FakeTensorMode(allow_non_fake_inputs=True)
