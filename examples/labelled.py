"""A labelled array: an array of any library with named dimensions and a unit.

It exports the attribute `data`, so C code reads it through the table of the wrapped
array, and `np.asarray` reads it through the array interface. Functions of one library
take it through `dlx.bridge`, which gives back the same class with the same unit.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Self

import dlx


class Labelled(dlx.ExchangeMixin, dlx.ArrayInterfaceMixin, exchange="data"):
    """``data`` with the names ``dims``, in ``unit``."""

    __slots__ = ("data", "dims", "unit")

    def __init__(
        self, data: Any, dims: tuple[str, ...] | None = None, unit: str = "1"
    ) -> None:
        """Name the dimensions; number them by default."""
        ndim = dlx.from_dlpack(data).ndim
        if dims is None:
            dims = tuple(f"dim_{i}" for i in range(ndim))
        if len(set(dims)) != len(dims) or len(dims) != ndim:
            raise ValueError(f"{dims} are not {ndim} different names")
        self.data, self.dims, self.unit = data, dims, unit

    def __dlx_like__(self, tensor: dlx.Tensor) -> Self:
        """Keep the unit; keep the names, too, if there are as many dimensions."""
        dims = self.dims if tensor.ndim == len(self.dims) else None
        return type(self)(tensor, dims, self.unit)

    @property
    def sizes(self) -> dict[str, int]:
        """Extents by name."""
        return dict(zip(self.dims, dlx.from_dlpack(self).shape, strict=True))

    def rename(self, *dims: str) -> Self:
        """Return the same array with other names."""
        return type(self)(self.data, dims, self.unit)

    def isel(self, **indexers: int | slice) -> Self:
        """Return the part at these positions, a view in any library."""
        if unknown := set(indexers) - set(self.dims):
            raise ValueError(f"{sorted(unknown)} are not among {self.dims}")
        index = tuple(indexers.get(dim, slice(None)) for dim in self.dims)
        kept = (dim for dim in self.dims if not isinstance(indexers.get(dim), int))
        return type(self)(dlx.from_dlpack(self)[index], tuple(kept), self.unit)

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
        return type(self)(view, dims, self.unit)

    def __repr__(self) -> str:
        """Show names, extents, unit and the array's library."""
        sizes = ", ".join(f"{dim}: {size}" for dim, size in self.sizes.items())
        library = type(self.data).__module__.partition(".")[0]
        return f"Labelled({sizes}; {self.unit}; {library})"


def main() -> None:
    """Pass labelled arrays through functions of two libraries, and make new ones."""
    if not find_spec("numpy"):
        return
    import numpy as np

    a = Labelled(np.ones((4, 3), "float32"), ("time", "site"), unit="mm")
    print(a, a.isel(time=slice(2), site=0), a.transpose("site", "time"))

    @dlx.bridge(np.ndarray)
    def steps(values: Any, *, out: Any = None) -> Any:
        return np.subtract(values[1:], values[:-1], out=out)

    print(steps(a), np.asarray(steps(a)).sum())
    written = dlx.empty((3, 3), "float32", like=a)  # Labelled, in mm
    assert steps(a, out=written) is written
    print(written)
    if find_spec("torch"):
        import torch

        x = dlx.convert(torch.ones(2, 3), a)  # with the names and the unit of a
        print(x, steps(x), torch.from_dlpack(x).shape)
        if find_spec("tvm_ffi"):
            from compiled import load_doubled

            print(load_doubled()(x).rename(*x.dims))  # C code does not know the unit


if __name__ == "__main__":
    main()
