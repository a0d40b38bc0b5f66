"""A labelled array: an array of any library with named dimensions.

It exports the attribute `data`, so C code reads it through the table of the wrapped
array, and `np.asarray` reads it through the array interface.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Self

import dlx


class Labelled(dlx.ExchangeMixin, dlx.ArrayInterfaceMixin, exchange="data"):
    """``data`` with the names ``dims``."""

    def __init__(self, data: Any, dims: tuple[str, ...] | None = None) -> None:
        """Name the dimensions; number them by default."""
        ndim = dlx.from_dlpack(data).ndim
        if dims is None:
            dims = tuple(f"dim_{i}" for i in range(ndim))
        if len(set(dims)) != len(dims) or len(dims) != ndim:
            raise ValueError(f"{dims} are not {ndim} different names")
        self.data, self.dims = data, dims

    @property
    def sizes(self) -> dict[str, int]:
        """Extents by name."""
        return dict(zip(self.dims, dlx.from_dlpack(self).shape, strict=True))

    def rename(self, *dims: str) -> Self:
        """Return the same array with other names."""
        return type(self)(self.data, dims)

    def transpose(self, *dims: str) -> Self:
        """Return a view with the dimensions in this order, in any library."""
        if sorted(dims) != sorted(self.dims):
            raise ValueError(f"{dims} are not an order of {self.dims}")
        axes = [self.dims.index(dim) for dim in dims]
        tensor = dlx.from_dlpack(self)
        view = dlx.from_pointer(
            tensor.data_ptr,
            [tensor.shape[axis] for axis in axes],
            tensor.dtype,
            device=tensor.device,
            strides=[tensor.strides[axis] for axis in axes],
            owner=tensor,
            readonly=tensor.readonly,
            stream=tensor.stream,
        )
        return type(self)(view, dims)

    def __repr__(self) -> str:
        """Show names, extents and the array's library."""
        sizes = ", ".join(f"{dim}: {size}" for dim, size in self.sizes.items())
        library = type(self.data).__module__.partition(".")[0]
        return f"Labelled({sizes}; {library})"


def main() -> None:
    """Wrap arrays of two libraries, and pass them on."""
    if find_spec("numpy"):
        import numpy as np

        a = Labelled(np.ones((2, 3), "float32"), ("time", "space"))
        print(a, a.transpose("space", "time"))
        print(np.asarray(a).sum(), np.from_dlpack(a).sum())
    if find_spec("torch"):
        import torch

        x = Labelled(torch.ones(2, 3), ("batch", "feature"))
        print(x, torch.from_dlpack(x.transpose("feature", "batch")).shape)
        if find_spec("tvm_ffi"):
            from compiled import load_doubled

            print(load_doubled()(x).rename(*x.dims))  # Labelled


if __name__ == "__main__":
    main()
