//! NumPy's classes: which objects are arrays, which of these dlx reads from their struct, and which it refuses, as arrays
//! with masked elements.

#![forbid(unsafe_code)]

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::api::{self, NUMPY};
use crate::cpython::call::attribute;
use crate::cpython::lookup::{is_in_type, is_method_of_class, known_base, static_base};
use crate::cpython::once::{Once, intern};
use crate::types::error::Error;

/// `numpy.ndarray`, whose C code made it, once an array was seen.
static ARRAY: Once<Py<PyType>> = Once::new();

/// Whether dlx reads objects of the type of `x` from their struct; does not import NumPy.
///
/// That includes subclasses, unless they override the protocol.
///
/// # Errors
///
/// `BufferError` for arrays of which elements are masked: their memory does not show that.
#[inline(always)]
pub(crate) fn is_native(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let class = x.get_type();
    match array_class(&class)? {
        Some(ndarray) => is_read_here(x, &class, ndarray),
        None => Ok(false),
    }
}

fn is_read_here(
    x: &Bound<'_, PyAny>,
    class: &Bound<'_, PyType>,
    ndarray: &Bound<'_, PyType>,
) -> PyResult<bool> {
    let py = x.py();
    if class.is(ndarray) {
        return Ok(has_layout(py, ndarray));
    }
    for method in [intern!(py, "__dlpack__"), intern!(py, "__dlpack_device__")] {
        if !class.getattr(method)?.is(&ndarray.getattr(method)?) {
            return Ok(false);
        }
    }
    match is_method_of_class(x, intern!(py, "__dlpack__"))? {
        Some(true) => {}
        Some(false) => return Ok(false),
        None => return Err(Error::refused(HIDES).into()),
    }
    if is_masked(x, MASKS)? {
        let message = "the NumPy array has masked elements, which DLPack cannot represent; pass x.filled(value)";
        return Err(Error::refused(message).into());
    }
    Ok(has_layout(py, ndarray))
}

/// The most masks that a mask may have in turn.
const MASKS: usize = 8;

/// Whether an array says that some of its elements are not valid, as those of `numpy.ma` and astropy do. Its mask may be
/// such an array, which leaves out of account what is masked in it.
fn is_masked(x: &Bound<'_, PyAny>, masks: usize) -> PyResult<bool> {
    let py = x.py();
    let name = intern!(py, "mask");
    let Some(mask) = attribute(x, name)? else {
        // A class that has one and does not show it may hide elements.
        return Ok(is_in_type(x.get_type_ptr(), name) == Some(true));
    };
    if mask.is_none() {
        // Instances of astropy's classes lose theirs in a view as another class.
        return Ok(is_in_type(x.get_type_ptr(), intern!(py, "unmasked")) == Some(true));
    }
    if masks == 0 || is_masked(&mask, masks - 1)? {
        return Ok(true);
    }
    let any = match attribute(&mask, intern!(py, "any"))? {
        Some(any) => any.call0().and_then(|any| any.is_truthy()),
        // A method of this name is no mask.
        None if mask.is_callable() => return Ok(false),
        None => mask.is_truthy(),
    };
    match any {
        // What cannot say it may be.
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(true),
        any => any,
    }
}

const HIDES: &str =
    "the array, of a subclass of numpy.ndarray, hides its __dlpack__; pass x.view(numpy.ndarray)";

/// Whether `x` is of the array class itself, whose layout is known.
pub(crate) fn is_ndarray(x: &Bound<'_, PyAny>) -> bool {
    NUMPY
        .get(x.py())
        .is_some_and(|numpy| x.get_type_ptr() == numpy.ndarray.as_ptr().cast())
}

/// Whether `to` is the array class itself, whose layout is known.
pub(crate) fn is_class(to: &Bound<'_, PyAny>) -> bool {
    NUMPY.get(to.py()).is_some_and(|numpy| numpy.ndarray.is(to))
}

/// Whether `class` is the array class or a subclass, and the layout is known.
pub(crate) fn is_subclass_of_ndarray(class: &Bound<'_, PyType>) -> PyResult<bool> {
    let ndarray = array_class(class)?;
    Ok(ndarray.is_some_and(|ndarray| has_layout(class.py(), ndarray)))
}

/// Whether `x` is a NumPy scalar of time, of text, or with fields.
pub(crate) fn is_no_number(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let class = x.get_type();
    if is_in_type(class.as_type_ptr(), intern!(x.py(), "__array_interface__")) == Some(false) {
        return Ok(false);
    }
    let is = |name| Ok::<_, PyErr>(static_base(&class, "numpy", name)?.is_some());
    Ok(is("datetime64")? || is("timedelta64")? || is("str_")? || is("void")?)
}

/// `numpy.ndarray`, if `class` is it or a subclass.
#[inline(always)]
fn array_class<'py>(class: &Bound<'py, PyType>) -> PyResult<Option<&'py Bound<'py, PyType>>> {
    let attribute = intern!(class.py(), "__array_finalize__");
    known_base(&ARRAY, class, attribute, ("numpy", "ndarray"))
}

/// Whether arrays have the layout of [`super::PyArrayObject`].
#[inline(always)]
fn has_layout(py: Python<'_>, ndarray: &Bound<'_, PyType>) -> bool {
    NUMPY.get(py).is_some() || api::is_known(ndarray)
}
