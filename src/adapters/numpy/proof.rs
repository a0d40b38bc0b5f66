//! Verifies that NumPy lays arrays out as dlx assumes (S9, NumPy's layout, in `docs/safety.md`).

use std::ffi::c_int;
use std::slice;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyString, PyType};

use super::{NPY_ARRAY_WRITEABLE, PyArray_Descr, PyArrayObject};
use crate::cpython::modules::loaded;

/// Whether three unusual arrays of `ndarray` match [`PyArrayObject`].
pub(super) fn is_as_expected(ndarray: &Bound<'_, PyType>) -> PyResult<bool> {
    let py = ndarray.py();
    let Some(numpy) = loaded(intern!(py, "numpy"))? else {
        return Ok(false);
    };
    let version = numpy.getattr("__version__")?;
    let version = version.cast::<PyString>()?.to_cow()?;
    if !matches!(version.split_once('.'), Some(("1" | "2", _))) {
        return Ok(false);
    }
    let writable = PyByteArray::new(py, &[0; 64]).into_any();
    let constant = PyBytes::new(py, &[0; 64]).into_any();
    for (dtype, buffer) in [("int16", &writable), ("<f8", &constant), (">f8", &writable)] {
        let arguments = PyDict::new(py);
        arguments.set_item("dtype", dtype)?;
        arguments.set_item("buffer", buffer)?;
        arguments.set_item("offset", 40)?;
        arguments.set_item("strides", (-12, 6, 4))?;
        let array = ndarray.call(((3, 1, 2),), Some(&arguments))?;
        if !array.get_type().is(ndarray) || !agrees(&array)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the fields of `x`, a three-dimensional array, agree with its attributes.
fn agrees(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let descr = x.getattr("dtype")?;
    let size = |x: &Bound<'_, PyAny>| x.get_type().getattr("__basicsize__")?.extract::<usize>();
    if size(x)? < size_of::<PyArrayObject>() || size(&descr)? < size_of::<PyArray_Descr>() {
        return Ok(false);
    }
    // SAFETY: its type says that the object is at least this large.
    let array = unsafe { x.as_ptr().cast::<PyArrayObject>().read() };
    // SAFETY: as for the array.
    let dtype = unsafe { descr.as_ptr().cast::<PyArray_Descr>().read() };
    let interface = x.getattr("__array_interface__")?;
    let (address, readonly): (usize, bool) = interface.get_item("data")?.extract()?;
    let letters: [char; 3] = [
        descr.getattr("kind")?.extract()?,
        descr.getattr("char")?.extract()?,
        descr.getattr("byteorder")?.extract()?,
    ];
    let found = [dtype.kind, dtype.type_, dtype.byteorder].map(|letter| char::from(letter as u8));
    let agree = array.data.addr() == address
        && array.nd == 3
        && array.base == x.getattr("base")?.as_ptr()
        && array.descr == descr.as_ptr()
        && array.flags == x.getattr("flags")?.getattr("num")?.extract::<c_int>()?
        && (array.flags & NPY_ARRAY_WRITEABLE == 0) == readonly
        && dtype.typeobj == descr.getattr("type")?.as_ptr()
        && found == letters
        && dtype.type_num == descr.getattr("num")?.extract::<c_int>()?;
    if !agree || array.dimensions.is_null() || array.strides.is_null() {
        return Ok(false);
    }
    // SAFETY: the fields around them are in place, so these are `dimensions` and `strides`, of three values each (S9).
    let shape = unsafe { slice::from_raw_parts(array.dimensions, 3) };
    // SAFETY: as for the shape.
    let strides = unsafe { slice::from_raw_parts(array.strides, 3) };
    Ok(shape == x.getattr("shape")?.extract::<[isize; 3]>()?
        && strides == x.getattr("strides")?.extract::<[isize; 3]>()?)
}
