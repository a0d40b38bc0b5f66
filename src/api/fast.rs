//! The two functions that cost less than the parsing of their arguments, as CPython calls them: `from_dlpack` of an
//! object and nothing else, and `Tensor.__dlpack__` with what consumers usually ask for. Every other call goes on to
//! what PyO3 has made (invariant S20 of `docs/safety.md`).

use std::ffi::{CString, c_int};
use std::mem::transmute;
use std::ptr::{NonNull, null_mut};
use std::slice;
use std::sync::OnceLock;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyTuple};

use crate::abi::{DLManagedTensorVersioned, DLPACK_MAJOR_VERSION};
use crate::adapters::numpy;
use crate::copy::request::Request;
use crate::cpython::boundary::guard;
use crate::import::cache;
use crate::import::cache::Way;
use crate::import::ladder;
use crate::tensor::capsule;
use crate::tensor::managed::MAYBE_READ_ONLY;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;
use crate::types::dtype;

/// What PyO3 has made, as CPython calls it.
type Function = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *const *mut ffi::PyObject,
    ffi::Py_ssize_t,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

static FROM_DLPACK: OnceLock<Function> = OnceLock::new();
static DLPACK: OnceLock<Function> = OnceLock::new();

const FLAGS: c_int = ffi::METH_FASTCALL | ffi::METH_KEYWORDS;

/// The C function behind a builtin function or bound method, if it is called as an entry is.
fn behind(function: &Bound<'_, PyAny>) -> PyResult<Function> {
    let function = function.cast::<PyCFunction>()?;
    // SAFETY: attached, with a builtin function.
    let flags = unsafe { ffi::PyCFunction_GetFlags(function.as_ptr()) };
    // SAFETY: as above.
    let behind = unsafe { ffi::PyCFunction_GetFunction(function.as_ptr()) };
    match behind.filter(|_| flags == FLAGS) {
        // SAFETY: its flags say that it is called so (S20).
        Some(behind) => Ok(unsafe { transmute::<ffi::PyCFunction, Function>(behind) }),
        None => Err(PyTypeError::new_err(
            "the function takes no vector of arguments",
        )),
    }
}

/// A definition with the signature and the documentation of `parsed`; it lives for ever.
fn definition(
    parsed: &Bound<'_, PyAny>,
    name: &str,
    function: ffi::PyCFunctionFastWithKeywords,
) -> PyResult<*mut ffi::PyMethodDef> {
    let signature: String = parsed.getattr("__text_signature__")?.extract()?;
    let text: String = parsed.getattr("__doc__")?.extract()?;
    let doc = CString::new(format!("{name}{signature}\n--\n\n{text}"))?;
    Ok(Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: CString::new(name)?.into_raw(),
        ml_meth: ffi::PyMethodDefPointer {
            PyCFunctionFastWithKeywords: function,
        },
        ml_flags: FLAGS,
        ml_doc: doc.into_raw(),
    })))
}

/// The function `from_dlpack` to register in place of `parsed`.
pub(crate) fn from_dlpack<'py>(
    parsed: &Bound<'py, PyCFunction>,
    module: &Bound<'py, PyModule>,
) -> PyResult<Bound<'py, PyAny>> {
    let definition = definition(parsed, "from_dlpack", called)?;
    let behind = behind(parsed)?;
    FROM_DLPACK.get_or_init(|| behind);
    let (receiver, name) = (module.as_ptr(), module.name()?);
    // SAFETY: attached; the definition is as `called` is, and the name is a string.
    let function = unsafe { ffi::PyCFunction_NewEx(definition, receiver, name.as_ptr()) };
    // SAFETY: a new reference, or NULL with an exception.
    unsafe { Bound::from_owned_ptr_or_err(module.py(), function) }
}

/// Puts the entry of `__dlpack__` into the class `Tensor`.
pub(crate) fn set_dlpack(py: Python<'_>) -> PyResult<()> {
    // A method tells its C function only when it is bound.
    let sample = Tensor::new(py, Snapshot::allocate(&[0], dtype::BYTE, 0)?)?;
    let (class, name) = (sample.get_type(), intern!(py, "__dlpack__"));
    let behind = behind(&sample.getattr(name)?)?;
    DLPACK.get_or_init(|| behind);
    let definition = definition(&class.getattr(name)?, "__dlpack__", exported)?;
    // SAFETY: attached; the definition is as `exported` is.
    let method = unsafe { ffi::PyDescr_NewMethod(class.as_type_ptr(), definition) };
    // SAFETY: a new reference, or NULL with an exception.
    let method = unsafe { Bound::from_owned_ptr_or_err(py, method) }?;
    class.setattr(name, method)
}

/// `from_dlpack(x)`.
///
/// # Safety
///
/// Called by CPython: attached, with `count` arguments, and the names of the keywords among them or NULL.
unsafe extern "C" fn called(
    module: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    if count == 1 && keywords.is_null() {
        // SAFETY: there is one argument, which the caller holds; attached.
        let made = guard(|| unsafe { of_one(arguments) }, |_| None);
        if let Some(made) = made {
            return made;
        }
    }
    // SAFETY: as this function is called.
    unsafe { parse(&FROM_DLPACK, module, arguments, count, keywords) }
}

