"""A grid of measurements: values of any library, with named axes, a unit and a mask.

Other libraries read the values through dlx. The mask says where there is no
measurement: it stays with the grid as long as the shape does, and arithmetic joins the
masks of both operands. `Elevation` adds the datum from which heights are measured.
"""

from __future__ import annotations

import copy
import ctypes
import operator
import pickle
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import dlx
import jax
import numpy as np
import numpy.typing as npt
import torch
import tvm_ffi
from dlx_check.testing import check_mixin

if TYPE_CHECKING:
    from collections.abc import Callable

Mask: TypeAlias = npt.NDArray[np.bool_]


class MaskedGrid(dlx.ExchangeMixin, dlx.ArrayInterfaceMixin, exchange="values"):
    """`values` along `axes`, in `unit`; where `mask` is true, there is no value."""

    __slots__ = ("axes", "mask", "unit", "values")
    __array_ufunc__ = None  # NumPy's operators leave the work to ours

    def __init__(
        self,
        values: Any,
        axes: tuple[str, ...] | None = None,
        *,
        unit: str = "1",
        mask: Mask | None = None,
    ) -> None:
        """Name the axes; number them by default."""
        shape = dlx.from_dlpack(values).shape
        if axes is None:
            axes = tuple(f"axis{i}" for i in range(len(shape)))
        if len(axes) != len(shape):
            raise ValueError(f"{axes} are not {len(shape)} names")
        if mask is not None and mask.shape != shape:
            raise ValueError(f"a mask of {mask.shape} for values of {shape}")
        self.values, self.axes, self.unit, self.mask = values, axes, unit, mask

    def _derived(
        self, values: Any, axes: tuple[str, ...] | None, mask: Mask | None
    ) -> Self:
        """Return a copy with other values and all that subclasses add."""
        new = copy.copy(self)
        MaskedGrid.__init__(new, values, axes, unit=self.unit, mask=mask)
        return new

    def __dlx_like__(self, tensor: dlx.Tensor) -> Self:
        """Keep the axes if their number fits, and the mask if the shape does."""
        axes = self.axes if tensor.ndim == len(self.axes) else None
        mask = self.mask if tensor.shape == self.shape else None
        return self._derived(dlx.convert(tensor, self.values), axes, mask)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents in the order of the axes."""
        return dlx.from_dlpack(self).shape

    def __getitem__(self, index: int | slice | tuple[int | slice, ...]) -> Self:
        """Return a view of a part, in whichever library the values are."""
        index = index if isinstance(index, tuple) else (index,)
        index += (slice(None),) * (len(self.axes) - len(index))
        axes = (
            a for a, i in zip(self.axes, index, strict=True) if isinstance(i, slice)
        )
        mask = None if self.mask is None else np.asarray(self.mask[index])
        return self._derived(dlx.from_dlpack(self)[index], tuple(axes), mask)

    def _combine(self, function: Callable[[Any, Any], Any], other: Any) -> Self:
        """Apply an operator by NumPy, and join the masks."""
        mask = self.mask
        if isinstance(other, MaskedGrid):
            if (other.unit, other.axes) != (self.unit, self.axes):
                raise ValueError(f"{other!r} does not fit to {self!r}")
            if other.mask is not None:
                mask = other.mask if mask is None else mask | other.mask
        result: Self = dlx.bridge(np.ndarray)(function)(self, other)
        return self._derived(result.values, result.axes, mask)

    def __add__(self, other: Any) -> Self:
        """Return the sum, which has the masks of both."""
        return self._combine(operator.add, other)

    def __mul__(self, factor: float | np.number) -> Self:
        """Return the multiple by a number."""
        return self._combine(operator.mul, factor)

    __radd__ = __add__
    __rmul__ = __mul__

    def filled(self, value: float = np.nan) -> npt.NDArray[Any]:
        """Return a NumPy array of the values, with `value` where there is none."""
        values = dlx.convert(self, np)
        return values if self.mask is None else np.where(self.mask, value, values)

    def __repr__(self) -> str:
        """Show extents, unit, the number of missing values, and the library."""
        sizes = ", ".join(
            f"{a}: {n}" for a, n in zip(self.axes, self.shape, strict=True)
        )
        missing = 0 if self.mask is None else int(self.mask.sum())
        library = type(self.values).__module__.partition(".")[0]
        kind = type(self).__name__
        return f"{kind}({sizes}; {self.unit}; {missing} missing; {library})"


class Elevation(MaskedGrid):
    """Heights above a datum."""

    __slots__ = ("datum",)

    def __init__(
        self,
        values: Any,
        axes: tuple[str, ...] | None = None,
        *,
        unit: str = "m",
        mask: Mask | None = None,
        datum: str = "sea level",
    ) -> None:
        """Name the axes and the datum."""
        super().__init__(values, axes, unit=unit, mask=mask)
        self.datum = datum


@dlx.bridge(np.ndarray)
def steepness(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the length of the gradient, a function that knows only NumPy."""
    dy, dx = np.gradient(values)
    steep: npt.NDArray[np.float32] = np.hypot(dy, dx)
    return steep


@dlx.bridge(torch.Tensor)
def relu(values: Any) -> Any:
    """Return the values above zero, by torch."""
    return torch.relu(values)


@dlx.bridge("jax.numpy")
def cumulative(values: Any) -> Any:
    """Return the sums of all elements so far, by JAX."""
    return jax.numpy.cumsum(values)


_libc = ctypes.CDLL(None)
_libc.memmove.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


@dlx.launcher(out="out", dtype="float32")
def copy_floats(x: Any, out: Any, count: int) -> None:
    """Copy `count` floats by a compiled function."""
    _libc.memmove(out, x, 4 * count)


def make() -> Elevation:
    """Return a small grid with a hole."""
    values = np.arange(-6, 6, dtype=np.float32).reshape(3, 4)
    return Elevation(values, ("north", "east"), mask=values == 3, datum="harbour")


def main() -> None:
    """Pass a grid through four libraries and a compiled function."""
    grid = make()
    print(grid, grid[1:, 0], grid[0, 0])
    print(grid + grid, np.float32(2) * grid, grid.values + grid, sep="\n")
    print(
        np.asarray(grid).sum(),
        torch.from_dlpack(grid).sum(),
        dlx.convert(grid, "jax").sum(),
    )
    functions: list[Any] = [steepness, relu, cumulative]
    for function in functions:
        result = function(grid)
        print(result, result.datum)
    on_torch = dlx.convert(torch.ones(3, 4), grid)
    print(on_torch, on_torch.datum, steepness(on_torch))

    copied = dlx.empty(grid.shape, "float32", like=grid)
    copy_floats(grid, copied, 12)
    print(copied, copied.datum, np.array_equal(copied, grid))

    echo: Any = tvm_ffi.get_global_func("testing.echo")
    returned: Elevation = echo(grid)  # of our class, but C code knows no datum
    restored = dlx.convert(dlx.from_dlpack(returned), grid)
    print(returned.datum, restored.datum)

    again = pickle.loads(pickle.dumps(grid))
    print(again, np.array_equal(again.filled(), grid.filled(), equal_nan=True))
    check_mixin(Elevation, make)
    check_mixin(MaskedGrid, lambda: MaskedGrid(np.ones((2, 3))))


if __name__ == "__main__":
    main()
