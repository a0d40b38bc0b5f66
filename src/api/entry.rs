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

/// A function made by PyO3, with the C signature that CPython calls.
pub(crate) type Function = unsafe extern "C" fn(
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

static PARSED: [OnceLock<Function>; 4] = [const { OnceLock::new() }; 4];

/// PyO3's function, for the calls that a fast entry does not answer; it is there once the entry is registered.
pub(super) fn parsed(name: Name) -> Option<Function> {
    PARSED[name as usize].get().copied()
}

/// The C function of a builtin function or bound method, if it has the calling convention of an entry.
pub(super) fn behind(function: &Bound<'_, PyAny>) -> PyResult<Function> {
    let function = function.cast::<PyCFunction>()?;
    // SAFETY: the thread is attached, and the cast has checked that this is a builtin function.
    let flags = unsafe { ffi::PyCFunction_GetFlags(function.as_ptr()) };
    // SAFETY: attached, with the same builtin function.
    let behind = unsafe { ffi::PyCFunction_GetFunction(function.as_ptr()) };
    match behind.filter(|_| flags == FLAGS) {
        // SAFETY: the flags are those of this signature (S20, fast entries).
        Some(behind) => Ok(unsafe { transmute::<ffi::PyCFunction, Function>(behind) }),
        None => Err(PyTypeError::new_err(
            "the function is not called with METH_FASTCALL | METH_KEYWORDS",
        )),
    }
}

/// A builtin function with the calling convention of an entry.
pub(super) struct Builtin<'a, 'py> {
    function: &'a Bound<'py, PyAny>,
    behind: Function,
    receiver: *mut ffi::PyObject,
}

impl<'a, 'py> Builtin<'a, 'py> {
    pub(super) fn of(function: &'a Bound<'py, PyAny>) -> PyResult<Self> {
        let behind = behind(function)?;
        // SAFETY: attached, with what `behind` knows to be a builtin function.
        let receiver = unsafe { ffi::PyCFunction_GetSelf(function.as_ptr()) };
        Ok(Self {
            function,
            behind,
            receiver,
        })
    }

    /// Calls the function.
    pub(super) fn call(&self, arguments: [&Bound<'py, PyAny>; 2]) -> PyResult<Bound<'py, PyAny>> {
        let arguments = arguments.map(Bound::as_ptr);
        // SAFETY: attached, with the function's own receiver, two live arguments and no keywords (S20).
        let made = unsafe { (self.behind)(self.receiver, arguments.as_ptr(), 2, null_mut()) };
        // SAFETY: a new reference, or NULL with an exception.
        unsafe { Bound::from_owned_ptr_or_err(self.function.py(), made) }
    }
}

/// A method definition with the signature and docstring of `documented`, in place of the function behind `pyo3`: CPython
/// calls `fast`. It is leaked, because CPython keeps a pointer to it.
pub(super) fn definition(
    documented: &Bound<'_, PyAny>,
    (name, entry): (&str, Name),
    pyo3: &Bound<'_, PyAny>,
    fast: Function,
) -> PyResult<*mut ffi::PyMethodDef> {
    let behind = behind(pyo3)?;
    let signature: String = documented.getattr("__text_signature__")?.extract()?;
    let text: String = documented.getattr("__doc__")?.extract()?;
    let doc = CString::new(format!("{name}{signature}\n--\n\n{text}"))?;
    let definition = Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: CString::new(name)?.into_raw(),
        ml_meth: ffi::PyMethodDefPointer {
            PyCFunctionFastWithKeywords: fast,
        },
        ml_flags: FLAGS,
        ml_doc: doc.into_raw(),
    }));
    PARSED[entry as usize].get_or_init(|| behind);
    Ok(definition)
}

/// Adds a function of PyO3 to the module, with a definition of dlx's: CPython calls `fast`.
pub(crate) fn add(
    module: &Bound<'_, PyModule>,
    name: (&'static str, Name),
    pyo3: &Bound<'_, PyCFunction>,
    fast: Function,
) -> PyResult<()> {
    let definition = definition(pyo3, name, pyo3, fast)?;
    let (receiver, module_name) = (module.as_ptr(), module.name()?);
    // SAFETY: attached; the leaked definition has the flags of its function, and the receiver and the name are live
    // objects, the name a string.
    let function = unsafe { ffi::PyCFunction_NewEx(definition, receiver, module_name.as_ptr()) };
    // SAFETY: a new reference, or NULL with an exception.
    let function = unsafe { Bound::from_owned_ptr_or_err(module.py(), function) }?;
    module.add(name.0, function)
}
