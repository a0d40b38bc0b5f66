//! Fast entries of functions that are usually called with two arguments, or with ``like`` besides.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyTuple};

use super::parse;
use crate::api::entry::{Name, add};
use crate::cpython::boundary::{counted, guard, raised};
use crate::cpython::once::intern;

/// A function whose calls with two arguments have a fast entry.
pub(crate) trait OfTwo {
    const NAME: (&'static str, Name);

    /// Whether the usual call has a third argument, by the name ``like``.
    const LIKE: bool;

    /// Calls it; there is a `like` if `LIKE`.
    fn call<'py>(
        x: &Bound<'py, PyAny>,
        y: &Bound<'py, PyAny>,
        like: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>>;
}

/// Adds the entry of `F` in place of PyO3's function.
pub(crate) fn add_entry<F: OfTwo>(
    module: &Bound<'_, PyModule>,
    pyo3: &Bound<'_, PyCFunction>,
) -> PyResult<()> {
    add(module, F::NAME, pyo3, called_with_two::<F>)
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
    let is_usual = match F::LIKE {
        false => keywords.is_null(),
        // SAFETY: the caller's promise.
        true => unsafe { is_like_alone(keywords) },
    };
    if count == 2 && is_usual {
        // SAFETY: attached, with exactly two arguments, and with `like` after them if `LIKE`, which the caller holds.
        let made = guard(|| Some(unsafe { made_of_two::<F>(arguments) }), |_| None);
        if let Some(made) = made {
            return made;
        }
    }
    // SAFETY: the caller's promise, passed on unchanged.
    unsafe { parse(F::NAME.1, module, arguments, count, keywords) }
}

/// Whether the only keyword is ``like``, interned as in a call that is written out.
///
/// # Safety
///
/// Attached, with a tuple or NULL.
#[inline(always)]
unsafe fn is_like_alone(keywords: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller's promise.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: the caller's promise.
    let keywords = unsafe { Borrowed::from_ptr_or_opt(py, keywords) };
    let Some(Ok(keywords)) = keywords.as_ref().map(|keywords| keywords.cast::<PyTuple>()) else {
        return false;
    };
    let first = keywords.get_borrowed_item(0);
    keywords.len() == 1 && first.is_ok_and(|first| first.is(intern!(py, "like")))
}

/// What `F` makes of its arguments, or NULL with an exception.
///
/// # Safety
///
/// Attached, with two live arguments, and a third if `LIKE`.
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
        if !F::LIKE {
            return F::call(&x, &y, None);
        }
        // SAFETY: the caller's promise.
        let like = unsafe { arguments.add(2) };
        // SAFETY: as above.
        let like = unsafe { like.read() };
        // SAFETY: the caller's promise.
        let like = unsafe { Borrowed::from_ptr(py, like) };
        F::call(&x, &y, Some(&like))
    });
    made.map_or_else(raised, Bound::into_ptr)
}
