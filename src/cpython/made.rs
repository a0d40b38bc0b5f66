//! Classes whose objects a call without keywords makes in place, without PyO3's parsing and `object.__new__` (S29 of
//! `docs/safety.md`).

use std::ffi::CStr;
use std::mem::transmute;
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;

use pyo3::PyClass;
use pyo3::exceptions::PySystemError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;
use pyo3::types::{PyTuple, PyType};

use crate::cpython::derived;
use crate::cpython::head::ALIGNMENT;

/// A class of PyO3 whose objects are made of positional arguments by [`Made::of`].
pub(crate) trait Made: PyClass<Frozen = True> + Sync {
    /// How PyO3 makes and lays out objects.
    const BASE: &OnceLock<Base>;

    /// The value for these arguments, without keywords; runs no Python code and does not panic.
    fn of(arguments: Py<PyTuple>) -> Self;
}

/// PyO3's class.
pub(crate) struct Base {
    new: ffi::newfunc,
    /// Where the value begins in an object.
    offset: usize,
}

/// A final class `name` derived from PyO3's of `T`, of whose objects `sample` shows the layout.
///
/// # Errors
///
/// `SystemError` if objects hold more than the value.
#[cold]
pub(crate) fn class<'py, T: Made>(
    sample: &Bound<'py, T>,
    name: &'static CStr,
) -> PyResult<Bound<'py, PyType>> {
    let offset = (&raw const *sample.get()).addr() - sample.as_ptr().addr();
    let (base, end) = (sample.as_any().get_type(), offset + size_of::<T>());
    let size: usize = base
        .getattr(intern!(sample.py(), "__basicsize__"))?
        .extract()?;
    let slot = |slot| {
        // SAFETY: a live heap type.
        NonNull::new(unsafe { ffi::PyType_GetSlot(base.as_type_ptr(), slot) })
    };
    let (Some(new), Some(dealloc), Some(doc), true) = (
        slot(ffi::Py_tp_new),
        slot(ffi::Py_tp_dealloc),
        slot(ffi::Py_tp_doc),
        (end..end + ALIGNMENT).contains(&size),
    ) else {
        return Err(PySystemError::new_err(
            "dlx does not know how PyO3 lays out objects",
        ));
    };
    // SAFETY: the slot has a function of this type.
    let new = unsafe { transmute::<NonNull<_>, ffi::newfunc>(new) };
    T::BASE.get_or_init(|| Base { new, offset });
    let slots = [
        (ffi::Py_tp_new, make::<T> as *mut _),
        // PyO3's, which reads the object's own type; the function that CPython puts in its place takes longer.
        (ffi::Py_tp_dealloc, dealloc.as_ptr()),
        (ffi::Py_tp_doc, doc.as_ptr()),
    ];
    // SAFETY: functions of these types, and a text of the base.
    unsafe { derived::class(&base, name, 0, &slots) }
}

/// `tp_new` of the class.
///
/// # Safety
///
/// Called by CPython, attached, with the class, a tuple, and a dict or NULL.
unsafe extern "C" fn make<T: Made>(
    class: *mut ffi::PyTypeObject,
    arguments: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let Some(base) = T::BASE.get() else {
        // Unreachable: it is stored before there is a class.
        return null_mut();
    };
    if !keywords.is_null() {
        // SAFETY: PyO3's function, with the caller's own arguments.
        return unsafe { (base.new)(class, arguments, keywords) };
    }
    // SAFETY: attached, with a class that is ready.
    let object = unsafe { ffi::PyType_GenericAlloc(class, 0) };
    if object.is_null() {
        return object;
    }
    // SAFETY: the caller's promise.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: the caller holds the tuple during the call.
    let arguments = unsafe { Bound::from_borrowed_ptr(py, arguments) };
    // SAFETY: the caller's promise.
    let arguments = unsafe { arguments.cast_into_unchecked::<PyTuple>() };
    // SAFETY: inside the object.
    let place = unsafe { object.byte_add(base.offset) };
    // SAFETY: room for the value, which is all that the object has (`class`); nothing has seen it yet.
    unsafe { place.cast::<T>().write(T::of(arguments.unbind())) };
    object
}
