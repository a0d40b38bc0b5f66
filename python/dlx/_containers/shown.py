"""What the ``repr`` of a tensor shows."""

from __future__ import annotations

from struct import pack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .._core import Tensor

__all__ = ["shown"]

_SMALL = 9  # elements that are shown, all of them
_FIRST = 3  # of more, and of one row


def shown(tensor: Tensor, maybe_readonly: bool, is_kept: bool, has_ended: bool) -> str:
    """Return one line, which mentions only what differs from the defaults.

    The elements are read where ``is_kept`` says that something keeps the memory.
    """
    shape = ", ".join(map(str, tensor.shape))
    parts = [f"{tensor.dtype}[{shape}]", str(tensor.device)]
    if not tensor.is_contiguous:
        parts.append(f"strides={list(tensor.strides)}")
    for is_said, name in (
        (tensor.readonly and not maybe_readonly, "readonly"),
        (maybe_readonly, "maybe readonly"),
        (tensor.is_copied, "copied"),
        (tensor.is_padded, "padded"),
        (has_ended, "ended"),
    ):
        if is_said:
            parts.append(name)
    if is_kept and not has_ended and str(tensor.device) == "cpu" and tensor.size:
        parts += _elements(tensor)
    return f"dlx.Tensor({', '.join(parts)})"


def _elements(tensor: Tensor) -> list[str]:
    """Return the elements in nested brackets, if Python has numbers for them."""
    part = tensor
    try:
        if tensor.size > _SMALL:
            ones = [slice(1)] * (tensor.ndim - 1)
            part = tensor[(*ones, slice(_FIRST))]
        values = part.tolist()
    except BufferError:
        return []
    is_narrow = tensor.dtype.bits < 64
    return [_nested(values, tensor.shape, is_narrow)]


def _nested(values: Any, shape: tuple[int, ...], is_narrow: bool) -> str:
    """Write these elements of a tensor, and dots for the others."""
    if not shape:
        is_float = isinstance(values, float)
        return _short(values) if is_narrow and is_float else repr(values)
    parts = [_nested(each, shape[1:], is_narrow) for each in values]
    if len(parts) < shape[0]:
        parts.append("...")
    return f"[{', '.join(parts)}]"


def _short(value: float) -> str:
    """Write a number that 32 bits hold, in no more digits than tell it from others."""
    for digits in range(1, 9):
        short = float(f"{value:.{digits}g}")
        if pack("f", short) == pack("f", value):
            return repr(short)
    return repr(float(f"{value:.9g}"))
