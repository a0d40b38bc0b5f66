"""What pyarrow would export wrongly."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["check"]


def check(x: Any) -> None:
    """Refuse tensors of `arrow.fixed_shape_tensor` that pyarrow exports wrongly.

    An array exports a null inside a row as the number in its place. A single tensor
    whose type has a permutation exports the strides of another shape; the array of it
    exports the right ones.
    """
    kind: Any = getattr(x, "type", None)
    if getattr(kind, "extension_name", None) != "arrow.fixed_shape_tensor":
        return
    if (storage := getattr(x, "storage", None)) is not None:
        if nulls := storage.null_count:
            raise BufferError(
                f"the FixedShapeTensorArray has rows that are null ({nulls}), which "
                "DLPack cannot represent; pass x.drop_null()"
            )
        if nulls := storage.flatten().null_count:
            raise BufferError(
                f"the FixedShapeTensorArray has nulls inside its rows ({nulls}), which "
                "DLPack cannot represent; pass x.storage.flatten().fill_null(value), "
                "its elements in one row, and reshape the result"
            )
    elif (order := kind.permutation) is not None and list(order) != sorted(order):
        raise BufferError(
            "the FixedShapeTensorScalar has a permutation, for which pyarrow exports "
            "wrong strides; pass the array that it is of, dlx.from_dlpack(array)[i]"
        )
