//! Fast entries, called by CPython directly, for functions that cost less than parsing their arguments, or little more:
//! `from_dlpack(x)`, also with the usual `device=` and `copy=`, and in the files of this folder. Every other call goes on
//! to PyO3's function. A fast entry keeps the calling convention of the function it replaces (S20 of `docs/safety.md`).

pub(crate) mod dlpack;
pub(crate) mod of_two;

use std::ptr::{NonNull, null_mut};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyCFunction, PyTuple};

use crate::adapters::numpy;
use crate::api::entry::{Name, add, parsed};
use crate::copy::request::{Asked, Request};
use crate::cpython::boundary::{counted, guard, raised};
use crate::cpython::once::intern;
use crate::import::cache;
use crate::import::{ladder, table};
use crate::tensor::object::Tensor;
use crate::tensor::trace;
use crate::types::device;
use crate::types::error::unseen;

/// Adds the entry `from_dlpack` in place of PyO3's function.
pub(crate) fn add_from_dlpack(
    module: &Bound<'_, PyModule>,
    pyo3: &Bound<'_, PyCFunction>,
) -> PyResult<()> {
    let name = ("from_dlpack", Name::FromDlpack);
    add(module, name, pyo3, called)
}

/// The entry of `from_dlpack(x)`, with or without `device` and `copy`.
///
/// # Safety
///
/// Called by CPython with the thread attached, `count` positional arguments, then one value for each name in
/// `keywords`, which is a tuple or NULL.
unsafe extern "C" fn called(
    module: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    if count == 1 && keywords.is_null() {
        // SAFETY: attached, with exactly one argument, which the caller holds.
        let made = guard(|| Some(unsafe { of_one(arguments) }), |_| None);
        if let Some(made) = made {
            // SAFETY: as above; a new reference, or NULL with an exception.
            return unsafe { noted(made, arguments) };
        }
    }
    // SAFETY: the caller's promise, passed on unchanged.
    unsafe { asked(module, arguments, count, keywords) }
}

/// Returns what was imported of the first argument, once a trace has noted it, if one is on.
///
/// # Safety
///
/// Attached, with a live argument; `made` is a new reference or NULL.
#[inline(always)]
unsafe fn noted(
    made: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    if trace::is_on() {
        // SAFETY: the caller's promise.
        let source = unsafe { arguments.read() };
        // SAFETY: the caller's promise.
        unsafe { trace::imported(made, source, c"from_dlpack") };
    }
    made
}

/// As [`called`], for other calls than `from_dlpack(x)`.
///
/// # Safety
///
/// As for [`called`].
#[inline(never)]
unsafe fn asked(
    module: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let fast = if count == 1 && !keywords.is_null() {
        // SAFETY: the caller's promise; one positional argument, and `keywords` is not NULL.
        guard(|| unsafe { as_asked(arguments, keywords) }, |_| None)
    } else {
        None
    };
    // SAFETY: the caller's promise, passed on unchanged.
    let parse = || unsafe { parse(Name::FromDlpack, module, arguments, count, keywords) };
    let made = fast.unwrap_or_else(parse);
    if count == 0 {
        return made;
    }
    // SAFETY: there is an argument; a new reference, or NULL with an exception.
    unsafe { noted(made, arguments) }
}

