//! The class of tensors whose owner may come to hold them (`x.t = dlx.from_dlpack(x)`), tracked by the garbage
//! collector.
//!
//! It derives from `dlx.Tensor`, because CPython assumes one memory layout per class: from 3.14 on it writes in front of
//! objects that `tp_is_gc` excludes. Like `tuple` it has no `tp_clear`: a tensor never changes what it holds, so another
//! object closed the cycle, and that one breaks it.

use std::ffi::{c_int, c_void};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::{Body, Tensor, end, subclass};
use crate::cpython::boundary::{guard, unraisable};
use crate::tensor::snapshot::Snapshot;

/// Whether `object`, if not NULL, is of a type that takes part in garbage collection.
pub(super) fn may_hold(object: *mut ffi::PyObject) -> bool {
    if object.is_null() {
        return false;
    }
    // SAFETY: the caller holds a reference to the object.
    let class = unsafe { ffi::Py_TYPE(object) };
    // SAFETY: the type of a live object.
    let flags = unsafe { ffi::PyType_GetFlags(class) };
    flags & ffi::Py_TPFLAGS_HAVE_GC != 0
}

/// A tensor over `snapshot`, of the class from [`derive()`].
pub(super) fn new<'py>(
    py: Python<'py>,
    class: &Bound<'py, PyType>,
    snapshot: Snapshot,
) -> PyResult<Bound<'py, Tensor>> {
    let body = Body::new(snapshot);
    // SAFETY: attached; a tracked class.
    let object = unsafe { ffi::PyObject_GC_New::<ffi::PyObject>(class.as_type_ptr()) };
    // SAFETY: a new reference, or NULL with a `MemoryError`; nothing reads the object before it is complete.
    let object = unsafe { Bound::from_owned_ptr_or_err(py, object) }?;
    // SAFETY: a new object of the size of its class, which is not shared yet.
    let place = unsafe { Body::of(object.as_ptr()) };
    // SAFETY: as above; so far only its head has been written.
    unsafe { place.write(body) };
    // SAFETY: a new object in which everything that `traverse` reads is initialized.
    unsafe { ffi::PyObject_GC_Track(object.as_ptr().cast()) };
    // SAFETY: its class derives from that of `Tensor` and adds no fields.
    Ok(unsafe { object.cast_into_unchecked() })
}

/// Derives the class from the untracked one.
#[cold]
pub(super) fn derive<'py>(plain: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyType>> {
    let functions = [
        dealloc as *mut c_void,
        traverse as *mut c_void,
        free as *mut c_void,
    ];
    subclass(plain, functions, ffi::Py_TPFLAGS_HAVE_GC)
}

/// `tp_dealloc` of the class, like that of its base.
///
/// # Safety
///
/// Called by CPython, attached, with an object of the class whose reference count is zero.
unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    let body = || {
        // SAFETY: a tracked object, as the caller guarantees; from now on the collector ignores it.
        unsafe { ffi::PyObject_GC_UnTrack(object.cast()) };
        // SAFETY: as the caller guarantees; `new` allocated the object.
        unsafe { end(object, free) };
    };
    guard(body, unraisable);
}

/// `tp_free` of the class; a function of its own, as in its base.
unsafe extern "C" fn free(object: *mut c_void) {
    // SAFETY: memory allocated by `new`.
    unsafe { ffi::PyObject_GC_Del(object) };
}

/// `tp_traverse` of the class. It visits an owner only if this object is the sole holder of the memory; an export, for
/// example, would be another.
///
/// # Safety
///
/// Called by CPython's garbage collector with an object of the class, while all other Python threads are stopped.
unsafe extern "C" fn traverse(
    object: *mut ffi::PyObject,
    visit: ffi::visitproc,
    argument: *mut c_void,
) -> c_int {
    let body = || {
        // SAFETY: a live head, as the caller guarantees.
        let class = unsafe { ffi::Py_TYPE(object) };
        // SAFETY: an object of the class.
        let place = unsafe { Body::of(object) };
        // SAFETY: intact as long as the collector tracks it (S24, tensor objects).
        let value = unsafe { &(*place).value };
        let [first, second] = value.snapshot.objects();
        for held in [class.cast(), first, second] {
            if !held.is_null() {
                // SAFETY: the collector's function, with an object to which this one holds a reference.
                let answer = unsafe { visit(held, argument) };
                if answer != 0 {
                    return answer;
                }
            }
        }
        0
    };
    guard(body, |_| 0)
}
