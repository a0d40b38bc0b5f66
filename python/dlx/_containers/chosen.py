"""Basic indexing: the elements that ints, slices, ``None`` and ``...`` choose."""

from __future__ import annotations

from operator import index

from .._core import DType, type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .._core import Tensor

__all__ = ["chosen"]


def chosen(tensor: Tensor, by: Any) -> tuple[int, list[int], list[int]]:
    """Return the offset of the first element, and the extents and strides of all."""
    items = by if isinstance(by, tuple) else (by,)
    left = tensor.ndim - sum(map(_is_dimension, items))
    if left < 0:
        raise IndexError(
            f"{tensor.ndim - left} indices for a tensor of {tensor.ndim} dimensions"
        )
    dots = [place for place, item in enumerate(items) if item is ...]
    if len(dots) > 1:
        raise IndexError("an index has at most one '...'")
    place = dots[0] if dots else len(items)
    offset, shape, strides = 0, [], []
    dimensions = iter(zip(tensor.shape, tensor.strides, strict=True))
    for item in (*items[:place], *[slice(None)] * left, *items[place + 1 :]):
        if item is None:
            shape.append(1)
            strides.append(0)
            continue
        extent, stride = next(dimensions)
        if isinstance(item, slice):
            steps = range(*item.indices(extent))
            first = steps.start if steps else 0
            shape.append(len(steps))
            # A step is only taken from one element to the next, inside of the memory.
            strides.append(stride * steps.step if len(steps) > 1 else stride)
        else:
            at = index(item)
            first = at + extent if at < 0 else at
            if not 0 <= first < extent:
                raise IndexError(
                    f"index {at} is out of bounds for a dimension of {extent}"
                )
        offset += first * stride
    return _in_64_bits(offset), shape, [_in_64_bits(stride) for stride in strides]


def _in_64_bits(number: int) -> int:
    """Return what 64 bits hold: a tensor without elements may have any strides."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _is_dimension(item: Any) -> bool:
    """Whether an item stands for one dimension of the tensor."""
    if item is None or item is ...:
        return False
    if isinstance(item, slice) or (hasattr(item, "__index__") and not _is_mask(item)):
        return True
    raise TypeError(
        "a dlx.Tensor takes ints, slices, None and ... as an index, not "
        f"{type_name(type(item))}; convert it to a library that indexes by arrays, "
        "such as np.asarray(t)"
    )


def _is_mask(item: Any) -> bool:
    """Whether an item is a bool of any library, or an array: other kinds of index."""
    if isinstance(item, int):
        return isinstance(item, bool)
    ndim = getattr(item, "ndim", None)
    if isinstance(ndim, int) and ndim > 0:
        return True
    try:
        return DType(item.dtype).name == "bool"
    except Exception:
        return False
