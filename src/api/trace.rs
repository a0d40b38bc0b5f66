//! The switch of the trace, and the twins of the functions that Python calls.
//!
//! A twin calls the function that it replaces, and notes what that made (`tensor/trace.rs`). Nothing is paid when no
//! trace is on: functions and table pointers are exchanged, and no function asks whether it is traced.

use std::ptr::null_mut;
use std::slice;

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::api::entry::{self, Entry, Name};
use crate::cpython::boundary::guard;
use crate::exchange::slot::Slot;
use crate::exchange::tensor_table;
use crate::tensor::trace::{ended, exported_capsule, imported, is_on, set_hook};

/// Call ``hook`` at each import and export from now on, at none with None; append what has ended to ``ends``.
///
/// The hook gets the way, a number, the source, the number of the import whose memory is exported or 0, the address of
/// the `DLTensor` and its flags. An end is the number, nanoseconds since 1970 and the thread.
#[pyfunction]
pub(crate) fn trace_with(
    py: Python<'_>,
    hook: Option<Py<PyAny>>,
    ends: &Bound<'_, PyList>,
) -> PyResult<()> {
    let (was, on) = (is_on(), hook.is_some());
    set_hook(py, hook);
    if was != on {
        entry::trace(on);
        tensor_table::trace(on);
        Slot::trace_all(on);
    }
    ended(ends)
}

/// Calls the function that a twin replaces.
///
/// # Safety
///
/// As for the function, which CPython calls.
unsafe fn plain(
    name: Name,
    receiver: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    match Entry::of(name).functions() {
        // SAFETY: the caller's promise; both have the same calling convention (S20).
        Some(functions) => unsafe { (functions.plain)(receiver, arguments, count, keywords) },
        // Unreachable: an entry without a function has no twin.
        None => null_mut(),
    }
}

/// # Safety
///
/// Called by CPython in place of `from_dlpack`.
pub(crate) unsafe extern "C" fn from_dlpack(
    module: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the caller's promise.
    let made = unsafe { plain(Name::FromDlpack, module, arguments, count, keywords) };
    if count > 0 {
        // SAFETY: there is an argument.
        let source = unsafe { arguments.read() };
        // SAFETY: attached; a new reference or NULL, and an object that the caller holds.
        unsafe { imported(made, source, c"from_dlpack") };
    }
    made
}

/// # Safety
///
/// Called by CPython in place of `from_pointer`.
pub(crate) unsafe extern "C" fn from_pointer(
    module: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the caller's promise.
    let made = unsafe { plain(Name::FromPointer, module, arguments, count, keywords) };
    // SAFETY: attached; a new reference or NULL.
    unsafe { imported(made, null_mut(), c"from_pointer") };
    made
}

/// # Safety
///
/// Called by CPython in place of `empty`.
pub(crate) unsafe extern "C" fn empty(
    module: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the caller's promise.
    let made = unsafe { plain(Name::Empty, module, arguments, count, keywords) };
    // SAFETY: attached; a new reference or NULL.
    unsafe { imported(made, null_mut(), c"empty") };
    made
}

/// # Safety
///
/// Called by CPython in place of `Tensor.__dlpack__`.
pub(crate) unsafe extern "C" fn dlpack(
    tensor: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the caller's promise.
    let made = unsafe { plain(Name::Dlpack, tensor, arguments, count, keywords) };
    // SAFETY: attached; a new reference or NULL, and the receiver, which the caller holds.
    unsafe { exported_capsule(made, tensor) };
    made
}

/// # Safety
///
/// Called by CPython in place of `dlpack`, which is `__dlpack__` of mixin classes.
pub(crate) unsafe extern "C" fn mixin_dlpack(
    module: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the caller's promise.
    let made = unsafe { plain(Name::MixinDlpack, module, arguments, count, keywords) };
    if count > 0 {
        // SAFETY: there is an argument.
        let source = unsafe { arguments.read() };
        // SAFETY: attached; a new reference or NULL, and an object that the caller holds.
        unsafe { exported_capsule(made, source) };
    }
    made
}

/// `convert` while a trace is on, which is written in Python: it gets the arguments, and the names of the last of them.
///
/// # Safety
///
/// Called by CPython in place of `convert`.
pub(crate) unsafe extern "C" fn convert(
    _module: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let body = || {
        Python::attach(|py| {
            // SAFETY: NULL or the live names of the keywords.
            let names = unsafe { Bound::from_borrowed_ptr_or_opt(py, keywords) };
            let names = names.unwrap_or_else(|| PyTuple::empty(py).into_any());
            let made = names.len().and_then(|named| {
                // SAFETY: CPython passes so many live arguments.
                let all =
                    unsafe { slice::from_raw_parts(arguments.cast(), count as usize + named) };
                let all: &[Borrowed<'_, '_, PyAny>] = all;
                let module = py.import(intern!(py, "dlx_check.tracing.conversion"))?;
                module.call_method1(intern!(py, "convert"), (PyTuple::new(py, all)?, names))
            });
            match made {
                Ok(made) => made.into_ptr(),
                Err(error) => {
                    error.restore(py);
                    null_mut()
                }
            }
        })
    };
    guard(body, |_| null_mut())
}
