//! Fast entries of functions that are usually called with two arguments.

use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCFunction;

use super::{parse, registered};
use crate::api::entry::{Function, Name, definition};
use crate::cpython::boundary::{counted, raised};

/// A function whose calls with two arguments and no keywords have a fast entry.
pub(crate) trait OfTwo {
    const NAME: (&str, Name);
    /// Where PyO3's function is kept, for all other calls.
    const PARSED: &OnceLock<Function>;

    fn call<'py>(x: &Bound<'py, PyAny>, y: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>>;
}

/// The entry of `F`, to be registered in place of `parsed`, and of `traced` while a trace is on.
pub(crate) fn entry<'py, F: OfTwo>(
    parsed: &Bound<'py, PyCFunction>,
    module: &Bound<'py, PyModule>,
    traced: Function,
) -> PyResult<Bound<'py, PyAny>> {
    let definition = definition(parsed, F::NAME, called_with_two::<F>, traced)?;
    registered(parsed, module, definition, F::PARSED)
}

/// The entry of a function of two arguments.
///
/// # Safety
///
/// As for [`super::called`].
unsafe extern "C" fn called_with_two<F: OfTwo>(
    module: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    if count == 2 && keywords.is_null() {
        // SAFETY: attached, with exactly two arguments, which the caller holds.
        return unsafe { made_of_two::<F>(arguments) };
    }
    // SAFETY: the caller's promise, passed on unchanged.
    unsafe { parse(F::PARSED, module, arguments, count, keywords) }
}

/// What `F` makes of its two arguments, or NULL with an exception.
///
/// # Safety
///
/// Attached, with two live arguments.
#[inline(always)]
unsafe fn made_of_two<F: OfTwo>(arguments: *const *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the caller's promise.
    let py = unsafe { Python::assume_attached() };
    let made = counted(py, || {
        // SAFETY: the caller's promise.
        let [x, y] = unsafe { arguments.cast::<[*mut ffi::PyObject; 2]>().read() };
        // SAFETY: the caller's promise.
        let x = unsafe { Borrowed::from_ptr(py, x) };
        // SAFETY: the caller's promise.
        let y = unsafe { Borrowed::from_ptr(py, y) };
        F::call(&x, &y)
    });
    made.map_or_else(raised, Bound::into_ptr)
}
