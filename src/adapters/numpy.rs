//! NumPy arrays, read from their struct (rung 3) without a call or an intermediate object.
//!
//! One build reads NumPy 1.26 and 2.x; the structs below are their common part. If NumPy is of another version of its
//! binary interface (S9, `docs/safety.md`), arrays go through `__dlpack__`.

mod api;
mod class;
mod element;
mod fast;
mod kept_strides;
mod make;

use std::ffi::{c_char, c_int};

use pyo3::ffi;
use pyo3::prelude::*;

use crate::abi::*;
use crate::cpython::interpreter::PythonOwner;
use crate::cpython::lookup::is_subtype;
use crate::tensor::checked::{self, Checked, Meta, extents};
use crate::tensor::managed::{self, ManagedVersioned, Offer, read_only};
use crate::tensor::snapshot::{Snapshot, Source};
use crate::types::error::Error;
use crate::types::{dtype, layout};

use api::NUMPY;
pub(crate) use class::{is_class, is_native, is_ndarray, is_no_number, is_subclass_of_ndarray};
pub(crate) use fast::{fast, fast_if_array, row_major};
pub(crate) use make::{of, of_tensor};

/// `PyArrayObject_fields` of `ndarraytypes.h`, up to the last field that dlx reads.
#[repr(C)]
struct PyArrayObject {
    _ob_base: ffi::PyObject,
    data: *mut c_char,
    nd: c_int,
    dimensions: *mut isize,
    strides: *mut isize,
    base: *mut ffi::PyObject,
    descr: *mut ffi::PyObject,
    flags: c_int,
}

/// The part of `PyArray_Descr` that NumPy 1.x and 2.x share.
#[repr(C)]
struct PyArray_Descr {
    _ob_base: ffi::PyObject,
    typeobj: *mut ffi::PyObject,
    kind: c_char,
    type_: c_char,
    byteorder: c_char,
    _former_flags: c_char,
    type_num: c_int,
}

const NPY_ARRAY_WRITEABLE: c_int = 0x0400;

/// Arrays with up to this many dimensions are read without an allocation.
const FEW: usize = 8;

/// The array as a snapshot that holds it.
///
/// `x.resize(..., refcheck=False)` and `x.__setstate__` free the memory under any consumer, including those of NumPy's
/// own `__dlpack__`.
pub(crate) fn snapshot(x: &Bound<'_, PyAny>) -> PyResult<Snapshot> {
    read(x, |meta, shape, strides| {
        let owner = Source::Python(PythonOwner::new(x.clone().unbind()));
        let dimension = |index: usize| (shape[index], strides[index]);
        Ok(Snapshot::new(meta, owner, None, shape.len(), dimension))
    })
}

/// The array as a managed tensor that holds it, for use in table functions.
pub(crate) fn export(x: &Bound<'_, PyAny>) -> PyResult<ManagedVersioned> {
    let export = |meta: Meta, shape: &[i64], strides: &[i64]| {
        let owner = PythonOwner::new(x.clone().unbind());
        managed::export(meta.tensor(shape.len()), shape, strides, meta.flags, owner)
    };
    match fast::few(x, export) {
        Some(managed) => Ok(managed?),
        None => read(x, export),
    }
}

/// An offer that holds the array, with its dtype, if `fits` accepts its tensor, flags, shape and strides.
#[inline(always)]
pub(crate) fn offer(
    x: &Bound<'_, PyAny>,
    fits: impl Fn(&DLTensor, u64, &[i64], &[i64]) -> bool,
) -> PyResult<Option<(DLDataType, Offer<PythonOwner>)>> {
    // Two closures, each called once, so that both are inlined.
    match fast::few(x, |meta, shape, strides| {
        offer_if(&fits, x, meta, shape, strides)
    }) {
        Some(offered) => offered.map_err(Error::into),
        None => read(x, |meta, shape, strides| {
            offer_if(&fits, x, meta, shape, strides)
        }),
    }
}

