//! Method definitions of dlx's own, for functions that CPython calls directly: a fast entry in place of a function of
//! PyO3.

use std::ffi::{CString, c_int};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::OnceLock;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCFunction;

use crate::cpython::boundary::{guard, raised};
use crate::cpython::vector::Arguments;
use crate::tensor::trace;

/// A function made by PyO3, with the C signature that CPython calls.
type Function = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *const *mut ffi::PyObject,
    ffi::Py_ssize_t,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

const FLAGS: c_int = ffi::METH_FASTCALL | ffi::METH_KEYWORDS;

/// The functions that have a definition here.
#[derive(Clone, Copy)]
pub(crate) enum Name {
    FromDlpack,
    Dlpack,
    Empty,
    Convert,
}

/// PyO3's functions, for the calls that a fast entry does not answer.
static PARSED: [OnceLock<Function>; 4] = [const { OnceLock::new() }; 4];

/// A function whose usual calls have a fast entry.
pub(crate) trait FastEntry {
    const NAME: (&'static str, Name);

    /// Answers a usual call; `None` for any other, and where a trace has to note what is made, which PyO3's function does.
    ///
    /// PyO3 does not count the attachment (S20).
    fn call<'py>(receiver: &Bound<'py, PyAny>, arguments: Arguments<'_, 'py>) -> Option<Made>;
}

/// What a fast entry returns to CPython: a new reference, or NULL with an exception.
pub(crate) struct Made(*mut ffi::PyObject);

impl<T> From<PyResult<Bound<'_, T>>> for Made {
    #[inline(always)]
    fn from(made: PyResult<Bound<'_, T>>) -> Self {
        Self(made.map_or_else(raised, Bound::into_ptr))
    }
}

/// What CPython calls.
///
/// # Safety
///
/// Called by CPython with the thread attached, the receiver of the function, `count` positional arguments, then one value
/// for each name in `names`, which is a tuple or NULL.
unsafe extern "C" fn entry<F: FastEntry>(
    receiver: *mut ffi::PyObject,
    values: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let body = || {
        if trace::is_on() {
            return None;
        }
        // SAFETY: the caller's promise.
        let py = unsafe { Python::assume_attached() };
        // SAFETY: the caller holds the receiver during the call.
        let receiver = unsafe { Borrowed::from_ptr(py, receiver) };
        // SAFETY: the caller's promise.
        let arguments = unsafe { Arguments::of(py, values, count as usize, names) };
        F::call(&receiver, arguments)
    };
    if let Some(Made(made)) = guard(body, |_| None) {
        return made;
    }
    // SAFETY: the caller's promise, passed on unchanged.
    unsafe { parse(F::NAME.1, receiver, values, count, names) }
}

/// Calls PyO3's function.
///
/// # Safety
///
/// As for [`entry`].
#[cold]
unsafe fn parse(
    name: Name,
    receiver: *mut ffi::PyObject,
    values: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    match PARSED[name as usize].get() {
        // SAFETY: it has the calling convention of the entry (S20), and gets the entry's own arguments.
        Some(parsed) => unsafe { parsed(receiver, values, count, names) },
        // Unreachable: the function is stored before its entry is registered.
        None => null_mut(),
    }
}

/// A method definition of an entry, in place of the function behind `pyo3`, with its signature and docstring. It is leaked,
/// because CPython keeps a pointer to it.
fn definition(
    pyo3: &Bound<'_, PyCFunction>,
    (name, place): (&str, Name),
    fast: Function,
) -> PyResult<*mut ffi::PyMethodDef> {
    // SAFETY: attached, with a builtin function.
    let flags = unsafe { ffi::PyCFunction_GetFlags(pyo3.as_ptr()) };
    // SAFETY: as above.
    let behind = unsafe { ffi::PyCFunction_GetFunction(pyo3.as_ptr()) };
    let Some(behind) = behind.filter(|_| flags == FLAGS) else {
        return Err(PyTypeError::new_err(
            "the function is not called with METH_FASTCALL | METH_KEYWORDS",
        ));
    };
    // SAFETY: the flags are those of this signature (S20, fast entries).
    let behind = unsafe { transmute::<ffi::PyCFunction, Function>(behind) };
    PARSED[place as usize].get_or_init(|| behind);
    let signature: String = pyo3.getattr("__text_signature__")?.extract()?;
    let text: String = pyo3.getattr("__doc__")?.extract()?;
    let doc = CString::new(format!("{name}{signature}\n--\n\n{text}"))?;
    Ok(Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: CString::new(name)?.into_raw(),
        ml_meth: ffi::PyMethodDefPointer {
            PyCFunctionFastWithKeywords: fast,
        },
        ml_flags: FLAGS,
        ml_doc: doc.into_raw(),
    })))
}

/// Adds the entry of `F` to the module, in place of a function of PyO3.
pub(crate) fn add<F: FastEntry>(
    module: &Bound<'_, PyModule>,
    pyo3: &Bound<'_, PyCFunction>,
) -> PyResult<()> {
    let definition = definition(pyo3, F::NAME, entry::<F>)?;
    let (receiver, module_name) = (module.as_ptr(), module.name()?);
    // SAFETY: attached; the leaked definition has the flags of its function, and the receiver and the name are live
    // objects, the name a string.
    let function = unsafe { ffi::PyCFunction_NewEx(definition, receiver, module_name.as_ptr()) };
    // SAFETY: a new reference, or NULL with an exception.
    let function = unsafe { Bound::from_owned_ptr_or_err(module.py(), function) }?;
    module.add(F::NAME.0, function)
}

/// Sets an entry on the class of `sample`, in place of a method of PyO3.
pub(super) fn set_on_class<F: FastEntry>(sample: &Bound<'_, PyAny>) -> PyResult<()> {
    let (py, class) = (sample.py(), sample.get_type());
    let definition = definition(sample.getattr(F::NAME.0)?.cast()?, F::NAME, entry::<F>)?;
    // SAFETY: attached; the class is live, and the leaked definition has the flags of its function.
    let method = unsafe { ffi::PyDescr_NewMethod(class.as_type_ptr(), definition) };
    // SAFETY: a new reference, or NULL with an exception.
    let method = unsafe { Bound::from_owned_ptr_or_err(py, method) }?;
    class.setattr(F::NAME.0, method)
}
