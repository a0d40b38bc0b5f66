"""The parts of which reproductions consist: lines of NumPy, ctypes and the target."""

from __future__ import annotations

import math
from typing import Any

from dlx_check.conformance.probe import NEWEST, Tensor, known_to_numpy
from dlx_check.conformance.structs import DTYPES

__all__ = [
    "INSIDE",
    "REFUSED",
    "NoProgram",
    "array_of",
    "edits_of",
    "function_of",
    "kind_in",
    "spelled",
]

INSIDE = "ctypes.c_void_p.from_address(id({}) + object.__basicsize__).value"
"""The pointer of a capsule, which lies behind the head of the object."""
BACKWARDS = (-1,)
REFUSED = [
    "except Exception: pass",
    'else: raise AssertionError("it is not refused")',
]
"""What follows a call that should raise."""


class NoProgram(Exception):
    """There is no short program for this deviation."""


def kind_in(kinds: dict[str, str], text: str) -> str:
    """Return the first kind that a sentence names."""
    found = [kind for kind in kinds if kind in text]
    if not found:
        raise NoProgram
    return min(found, key=text.index)


def spelled(keywords: tuple[tuple[str, Any], ...]) -> str:
    """Return the keywords of a call."""
    return ", ".join(f"{name}={value!r}" for name, value in keywords)


def array_of(tensor: Tensor) -> str:
    """Return NumPy code for the elements of a probe."""
    named = tensor.dtype if isinstance(tensor.dtype, str) else "float32"
    dtype = named if known_to_numpy(named) else f"uint{max(8, DTYPES[named][1])}"
    code = f"np.arange(1, {math.prod(tensor.shape) + 1}).astype(np.{dtype})"
    code = code.replace("np.bool", "bool")
    if tensor.strides == BACKWARDS:
        code += "[::-1]"
    if len(tensor.shape) != 1:
        code += f".reshape({tensor.shape})"
    if tensor.off % 64 or tensor.packed_bits:
        raise NoProgram
    return code


def edits_of(tensor: Tensor, versioned: bool) -> list[str]:
    """Return assignments to the fields of NumPy's struct that a probe has otherwise."""
    if tensor.strides not in (None, BACKWARDS) or tensor.off or tensor.wild:
        raise NoProgram
    at = 32 if versioned else 0
    fields: list[tuple[int, str, Any, str]] = []
    plain = Tensor(tensor.shape)
    if versioned and tensor.version != NEWEST:
        fields.append((0, "uint32", tensor.version[0], "version.major"))
    if versioned and tensor.flags:
        fields.append((24, "uint64", tensor.flags, "flags"))
    if tensor.device != plain.device:
        fields.append((at + 8, "int32", tensor.device[0], "device_type"))
    if tensor.ndim is not None:
        fields.append((at + 16, "int32", tensor.ndim, "ndim"))
    if not isinstance(tensor.dtype, str) or not known_to_numpy(tensor.dtype):
        dtype = tensor.dtype
        code, bits, lanes = DTYPES[dtype] if isinstance(dtype, str) else dtype
        value = code | bits << 8 | lanes << 16
        fields.append((at + 20, "uint32", value, "dtype: lanes, bits, code"))
    null = {"data": at, "shape": at + 24, "strides": at + 32}
    null["deleter"] = 16 if versioned else 56
    if "context" in tensor.null:
        raise NoProgram  # NumPy's own deleter needs it
    for missing in tensor.null.split():
        fields.append((null[missing], "void_p", None, missing))
    found = [
        f"ctypes.c_{kind}.from_address(p + {offset}).value = {number}  # {field}"
        for offset, kind, number, field in fields
    ]
    if tensor.byte_offset:
        word, moved = "ctypes.c_uint64.from_address(p + {}).value", tensor.byte_offset
        found.append(f"{word.format(at + 40)} += {moved}  # byte_offset")
        found.append(f"{word.format(at)} -= {moved}  # data")
    if tensor.extents:
        array = f"ctypes.c_int64 * {len(tensor.extents)}"
        shape = f"ctypes.c_void_p.from_address(p + {at + 24}).value"
        found.append(
            f"({array}).from_address({shape})[:] = {[*tensor.extents]}  # shape"
        )
    return found


def function_of(target: dict[str, Any], name: str) -> str:
    """Return the expression of a function of the target, to be called."""
    text: str = target[name]
    return f"({text})" if text.startswith("lambda") else text