#[inline(always)]
fn offer_if(
    fits: impl Fn(&DLTensor, u64, &[i64], &[i64]) -> bool,
    x: &Bound<'_, PyAny>,
    meta: Meta,
    shape: &[i64],
    strides: &[i64],
) -> Result<Option<(DLDataType, Offer<PythonOwner>)>, Error> {
    let tensor = meta.tensor(shape.len());
    if !fits(&tensor, meta.flags, shape, strides) {
        return Ok(None);
    }
    let owner = PythonOwner::new(x.clone().unbind());
    let offer = Offer::new(tensor, shape, strides, meta.flags, owner)?;
    Ok(Some((meta.dtype, offer)))
}

/// A view that points to the array's own shape, and to strides kept for the process.
pub(crate) fn dl_tensor(x: &Bound<'_, PyAny>) -> PyResult<DLTensor> {
    read(x, |meta, shape, strides| {
        checked::whole(meta.flags)?;
        Ok(DLTensor {
            shape: shape.as_ptr().cast_mut(),
            strides: kept_strides::keep(strides)?.as_ptr().cast_mut(),
            ..meta.tensor(shape.len())
        })
    })
}

/// Calls `make` with the memory of the array, its shape, and its strides in elements.
///
/// `make` must not run Python code, which could reshape the array meanwhile.
fn read<R>(
    x: &Bound<'_, PyAny>,
    make: impl FnOnce(Meta, &[i64], &[i64]) -> Result<R, Error>,
) -> PyResult<R> {
    let absent = || Error::refused("the object is not a NumPy array");
    let fields = fields(x).ok_or_else(absent)?;
    // SAFETY: `x` is an array of the known layout (S9).
    let descr = unsafe { (*fields).descr };
    // SAFETY: the layout of dtypes is known with that of arrays (S9).
    let known = unsafe { descr.cast::<PyArray_Descr>().read() };
    // SAFETY: the array holds its dtype; `element::of` takes a reference before it runs Python code.
    let descriptor = unsafe { Borrowed::from_ptr(x.py(), descr) };
    let dtype = element::of(descriptor, known.type_num, known.byteorder as u8)?;
    // Finding the dtype may have run Python code, so read everything else after it.
    // SAFETY: as for the dtype.
    let array = unsafe { fields.read() };
    if array.descr != descr {
        return Err(
            Error::refused("the dtype of the NumPy array changed while it was read").into(),
        );
    }
    // SAFETY: the array has `nd` extents, unchanged until Python code runs (S9).
    let shape = unsafe { extents(array.dimensions.cast(), array.nd) }?;
    // SAFETY: as for the extents.
    let byte_strides = unsafe { extents(array.strides.cast(), array.nd) }?;
    let item = i64::from(dtype::bits(dtype).div_ceil(8));
    let strides = layout::element_strides(shape, byte_strides, item)?;
    // ml_dtypes stores one element of less than a byte per byte; for others the flag has no meaning, and is not kept.
    let flags = read_only(array.flags & NPY_ARRAY_WRITEABLE == 0)
        | DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED;
    let meta = Meta::on_cpu(array.data.cast(), dtype, flags);
    let meta = Checked::new(meta, shape, Some(&strides))?.meta;
    Ok(make(meta, shape, &strides)?)
}

/// The struct of `x`, if it is an array of the known class or a subclass.
fn fields(x: &Bound<'_, PyAny>) -> Option<*const PyArrayObject> {
    let ndarray = NUMPY.get(x.py())?.ndarray.bind(x.py());
    is_subtype(x.get_type_ptr(), ndarray).then(|| x.as_ptr().cast_const().cast())
}

/// Whether `x` is an array of what is a number in no library: strings, dates, objects, fields.
pub(crate) fn lacks_numbers(x: &Bound<'_, PyAny>) -> bool {
    fields(x).is_some_and(|fields| {
        // SAFETY: `x` is an array of the known layout (S9).
        let descr = unsafe { (*fields).descr }.cast::<PyArray_Descr>();
        // SAFETY: the array holds its dtype, whose layout is known with that of arrays.
        element::is_no_number(unsafe { (*descr).type_num })
    })
}
