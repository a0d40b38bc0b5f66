"""Bugs that are planted to see that the fuzzer finds them.

Each is a line that a worker runs before its programs. It puts something between the
programs and dlx that spoils what dlx gives, as the bug would.
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
    """Give programs a dlx with other functions."""

    class Shim:
        def __getattr__(self, name: str) -> Any:
            return getattr(dlx, name)

    shim: Any = Shim()
    shim.convert, shim.from_dlpack = convert, from_dlpack
    kit.KIT["dlx"] = shim


def believe_in_autograd() -> None:
    """Ask torch about conj and neg only where a tensor has an autograd state."""
    import torch

    def raw(x: Any) -> Any:
        """Give the elements as they lie in memory, if nobody asks about them."""
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
            # The flags of an array: its struct has them behind six pointers.
            flags = ctypes.c_int.from_address(id(made) + 16 + 6 * 8)
            flags.value |= 0x0400
        return made

    _plant(convert)


def swap_strides() -> None:
    """Hand on the strides of matrices in the wrong order."""

    def convert(x: Any, *args: Any, **keywords: Any) -> Any:
        made = _convert(x, *args, **keywords)
        if type(made) is np.ndarray and made.shape == made.shape[::-1] != ():
            return made.T
        return made

    _plant(convert)
