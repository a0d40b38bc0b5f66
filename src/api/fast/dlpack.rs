//! The fast entry of `Tensor.__dlpack__`, with the usual keywords or none.

use std::ptr::NonNull;
use std::slice;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::{owned, parse};
use crate::abi::{DLManagedTensorVersioned, DLPACK_MAJOR_VERSION};
use crate::api::entry::{Name, definition};
use crate::cpython::boundary::guard;
use crate::cpython::once::intern;
use crate::tensor::capsule;
use crate::tensor::managed::MAYBE_READ_ONLY;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;
use crate::tensor::trace;
use crate::types::dtype;

/// Installs the entry `__dlpack__` on the class `Tensor`.
pub(crate) fn set(py: Python<'_>) -> PyResult<()> {
    // Only a bound method reveals its C function.
    let sample = Tensor::new(py, Snapshot::allocate(&[0], dtype::BYTE, 0)?)?;
    let (class, name) = (sample.get_type(), intern!(py, "__dlpack__"));
    let entry = ("__dlpack__", Name::Dlpack);
    let (documented, bound) = (class.getattr(name)?, sample.getattr(name)?);
    let definition = definition(&documented, entry, &bound, exported)?;
    // SAFETY: attached; the class is live, and the leaked definition has the flags of `exported`.
    let method = unsafe { ffi::PyDescr_NewMethod(class.as_type_ptr(), definition) };
    // SAFETY: a new reference, or NULL with an exception.
    let method = unsafe { Bound::from_owned_ptr_or_err(py, method) }?;
    class.setattr(name, method)
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
    let fast = if count == 0 {
        // SAFETY: the caller's promise, without positional arguments.
        let body = || unsafe { of_tensor(tensor, arguments, keywords) };
        guard(body, |_| None)
    } else {
        None
    };
    let made = match fast {
        Some(made) => made.as_ptr(),
        // SAFETY: the caller's promise, passed on unchanged.
        None => unsafe { parse(Name::Dlpack, tensor, arguments, count, keywords) },
    };
    if trace::is_on() {
        // SAFETY: a new reference or NULL, and the receiver, which the caller holds.
        unsafe { trace::exported_capsule(made, tensor) };
    }
    made
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