/// What the keywords `device`, `copy` and `stream` ask for, if they are spelled as usual: by interned names, with `"cpu"`, a
/// bool and anything, or None; `None` for any other keywords.
///
/// # Safety
///
/// As for [`called`], with one positional argument, and `keywords` not NULL.
#[inline(always)]
unsafe fn requested<'a, 'py>(
    py: Python<'py>,
    arguments: *const *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> Option<(Request<'static, 'static>, Option<Borrowed<'a, 'py, PyAny>>)> {
    // SAFETY: the caller's promise.
    let keywords = unsafe { Borrowed::from_ptr(py, keywords) };
    let keywords = keywords.cast::<PyTuple>().ok()?;
    let (mut device, mut copy, mut stream) = (None, None, None);
    for index in 0..keywords.len() {
        // SAFETY: the caller passes one value for each keyword, after the positional argument.
        let value = unsafe { arguments.add(1 + index) };
        // SAFETY: as above.
        let value = unsafe { value.read() };
        // SAFETY: a live object, which the caller holds during the call.
        let value = unsafe { Borrowed::from_ptr(py, value) };
        let name = keywords.get_borrowed_item(index).ok()?;
        // A name that comes twice is an error.
        if name.is(intern!(py, "copy")) && copy.is_none() {
            copy = Some(truth(&value)?);
        } else if name.is(intern!(py, "device")) && device.is_none() {
            device = Some(device::usual(&value)?);
        } else if name.is(intern!(py, "stream")) && stream.is_none() {
            stream = Some(Some(value).filter(|value| !value.is_none()));
        } else {
            return None;
        }
    }
    let request = Request {
        device: device.flatten(),
        copy: copy.flatten(),
        ..Request::NOTHING
    };
    Some((request, stream.flatten()))
}

/// The bool, or `None` for None; `None` outside for anything else.
#[inline(always)]
fn truth(value: &Bound<'_, PyAny>) -> Option<Option<bool>> {
    if value.is_none() {
        return Some(None);
    }
    Some(Some(value.cast_exact::<PyBool>().ok()?.is_true()))
}

/// Imports the one argument; NULL with an exception.
///
/// # Safety
///
/// Attached, with one live argument.
#[inline(always)]
unsafe fn of_one(arguments: *const *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the caller's promise.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: the caller's promise.
    let x = unsafe { arguments.read() };
    // SAFETY: the caller's promise.
    let x = unsafe { Borrowed::from_ptr(py, x) };
    if let Some(snapshot) = numpy::fast(&x) {
        return Tensor::new(py, snapshot).map_or_else(raised, Bound::into_ptr);
    }
    if let Some(tensor) = Tensor::of(&x) {
        return itself(tensor).unwrap_or_else(raised);
    }
    let made = match cache::table(&x) {
        Some((known, kind)) => {
            let snapshot = table::fast::<false>(&x, known, kind, &Request::NOTHING);
            snapshot.and_then(|snapshot| Ok(Tensor::new(py, snapshot)?.into_ptr()))
        }
        // All other imports may run Python code.
        None => by_ladder(&x, &Request::NOTHING),
    };
    made.unwrap_or_else(raised)
}

/// Imports as the keywords ask; NULL with an exception, or `None` to let PyO3's function try.
///
/// # Safety
///
/// As for [`called`], with one positional argument, and `keywords` not NULL.
#[inline(always)]
unsafe fn as_asked(
    arguments: *const *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> Option<*mut ffi::PyObject> {
    // SAFETY: the caller's promise.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: the caller's promise.
    let (request, stream) = unsafe { requested(py, arguments, keywords) }?;
    // SAFETY: the caller's promise.
    let x = unsafe { arguments.read() };
    // SAFETY: the caller's promise.
    let x = unsafe { Borrowed::from_ptr(py, x) };
    let copies = request.copy == Some(true);
    if let Some(stream) = stream {
        let made = Tensor::of(&x)
            .is_none()
            .then(|| on_stream(&x, &request, &stream))?;
        return Some(made.unwrap_or_else(raised));
    }
    // An array is on the CPU, and no copy.
    let array = (!copies).then(|| numpy::fast_if_array(&x)).flatten();
    if let Some(snapshot) = array {
        return Some(Tensor::new(py, snapshot).map_or_else(raised, Bound::into_ptr));
    }
    let made = match cache::table(&x) {
        Some((known, kind)) if !copies => {
            let snapshot = table::fast::<true>(&x, known, kind, &request);
            snapshot.and_then(|snapshot| Ok(Tensor::holding(py, snapshot)?.into_ptr()))
        }
        None if Tensor::of(&x).is_some() => return None,
        _ => by_ladder(&x, &request),
    };
    Some(made.unwrap_or_else(raised))
}

/// Imports for a stream.
#[inline(never)]
fn on_stream(
    x: &Bound<'_, PyAny>,
    request: &Request<'_, '_>,
    stream: &Bound<'_, PyAny>,
) -> PyResult<*mut ffi::PyObject> {
    let asked = Asked::by_argument(stream);
    let stream = Some(&asked);
    by_ladder(x, &Request { stream, ..*request })
}

/// Imports what may run Python code, so PyO3 counts the attachment.
#[inline(never)]
fn by_ladder(x: &Bound<'_, PyAny>, request: &Request<'_, '_>) -> PyResult<*mut ffi::PyObject> {
    let py = x.py();
    let made = counted(py, || {
        let snapshot = ladder::from_dlpack(x, request)?;
        Ok(Tensor::holding(py, snapshot)?.into_any())
    });
    made.map(Bound::into_ptr)
}

/// Returns a `dlx.Tensor` itself, if its block has not ended.
fn itself(tensor: &Bound<'_, Tensor>) -> PyResult<*mut ffi::PyObject> {
    tensor.get().snapshot()?;
    Ok(tensor.clone().into_ptr())
}

/// The owned reference; an error is dropped, and the slow path raises it again.
fn owned<T>(made: PyResult<Bound<'_, T>>) -> Option<NonNull<ffi::PyObject>> {
    match made {
        Ok(made) => NonNull::new(made.into_ptr()),
        Err(error) => {
            unseen(error);
            None
        }
    }
}

/// Calls PyO3's function.
///
/// # Safety
///
/// As for [`called`].
#[cold]
unsafe fn parse(
    name: Name,
    receiver: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    match parsed(name) {
        // SAFETY: it has the calling convention of the entry (S20), and gets the entry's own arguments.
        Some(parsed) => unsafe { parsed(receiver, arguments, count, keywords) },
        // Unreachable: the function is stored before its entry is registered.
        None => null_mut(),
    }
}
