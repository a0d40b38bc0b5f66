"""What a DLPack struct, a `dlx.Tensor` or a NumPy array says, in the same words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import dlx
from support import dlpack_abi
from support.dlpack_abi import DLManagedTensor, managed_in

READ_ONLY = dlpack_abi.DLPACK_FLAG_BITMASK_READ_ONLY
IS_COPIED = dlpack_abi.DLPACK_FLAG_BITMASK_IS_COPIED
PADDED = dlpack_abi.DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED
UNSAID = "unsaid"
"""The flags of an unversioned struct, which has none."""
FLAGS = {READ_ONLY: "READ_ONLY", IS_COPIED: "IS_COPIED", PADDED: "PADDED"}

DType = tuple[int, int, int]


class Said(NamedTuple):
    """Where and what the elements are; None for what is not said."""

    address: int | None = None
    """Of the first element; 0 if there is none."""
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    """In elements; 0 where a dimension has at most one, as nobody steps there."""
    dtype: DType | None = None
    """Code, bits, lanes."""
    device: tuple[int, int] | None = None
    flags: int | str | None = None


def words(field: str, value: Any) -> str:
    """Return the value of a field in words."""
    if field == "flags" and isinstance(value, int):
        names = [name for bit, name in FLAGS.items() if value & bit]
        unknown = value & ~sum(FLAGS)
        return " ".join([*names, *([hex(unknown)] if unknown else [])]) or "none"
    if field == "dtype":
        return str(dlx.DType(value))
    return "another" if field == "address" else str(value)


def steps(shape: Sequence[int], strides: Sequence[int] | None) -> tuple[int, ...]:
    """Return strides as `Said` has them; None means row-major."""
    if 0 in shape:
        return (0,) * len(shape)
    if strides is None:
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return tuple(
        step if extent > 1 else 0 for extent, step in zip(shape, strides, strict=True)
    )


def of_struct(tensor: Any, flags: int | str | None) -> Said:
    """Read a `DLTensor`."""
    shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
    strides = tensor.strides[: tensor.ndim] if tensor.strides and tensor.ndim else None
    return Said(
        0 if 0 in shape else (tensor.data or 0) + tensor.byte_offset,
        shape,
        steps(shape, strides),
        (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes),
        (tensor.device.device_type, tensor.device.device_id),
        flags,
    )


def of_managed(managed: Any) -> Said:
    """Read a managed tensor of either kind."""
    unversioned = isinstance(managed, DLManagedTensor)
    return of_struct(managed.dl_tensor, UNSAID if unversioned else managed.flags)


def of_capsule(capsule: Any) -> Said:
    """Read an unused capsule."""
    return of_managed(managed_in(capsule))


def of_dlx(tensor: dlx.Tensor) -> Said:
    """Read a `dlx.Tensor` by its attributes."""
    flags = READ_ONLY * tensor.readonly + IS_COPIED * tensor.is_copied
    flags += PADDED * tensor.is_padded
    dtype, device = tensor.dtype, tensor.device
    return Said(
        tensor.data_ptr if tensor.size else 0,
        tensor.shape,
        steps(tensor.shape, tensor.strides),
        (dtype.code, dtype.bits, dtype.lanes),
        (int(device.type), device.id),
        UNSAID if "maybe readonly" in repr(tensor) else flags,
    )


def of_numpy(array: Any) -> Said:
    """Read a NumPy array; nothing is said of a dtype that DLPack does not have."""
    item = array.dtype.itemsize
    uneven = any(step % item for step in array.strides)
    return Said(
        array.ctypes.data if array.size else 0,
        array.shape,
        None if uneven else steps(array.shape, [n // item for n in array.strides]),
        dtype_of(array.dtype.name) if array.dtype.isnative else None,
        (1, 0),
        READ_ONLY * (not array.flags.writeable),
    )


def dtype_of(name: str) -> DType | None:
    """Return the dtype that libraries mean by a name; None for other names."""
    try:
        dtype = dlx.DType(name.replace("_x2", "x2"))
    except (TypeError, ValueError):
        return None
    return dtype.code, dtype.bits, dtype.lanes


def named_dtype(x: Any) -> DType | None:
    """Return the dtype that the object itself names, if DLPack has it."""
    try:
        dtype = x.dtype
        name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None)
        text = name if isinstance(name, str) else str(dtype)
    except Exception:
        return None  # torch's wrapper and tvm-ffi's complex numbers raise errors.
    # The dtypes of pandas name what stores them: int64[pyarrow].
    return dtype_of(text.partition("[")[0].rpartition(".")[2].rstrip("_").lower())
