//! The switch of the trace, and the twins of the functions that Python calls.
//!
//! A twin calls the function that it replaces, and notes what that made (`tensor/trace.rs`). Nothing is paid when no
//! trace is on: functions and table pointers are exchanged, and no function asks whether it is traced.

use std::ptr::null_mut;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::api::entry::{self, Entry, Name};
use crate::exchange::slot::Slot;
use crate::exchange::tensor_table;
use crate::tensor::trace::{ended, exported_capsule, imported, set_hook};

/// Call ``hook`` at each import and export from now on; with None, at none.
///
/// It gets the way, a number, the source, the target of a conversion, the number of the import whose memory is
/// exported, and a tuple of the address of the first element, shape, dtype, device, and bytes.
#[pyfunction]
pub(crate) fn trace_with(hook: Option<Py<PyAny>>) {
    let on = hook.is_some();
    set_hook(hook);
    entry::trace(on);
    tensor_table::trace(on);
    Slot::trace_all(on);
}

/// Add what has ended since the last call: by number, its time in nanoseconds since 1970 and the thread.
#[pyfunction]
pub(crate) fn traced_ends(into: &Bound<'_, PyDict>) -> PyResult<()> {
    ended(into)
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
    match Entry::of(name).plain() {
        // SAFETY: the caller's promise; both have the same calling convention (S20).
        Some(plain) => unsafe { plain(receiver, arguments, count, keywords) },
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
        unsafe { imported(made, source, null_mut(), "from_dlpack") };
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
    unsafe { imported(made, null_mut(), null_mut(), "from_pointer") };
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
    unsafe { imported(made, null_mut(), null_mut(), "empty") };
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
    unsafe { exported_capsule(made, tensor, "__dlpack__") };
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
        unsafe { exported_capsule(made, source, "__dlpack__") };
    }
    made
}
