"""What torch says of a tensor, by its own operators."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

from .libraries import FOUND
from .said import Said, exports_read_only, memory


def is_plain_torch(x: Any) -> bool:
    """Whether a torch tensor has memory of its own that holds its numbers."""
    torch = FOUND["torch"]
    if x.is_nested or x.layout != torch.strided or x.device.type != "cpu":
        return False
    if x.is_quantized or torch._C._functorch.is_functorch_wrapped_tensor(x):
        return False
    if torch._is_functional_tensor(x):
        return False
    storage = x.untyped_storage()
    if storage.nbytes() < bytes_needed(x):
        return False
    disabled = torch._C._disabled_torch_dispatch_impl
    if getattr(type(x), "__torch_dispatch__", disabled) is disabled:
        return True
    # The memory of a wrapper subclass is elsewhere, unless it has some of its own.
    try:
        return bool(storage.data_ptr())
    except RuntimeError:
        return False


def bytes_needed(x: Any) -> int:
    """Return how many bytes the storage of a torch tensor needs."""
    if x.numel() == 0 or x._is_zerotensor():
        return 0
    last = sum(
        (extent - 1) * step for extent, step in zip(x.shape, x.stride(), strict=True)
    )
    return int(x.storage_offset() + last + 1) * int(x.element_size())


def is_torch(x: Any) -> bool:
    """Whether an object is a tensor of torch."""
    return "torch" in FOUND and isinstance(x, FOUND["torch"].Tensor)


def is_misaligned(y: Any) -> bool:
    """Whether a torch tensor is misaligned, so that kernels may end the process."""
    return is_torch(y) and bool(y.data_ptr() % y.element_size())


def is_negated(x: Any) -> bool:
    """Whether the elements of a torch tensor are stored with the other sign."""
    with undisturbed():
        return bool(x.is_neg())


def is_small(dtype: Any) -> bool:
    """Whether elements are integers of fewer than eight bits, which torch only names.

    It has no operators for them, and its own ``numpy`` refuses them.
    """
    kind, _, bits = str(dtype).removeprefix("torch.").rpartition("int")
    return kind in ("", "u") and bits in "1234567"


def cloned(x: Any) -> bytes:
    """Return the elements of a clone without lazy operations."""
    torch = FOUND["torch"]
    if is_small(x.dtype):
        x = x.view(torch.uint8)
    if x._is_zerotensor():
        clone = torch.zeros(x.shape, dtype=x.dtype)
    else:
        clone = x.clone().resolve_conj().resolve_neg().contiguous()
    size = clone.numel() * clone.element_size()
    return ctypes.string_at(clone.data_ptr(), size) if size else b""


@contextlib.contextmanager
def undisturbed() -> Iterator[bool]:
    """Let no mode, subclass or trace see what is asked; gives whether there is one."""
    torch = FOUND["torch"]
    modes = torch.utils._python_dispatch._disable_current_modes()
    trace = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)
    try:
        with (
            torch._C.DisableTorchFunctionSubclass(),
            torch._C._DisableTorchDispatch(),
            modes,
            torch.no_grad(),
        ):
            yield trace is not None
    finally:
        torch._C._set_tracing_state(trace)


def has_tangent(x: Any) -> bool:
    """Whether forward-mode differentiation goes through a tensor."""
    dual = FOUND["torch"].autograd.forward_ad
    return dual._current_level >= 0 and dual.unpack_dual(x).tangent is not None


def of_torch(x: Any) -> Said | None:
    """Read a clone made by torch's own operators; None if the tensor has no numbers."""
    torch = FOUND["torch"]
    if not isinstance(x, torch.Tensor) or is_refused_by_a_mode():
        return None
    if torch.nn.parameter.is_lazy(x):
        return None
    with undisturbed() as traced:
        if not is_plain_torch(x):
            return None
        tracked = x.requires_grad or has_tangent(x)
        plain = x.detach().as_subclass(torch.Tensor)
        if is_misaligned(plain):
            # It comes from another library, so it is not lazy.
            item = plain.element_size()
            data = memory(plain.data_ptr(), plain.shape, plain.stride(), item)
        else:
            data = cloned(plain)
        name = str(x.dtype).removeprefix("torch.").replace("_x2", "x2")
        said = Said(tuple(x.shape), name, data, tracked=tracked, traced=traced)
    # A class with an export of its own may protect what torch itself would write to.
    own = type(x).__dlpack__ is not torch.Tensor.__dlpack__
    return said._replace(protected=own and exports_read_only(x))


def is_refused_by_a_mode() -> bool:
    """Whether a mode that is on refuses every ``__dlpack__``."""
    if "torch" not in FOUND:
        return False
    stack = FOUND["torch"].overrides._get_current_function_mode_stack()
    return any(getattr(mode, "refuses_dlpack", False) for mode in stack)


def version_of(x: Any) -> int | None:
    """Return how often autograd heard that a tensor was written to; None if it cannot.

    What was saved for a backward pass is compared with it.
    """
    with undisturbed():
        return None if x.is_inference() else int(x._version)