/// The tensor of one argument, or NULL with an exception.
///
/// # Safety
///
/// Attached, with one live argument.
#[inline(always)]
unsafe fn of_one(arguments: *const *mut ffi::PyObject) -> Option<*mut ffi::PyObject> {
    // SAFETY: the caller's promise.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: the caller's promise.
    let x = unsafe { arguments.read() };
    // SAFETY: the caller's promise.
    let x = unsafe { Borrowed::from_ptr(py, x) };
    if let Some(snapshot) = numpy::fast(&x) {
        return owned(Tensor::new(py, snapshot)).map(NonNull::as_ptr);
    }
    if let Some(tensor) = Tensor::of(&x) {
        return Some(itself(tensor).unwrap_or_else(raised));
    }
    let made = match cache::remembered(&x) {
        Some(Way::Table(table, kind)) => {
            let snapshot = crate::import::table::of_known(&x, table, kind.as_ref());
            snapshot.and_then(|snapshot| Ok(Tensor::new(py, snapshot)?.into_ptr()))
        }
        // Whatever else it is may run Python code, so PyO3 has to know of the attachment.
        _ => Python::attach(|_| {
            let snapshot = ladder::from_dlpack(&x, &Request::NOTHING)?;
            Ok(Tensor::holding(py, snapshot)?.into_ptr())
        }),
    };
    Some(made.unwrap_or_else(raised))
}

/// A `dlx.Tensor`, which is given back as it is.
fn itself(tensor: &Bound<'_, Tensor>) -> PyResult<*mut ffi::PyObject> {
    tensor.get().snapshot()?;
    Ok(tensor.clone().into_ptr())
}

/// Sets the exception of an entry.
#[cold]
#[inline(never)]
fn raised(error: PyErr) -> *mut ffi::PyObject {
    Python::attach(|py| error.restore(py));
    null_mut()
}

/// The reference to give away; a failure is forgotten, and found again by who tries the other way.
fn owned<T>(made: PyResult<Bound<'_, T>>) -> Option<NonNull<ffi::PyObject>> {
    match made {
        Ok(made) => NonNull::new(made.into_ptr()),
        Err(error) => {
            // PyO3 does not know of the attachment of an entry.
            Python::attach(|_| drop(error));
            None
        }
    }
}

/// `tensor.__dlpack__(**keywords)`, where the keywords ask for a versioned capsule as it is.
///
/// # Safety
///
/// As for [`called`], with a `Tensor` as receiver, which a method descriptor sees to.
unsafe extern "C" fn exported(
    tensor: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    if count == 0 && !keywords.is_null() {
        // SAFETY: as this function is called.
        let made = guard(
            || unsafe { of_tensor(tensor, arguments, keywords) },
            |_| None,
        );
        if let Some(made) = made {
            return made.as_ptr();
        }
    }
    // SAFETY: as this function is called.
    unsafe { parse(&DLPACK, tensor, arguments, count, keywords) }
}

/// The capsule of a tensor without streams for a consumer that asks for nothing special; `None` otherwise.
///
/// # Safety
///
/// As for [`exported`].
unsafe fn of_tensor(
    tensor: *mut ffi::PyObject,
    values: *const *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> Option<NonNull<ffi::PyObject>> {
    // SAFETY: the caller's promise.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: the caller's promise.
    let tensor = unsafe { Borrowed::from_ptr(py, tensor) };
    // SAFETY: the caller's promise.
    let keywords = unsafe { Borrowed::from_ptr(py, keywords) };
    let keywords = keywords.cast::<PyTuple>().ok()?;
    // SAFETY: a value for each keyword.
    let values = unsafe { slice::from_raw_parts(values, keywords.len()) };
    let tensor = Tensor::of(&tensor)?.get();
    let mut versioned = false;
    for (index, &value) in values.iter().enumerate() {
        // SAFETY: a value that the caller holds.
        let value = unsafe { Borrowed::from_ptr(py, value) };
        let name = keywords.get_borrowed_item(index).ok()?;
        if name.is(intern!(py, "max_version")) {
            versioned = major(&value)? >= i64::from(DLPACK_MAJOR_VERSION);
        } else if !value.is_none() || !is_known(py, &name) {
            return None;
        }
    }
    let snapshot = match tensor.snapshot() {
        Ok(snapshot) if versioned && snapshot.usage().is_none() => snapshot,
        Ok(_) => return None,
        Err(error) => {
            Python::attach(|_| drop(error));
            return None;
        }
    };
    if snapshot.has(MAYBE_READ_ONLY) {
        return owned(capsule::of(py, snapshot, None, false));
    }
    let managed = snapshot.export::<DLManagedTensorVersioned>(false).ok()?;
    owned(capsule::export(py, managed))
}

/// Whether a keyword of `__dlpack__` other than `max_version` has this name.
fn is_known(py: Python<'_>, name: &Bound<'_, PyAny>) -> bool {
    name.is(intern!(py, "copy"))
        || name.is(intern!(py, "dl_device"))
        || name.is(intern!(py, "stream"))
}

/// The first number of a pair.
fn major(version: &Bound<'_, PyAny>) -> Option<i64> {
    let version = version.cast_exact::<PyTuple>().ok()?;
    let major = version.get_borrowed_item(0).ok()?;
    (version.len() == 2).then(|| major.extract().ok())?
}

/// Calls what PyO3 has made.
///
/// # Safety
///
/// As for [`called`].
#[cold]
unsafe fn parse(
    parsed: &OnceLock<Function>,
    receiver: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    match parsed.get() {
        // SAFETY: called as CPython has called the entry.
        Some(parsed) => unsafe { parsed(receiver, arguments, count, keywords) },
        // An entry is registered after this is set.
        None => null_mut(),
    }
}
