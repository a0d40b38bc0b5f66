//! The fast entry of `Tensor.__dlpack__`, with the usual keywords or none.

use std::ptr::NonNull;
use std::slice;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::abi::{DLManagedTensorVersioned, DLPACK_MAJOR_VERSION};
use crate::api::entry::{Name, parse, set_on_class};
use crate::cpython::boundary::guard;
use crate::cpython::once::intern;
use crate::tensor::capsule;
use crate::tensor::managed::MAYBE_READ_ONLY;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;
use crate::tensor::trace;
use crate::types::dtype;
use crate::types::error::unseen;

/// Installs the entry `__dlpack__` on the class `Tensor`.
pub(crate) fn set(py: Python<'_>) -> PyResult<()> {
    // Only a bound method reveals its C function.
    let sample = Tensor::new(py, Snapshot::allocate(&[0], dtype::BYTE, 0)?)?;
    set_on_class(&sample, ("__dlpack__", Name::Dlpack), exported)
}

/// The entry of `tensor.__dlpack__(**keywords)`, for a capsule without a copy.
///
/// # Safety
///
/// Called by CPython with the thread attached, a `Tensor` as receiver, which the method descriptor checks, `count`
/// positional arguments, then one value for each name in `keywords`, which is a tuple or NULL.
unsafe extern "C" fn exported(
    tensor: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // What a trace has to note, PyO3's function does.
    if count == 0 && !trace::is_on() {
        // SAFETY: the caller's promise, without positional arguments.
        let body = || unsafe { of_tensor(tensor, arguments, keywords) };
        if let Some(made) = guard(body, |_| None) {
            return made.as_ptr();
        }
    }
    // SAFETY: the caller's promise, passed on unchanged.
    unsafe { parse(Name::Dlpack, tensor, arguments, count, keywords) }
}

/// The capsule of a tensor without streams, for the usual keywords; `None` for any other call.
///
/// # Safety
///
/// As for [`exported`], without positional arguments.
unsafe fn of_tensor(
    tensor: *mut ffi::PyObject,
    values: *const *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> Option<NonNull<ffi::PyObject>> {
    // SAFETY: the caller's promise.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: the caller's promise.
    let tensor = unsafe { Borrowed::from_ptr(py, tensor) };
    let tensor = Tensor::of(&tensor)?.get();
    let mut versioned = false;
    // SAFETY: the caller's promise.
    if let Some(keywords) = unsafe { Borrowed::from_ptr_or_opt(py, keywords) } {
        let keywords = keywords.cast::<PyTuple>().ok()?;
        // SAFETY: the caller passes one value for each keyword.
        let values = unsafe { slice::from_raw_parts(values, keywords.len()) };
        for (index, &value) in values.iter().enumerate() {
            // SAFETY: a live object, which the caller holds during the call.
            let value = unsafe { Borrowed::from_ptr(py, value) };
            let name = keywords.get_borrowed_item(index).ok()?;
            if name.is(intern!(py, "max_version")) {
                versioned = major(&value)? >= i64::from(DLPACK_MAJOR_VERSION);
            } else if !value.is_none() || !is_known(py, &name) {
                return None;
            }
        }
    }
    let snapshot = tensor.fast_snapshot()?;
    if !versioned || snapshot.has(MAYBE_READ_ONLY) {
        return owned(capsule::of(py, snapshot, None, false));
    }
    let managed = snapshot.export::<DLManagedTensorVersioned>(false).ok()?;
    owned(capsule::export(py, managed))
}

/// Whether `name` is a keyword of `__dlpack__` other than `max_version`.
fn is_known(py: Python<'_>, name: &Bound<'_, PyAny>) -> bool {
    name.is(intern!(py, "copy"))
        || name.is(intern!(py, "dl_device"))
        || name.is(intern!(py, "stream"))
}

/// The major version in a pair.
fn major(version: &Bound<'_, PyAny>) -> Option<i64> {
    let version = version.cast_exact::<PyTuple>().ok()?;
    let major = version.get_borrowed_item(0).ok()?;
    (version.len() == 2).then(|| major.extract().ok())?
}

/// The owned reference; an error is dropped, and the slow path raises it again.
fn owned<T>(made: PyResult<Bound<'_, T>>) -> Option<NonNull<ffi::PyObject>> {
    let made = made.map_err(unseen).ok()?;
    NonNull::new(made.into_ptr())
}
