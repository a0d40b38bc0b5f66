//! `from_dlpack` as CPython calls it: the usual call, one NumPy array and nothing else, is served here, before
//! arguments are parsed; every other goes to the function that PyO3 makes (invariant S20 of `docs/safety.md`).

use std::ffi::{CString, c_char};
use std::mem::transmute;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCFunction;

use crate::adapters::numpy;
use crate::boundary::guard;
use crate::tensor::Tensor;

type Function = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *const *mut ffi::PyObject,
    ffi::Py_ssize_t,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// What PyO3 makes of `functions::from_dlpack`, and the object that it is called with.
static PARSED: AtomicPtr<ffi::PyObject> = AtomicPtr::new(null_mut());

/// The function to register in place of `parsed`, with the same name, signature and documentation.
pub(crate) fn from_dlpack<'py>(
    parsed: &Bound<'py, PyCFunction>,
    module: &Bound<'py, PyModule>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = parsed.py();
    // SAFETY: attached, with a function object.
    let flags = unsafe { ffi::PyCFunction_GetFlags(parsed.as_ptr()) };
    if flags != ffi::METH_FASTCALL | ffi::METH_KEYWORDS {
        return Err(PyTypeError::new_err(
            "from_dlpack takes no vector of arguments",
        ));
    }
    let signature: String = parsed.getattr("__text_signature__")?.extract()?;
    let text: String = parsed.getattr("__doc__")?.extract()?;
    let doc = CString::new(format!("from_dlpack{signature}\n--\n\n{text}"))?;
    let definition = ffi::PyMethodDef {
        ml_name: c"from_dlpack".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer {
            PyCFunctionFastWithKeywords: called,
        },
        ml_flags: flags,
        ml_doc: doc.into_raw().cast::<c_char>(),
    };
    PARSED.store(parsed.clone().into_ptr(), Ordering::Release);
    let name = module.name()?;
    // The definition lives as long as the function, which may outlive the module.
    let definition = Box::leak(Box::new(definition));
    // SAFETY: attached; the definition is as `called` is, and the name is a string.
    let function = unsafe { ffi::PyCFunction_NewEx(definition, null_mut(), name.as_ptr()) };
    // SAFETY: a new reference, or NULL with an exception.
    unsafe { Bound::from_owned_ptr_or_err(py, function) }
}

/// # Safety
///
/// Called by CPython: attached, with `count` arguments, and the names of the keywords behind them or NULL.
unsafe extern "C" fn called(
    module: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    if count == 1 && keywords.is_null() {
        // SAFETY: CPython passes as many arguments as it says.
        let x = unsafe { arguments.read() };
        // SAFETY: an argument, held by the caller; attached.
        let made = guard(|| unsafe { of_array(x) }, |_| None);
        if let Some(made) = made {
            return made.as_ptr();
        }
    }
    // SAFETY: as this function is called.
    unsafe { parse(module, arguments, count, keywords) }
}

/// The tensor of an array of NumPy that needs no words; `None` for everything else.
///
/// # Safety
///
/// Attached, with a live object.
#[inline(always)]
unsafe fn of_array(x: *mut ffi::PyObject) -> Option<NonNull<ffi::PyObject>> {
    // SAFETY: the caller's promise.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: the caller's promise.
    let x = unsafe { Borrowed::from_ptr(py, x) };
    let snapshot = numpy::usual(&x)?;
    let tensor = Bound::new(py, Tensor::new(snapshot)).ok()?;
    NonNull::new(tensor.into_ptr())
}

/// Calls what PyO3 has made.
///
/// # Safety
///
/// As for [`called`].
#[cold]
unsafe fn parse(
    _module: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let parsed = PARSED.load(Ordering::Acquire);
    // SAFETY: a function object, kept since before `called` was registered.
    let function = unsafe { ffi::PyCFunction_GetFunction(parsed) };
    // SAFETY: as above.
    let receiver = unsafe { ffi::PyCFunction_GetSelf(parsed) };
    let Some(function) = function else {
        return null_mut();
    };
    // SAFETY: its flags say that it is called so.
    let function = unsafe { transmute::<ffi::PyCFunction, Function>(function) };
    // SAFETY: called as CPython calls it.
    unsafe { function(receiver, arguments, count, keywords) }
}
