//! Tensors whose owner may come to hold them: `x.t = dlx.from_dlpack(x)`. The garbage collector knows these.
//!
//! Their class is derived from `dlx.Tensor`, because CPython takes all objects of a class to be laid out alike: from 3.14
//! on it writes in front of objects that `tp_is_gc` says the collector does not know. The class has no `tp_clear`, as
//! that of tuples has none: what a tensor holds never changes, so some other object closed the cycle, and opens it.

use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicPtr;

use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::{Object, Tensor, end, share, subclass};
use crate::cpython::boundary::{guard, unraisable};
use crate::tensor::snapshot::Snapshot;

/// Whether `object`, if there is one, is of a type whose objects may be part of a cycle.
pub(super) fn may_hold(object: *mut ffi::PyObject) -> bool {
    let Some(object) = NonNull::new(object) else {
        return false;
    };
    // SAFETY: whoever asks holds the object.
    let class = unsafe { ffi::Py_TYPE(object.as_ptr()) };
    // SAFETY: the type of a live object.
    let flags = unsafe { ffi::PyType_GetFlags(class) };
    flags & ffi::Py_TPFLAGS_HAVE_GC != 0
}

/// The tensor over `snapshot`, of the class that [`derive()`] has made.
pub(super) fn new<'py>(
    py: Python<'py>,
    class: &Bound<'py, PyType>,
    snapshot: Snapshot,
) -> PyResult<Bound<'py, Tensor>> {
    let value = Tensor::over(snapshot);
    // SAFETY: attached; the class is as large as an object, of those that the collector knows.
    let place = unsafe { ffi::PyObject_GC_New::<Object>(class.as_type_ptr()) };
    let Some(place) = NonNull::new(place) else {
        // Python has set the same.
        drop(PyErr::take(py));
        return Err(PyMemoryError::new_err(()));
    };
    // SAFETY: the object's own, which nobody else knows yet.
    let place_of_value = unsafe { &raw mut (*place.as_ptr()).value };
    // SAFETY: as above; its head alone has been written.
    unsafe { place_of_value.write(value) };
    // SAFETY: as above.
    let weak = unsafe { &raw mut (*place.as_ptr()).weak };
    // SAFETY: as above.
    unsafe { weak.write(AtomicPtr::new(null_mut())) };
    // SAFETY: a new object with all that `traverse` looks at.
    unsafe { ffi::PyObject_GC_Track(place.as_ptr().cast()) };
    // SAFETY: the only reference to the object.
    let object = unsafe { Bound::from_owned_ptr(py, place.as_ptr().cast()) };
    // SAFETY: its class is derived from that of `Tensor`, and adds nothing.
    Ok(unsafe { object.cast_into_unchecked() })
}

/// Derives the class from that of tensors.
#[cold]
pub(super) fn derive<'py>(plain: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyType>> {
    let functions = [
        dealloc as *mut c_void,
        traverse as *mut c_void,
        free as *mut c_void,
    ];
    let class = subclass(plain, functions, ffi::Py_TPFLAGS_HAVE_GC)?;
    share(&class);
    Ok(class)
}

/// `tp_dealloc` of the class, as that of its base.
///
/// # Safety
///
/// Called by CPython, attached, with an object of the class that nobody refers to any more.
unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    let body = || {
        // SAFETY: as the caller promises.
        let class = unsafe { ffi::Py_TYPE(object) };
        // SAFETY: as the caller promises; from here on the collector does not look at it.
        unsafe { ffi::PyObject_GC_UnTrack(object.cast()) };
        // SAFETY: as the caller promises.
        unsafe { end(object) };
        // SAFETY: allocated by `new`.
        unsafe { ffi::PyObject_GC_Del(object.cast()) };
        // SAFETY: every object has a reference to its class.
        unsafe { ffi::Py_DECREF(class.cast()) };
    };
    guard(body, unraisable);
}

/// `tp_free` of the class, a function of its own as that of its base.
unsafe extern "C" fn free(object: *mut c_void) {
    // SAFETY: memory that `new` allocated.
    unsafe { ffi::PyObject_GC_Del(object) };
}

/// `tp_traverse` of the class: an owner counts as held by this object only where nobody else, an export say, holds the
/// memory.
///
/// # Safety
///
/// Called by CPython's garbage collector, with an object of the class, while no thread of Python's runs.
unsafe extern "C" fn traverse(
    object: *mut ffi::PyObject,
    visit: ffi::visitproc,
    argument: *mut c_void,
) -> c_int {
    let body = || {
        // SAFETY: as the caller promises.
        let class = unsafe { ffi::Py_TYPE(object) };
        let place = object.cast::<Object>();
        // SAFETY: whole as long as the collector knows it (S24).
        let value = unsafe { &(*place).value };
        let [first, second] = value.snapshot.objects();
        for held in [class.cast(), first, second] {
            if !held.is_null() {
                // SAFETY: the collector's own function, and an object to which this one has a reference.
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
