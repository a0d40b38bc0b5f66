"""Arrays with labels, units, chunks and gaps: xarray, astropy, dask and SciPy."""

from __future__ import annotations

from interop.cases import elements
from interop.making import frozen, late

from .objects import Objects, made


def xarrays() -> Objects:
    """Yield arrays with names, over those of several libraries."""
    xr = late("xarray")
    array = xr.DataArray
    rows = {"a": [1, 2, 3, 4]}
    yield from made(
        array=lambda: array(elements()),
        variable=lambda: xr.Variable(("x", "y"), elements()),
        index=lambda: array(elements(), coords=rows, dims=("a", "b")).a,
        transposed=lambda: array(elements()).T,
        read_only=lambda: array(frozen(elements())),
        dataset=lambda: xr.Dataset({"a": ("x", elements()[0])}),
        jax=lambda: array(late("jax.numpy").ones((4, 6))),
    )


def astropys() -> Objects:
    """Yield arrays with units, columns, and masked ones."""
    units, tables = late("astropy.units"), late("astropy.table")
    masked = late("astropy.utils.masked").Masked
    data = late("astropy.nddata").NDData
    time = late("astropy.time").Time
    yield from made(
        quantity=lambda: elements() * units.m,
        magnitude=lambda: units.Magnitude(elements() + 1),
        column=lambda: tables.Column(elements()),
        masked_column=lambda: tables.MaskedColumn(elements(), mask=elements() > 0),
        masked=lambda: masked(elements(), mask=elements() > 0),
        masked_nowhere=lambda: masked(elements(), mask=elements() < 0),
        masked_quantity=lambda: masked(elements() * units.m, mask=elements() > 0),
        data=lambda: data(elements(), mask=elements() > 0),
        time=lambda: time([2000.0, 2001.0], format="jyear"),
    )


def dasks() -> Objects:
    """Yield an array in one chunk, and one in several."""
    array, labelled = late("dask.array").from_array, late("xarray").DataArray
    yield from made(
        whole=lambda: array(elements()),
        chunks=lambda: array(elements(), chunks=2),
        labelled=lambda: labelled(array(elements(), chunks=2)),
    )


def scipys() -> Objects:
    """Yield sparse arrays, which have no strides."""
    sparse = late("scipy.sparse")
    yield from made(
        csr=lambda: sparse.csr_array(elements()),
        coo=lambda: sparse.coo_array(elements()),
    )
