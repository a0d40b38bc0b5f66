"""Planted bugs, which the fuzzer must find.

A worker plants a bug before it runs its programs: functions of dlx are replaced by
others that spoil the result as the bug would.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import dlx
import numpy as np

from . import kit

_convert, _from_dlpack = dlx.convert, dlx.from_dlpack


def _plant(
    convert: Callable[..., Any], from_dlpack: Callable[..., Any] = _from_dlpack
) -> None:
    """Replace functions of dlx in the namespace of programs."""

    class Shim:
        def __getattr__(self, name: str) -> Any:
            return getattr(dlx, name)

    shim: Any = Shim()
    shim.convert, shim.from_dlpack = convert, from_dlpack
    kit.KIT["dlx"] = shim


def believe_in_autograd() -> None:
    """Ask torch about conj and neg only if the tensor has an autograd state."""
    import torch

    def raw(x: Any) -> Any:
        """Return the elements as stored, where the bug does not ask torch."""
        if isinstance(x, torch.Tensor) and x.grad_fn is None and not x.requires_grad:
            x = x.detach()
            if x.layout == torch.strided and x.device.type == "cpu":
                x = torch._neg_view(x) if x.is_neg() else x
                x = x.conj() if x.is_conj() else x
        return x

    def convert(x: Any, *args: Any, **keywords: Any) -> Any:
        return _convert(raw(x), *args, **keywords)

    def from_dlpack(x: Any, **keywords: Any) -> Any:
        return _from_dlpack(raw(x), **keywords)

    _plant(convert, from_dlpack)


def drop_read_only() -> None:
    """Lose READ_ONLY on the way to NumPy."""

    def convert(x: Any, *args: Any, **keywords: Any) -> Any:
        made = _convert(x, *args, **keywords)
        if type(made) is np.ndarray and not made.flags.writeable and made.size:
            # The flags follow six pointers in the struct of an array.
            flags = ctypes.c_int.from_address(id(made) + 16 + 6 * 8)
            flags.value |= 0x0400
        return made

    _plant(convert)


def swap_strides() -> None:
    """Return square matrices with their strides swapped."""

    def convert(x: Any, *args: Any, **keywords: Any) -> Any:
        made = _convert(x, *args, **keywords)
        if type(made) is np.ndarray and made.shape == made.shape[::-1] != ():
            return made.T
        return made

    _plant(convert)
