//! Refusals and other failures, as values that need no Python until they are raised.

#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::fmt;

use pyo3::exceptions::{
    PyBufferError, PyException, PyMemoryError, PyOverflowError, PyRuntimeError, PyTypeError,
    PyValueError,
};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::cpython::interpreter;
use crate::cpython::modules::loaded_class;
use crate::cpython::once::{Once, intern};
use crate::driver;

/// An error that may have to be reported without Python (the allocator's `SetError`).
#[derive(Debug)]
pub(crate) enum Error {
    /// DLPack cannot describe it, or dlx does not accept it: `BufferError`.
    Refused(Cow<'static, str>),
    /// An allocation of this many bytes failed: `MemoryError`.
    OutOfMemory(usize),
    /// dlx itself failed: `RuntimeError`.
    Panicked(String),
    /// An invalid argument: `ValueError`.
    Invalid(String),
    /// Streams cannot be ordered without a driver: `BufferError`.
    Unordered(String),
    /// A driver failed or is missing.
    Driver(driver::Error),
    /// A Python exception.
    Raised(Box<Raised>),
}

/// A Python exception: its type's name and its message, and itself if a caller in Python may get it.
#[derive(Debug)]
pub(crate) struct Raised {
    kind: CString,
    message: String,
    error: Option<PyErr>,
}

impl Raised {
    fn of(py: Python<'_>, error: &PyErr) -> Self {
        let kind = error.get_type(py).name().map(|name| name.to_string());
        Self {
            kind: CString::new(kind.unwrap_or_default()).unwrap_or_default(),
            message: first_line(py, error),
            error: None,
        }
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        if let Some(error) = self.error.take() {
            unseen(error);
        }
    }
}

/// Drops an exception that nobody gets; an interrupt is not lost in silence.
#[cold]
pub(crate) fn forgotten(py: Python<'_>, error: PyErr) {
    if !error.is_instance_of::<PyException>(py) {
        interpreter::unraisable(py, error);
    }
}

/// Drops such an exception on a thread that may be attached, which PyO3 may not have counted (S20).
#[cold]
#[inline(never)]
pub(crate) fn unseen(error: PyErr) {
    Python::try_attach(|py| forgotten(py, error));
}

/// What `said` says; false if it failed.
#[cold]
pub(crate) fn or_false(said: PyResult<bool>) -> bool {
    said.map_err(unseen).unwrap_or(false)
}

impl Error {
    /// Whether the cause is a missing driver, so another way may succeed.
    pub(crate) fn is_absent(&self) -> bool {
        match self {
            Self::Unordered(_) => true,
            Self::Driver(error) => error.is_absent(),
            _ => false,
        }
    }

    /// A refusal with this message.
    #[cold]
    pub(crate) fn refused(message: impl Into<Cow<'static, str>>) -> Self {
        Self::Refused(message.into())
    }

    /// As [`Self::refused`], for who is called often: the message is made apart, so that it takes no room there.
    #[cold]
    #[inline(never)]
    pub(crate) fn refused_apart(message: impl FnOnce() -> String) -> Self {
        Self::refused(message())
    }

    /// An exception in the form that an allocator reports: its first line, as libraries of C++ append a backtrace.
    #[cold]
    pub(crate) fn raised(py: Python<'_>, error: &PyErr) -> Self {
        Self::Raised(Box::new(Raised::of(py, error)))
    }

    /// As [`Self::raised`], and where there is a caller in Python it gets the exception itself.
    #[cold]
    pub(crate) fn passed_on(py: Python<'_>, error: PyErr) -> Self {
        let mut raised = Raised::of(py, &error);
        raised.error = Some(error);
        Self::Raised(Box::new(raised))
    }

    /// The name of the Python exception, for `SetError`.
    pub(crate) fn kind(&self) -> &CStr {
        match self {
            Self::Refused(_) | Self::Unordered(_) => c"BufferError",
            Self::OutOfMemory(_) => c"MemoryError",
            Self::Invalid(_) => c"ValueError",
            Self::Driver(error) if error.is_absent() => c"BufferError",
            Self::Driver(error) if error.is_out_of_memory() => c"MemoryError",
            Self::Driver(_) | Self::Panicked(_) => c"RuntimeError",
            Self::Raised(raised) => &raised.kind,
        }
    }

    /// The message: what was found, and what is accepted.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Refused(message) => message.to_string(),
            Self::OutOfMemory(bytes) => format!("could not allocate {bytes} bytes"),
            Self::Driver(error) => error.to_string(),
            Self::Raised(raised) => raised.message.clone(),
            Self::Panicked(message) | Self::Unordered(message) | Self::Invalid(message) => {
                message.clone()
            }
        }
    }
}

impl From<driver::Error> for Error {
    #[cold]
    fn from(error: driver::Error) -> Self {
        Self::Driver(error)
    }
}

impl From<Error> for PyErr {
    #[cold]
    fn from(mut error: Error) -> Self {
        if let Error::Raised(raised) = &mut error
            && let Some(error) = raised.error.take()
        {
            return error;
        }
        let message = error.message();
        match &error {
            Error::Driver(error) if error.is_absent() => PyBufferError::new_err(message),
            Error::Driver(error) if error.is_out_of_memory() => PyMemoryError::new_err(message),
            Error::Driver(error) => Python::attach(|py| cuda_error(py, error)),
            Error::Refused(_) | Error::Unordered(_) => PyBufferError::new_err(message),
            Error::Invalid(_) => PyValueError::new_err(message),
            Error::OutOfMemory(_) => PyMemoryError::new_err(message),
            Error::Panicked(_) | Error::Raised(_) => PyRuntimeError::new_err(message),
        }
    }
}

/// The name of ``cls``, with its module if it has one.
#[pyfunction]
#[pyo3(signature = (cls, /))]
#[cold]
pub(crate) fn type_name(cls: &Bound<'_, PyType>) -> String {
    // PyO3 drops references while it determines the name, so this attaches through PyO3: a table function's attachment is
    // not counted. A class's `__module__` may be any object.
    let name = Python::try_attach(|py| {
        let name = cls.qualname()?.to_string();
        let Ok(module) = cls.module() else {
            return Ok(name);
        };
        // `jax.Array` calls itself `jaxlib._jax.Array`, of the module `jax`.
        if let Some((_, last)) = name.rsplit_once('.')
            && let Ok(Some(found)) = loaded_class(&module, &PyString::new(py, last))
            && found.is(cls)
        {
            return Ok(format!("{module}.{last}"));
        }
        Ok::<_, PyErr>(match module == "builtins" || module == "__main__" {
            true => name,
            false => format!("{module}.{name}"),
        })
    });
    name.and_then(Result::ok)
        .unwrap_or_else(|| "a type".to_owned())
}

/// `error`, raised because of `cause`, if there is one.
pub(crate) fn caused(py: Python<'_>, error: PyErr, cause: impl Into<Option<PyErr>>) -> PyErr {
    error.set_cause(py, cause.into());
    error
}

/// `error` with a note, without which it still says enough.
#[cold]
pub(crate) fn with_note(py: Python<'_>, error: PyErr, note: &str) -> PyErr {
    match (error.value(py)).call_method1(intern!(py, "add_note"), (note,)) {
        Err(other) => unless_urgent(py, other, error),
        Ok(_) => error,
    }
}

/// `error`, unless the `other` one, raised while it was worded or another way was tried, tells of the process.
#[cold]
pub(crate) fn unless_urgent(py: Python<'_>, other: PyErr, error: PyErr) -> PyErr {
    match is_urgent(py, &other) {
        true => other,
        false => error,
    }
}

/// The exception that a failing function of `class` has set.
#[cold]
pub(crate) fn failed(class: &Bound<'_, PyType>, function: &str) -> PyErr {
    PyErr::take(class.py())
        .unwrap_or_else(|| broken(class, function, "failed without an exception"))
}

pub(crate) const EXCEPTION_SET: &str = "succeeded with an exception set";

/// The error for a function of `class` that breaks the rules of its protocol; its cause is the exception that is set, if
/// any.
#[cold]
pub(crate) fn broken(class: &Bound<'_, PyType>, function: &str, how: &str) -> PyErr {
    let cause = PyErr::take(class.py());
    let message = format!("{function} of {} {how}", type_name(class));
    caused(class.py(), PyBufferError::new_err(message), cause)
}

/// The message of an exception, without the C++ backtrace that may follow it.
#[cold]
pub(crate) fn first_line(py: Python<'_>, error: &PyErr) -> String {
    let text = Shown(error.value(py)).to_string();
    text.lines().next().unwrap_or_default().to_owned()
}

/// The error for integers that overflow (`ValueError`), are not integers or too many (`TypeError`). What user code raises
/// else stays.
#[cold]
pub(crate) fn bad_integers(py: Python<'_>, error: &PyErr, message: String) -> PyErr {
    if error.is_instance_of::<PyOverflowError>(py) {
        PyValueError::new_err(format!("{message}; a number is out of range"))
    } else if error.is_instance_of::<PyTypeError>(py) || error.is_instance_of::<PyValueError>(py) {
        PyTypeError::new_err(message)
    } else {
        error.clone_ref(py)
    }
}

/// Whether an exception tells of the process and not of what was asked for: no memory, or an interrupt.
#[cold]
pub(crate) fn is_urgent(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyMemoryError>(py) || !error.is_instance_of::<PyException>(py)
}

/// `dlx.CopyRefused`, which is both classes that the standard allows for `copy=False` (R58).
pub(crate) fn copy_refused_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static TYPE: Once<Py<PyType>> = Once::new();
    TYPE.import(py, "dlx._errors", "CopyRefused")
}

/// A `dlx.CopyRefused` with this message.
#[cold]
pub(crate) fn copy_refused(py: Python<'_>, message: String) -> PyErr {
    match copy_refused_type(py) {
        Ok(class) => PyErr::from_type(class.clone(), message),
        Err(error) => error,
    }
}

/// `dlx.CudaError`: a failed driver call.
pub(crate) fn cuda_error_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static TYPE: Once<Py<PyType>> = Once::new();
    TYPE.import(py, "dlx._errors", "CudaError")
}

/// The `dlx.CudaError` of a failure.
#[cold]
fn cuda_error(py: Python<'_>, error: &driver::Error) -> PyErr {
    let make = || {
        let made = cuda_error_type(py)?.call1((error.to_string(),))?;
        if let driver::Error::Failed { call, code, name } = error {
            made.setattr("call", call)?;
            made.setattr("code", code)?;
            made.setattr("name", name)?;
        }
        Ok(PyErr::from_value(made))
    };
    make().unwrap_or_else(|error: PyErr| error)
}

/// An object whose text is a part of a message.
pub(crate) struct Shown<'a, 'py>(pub(crate) &'a Bound<'py, PyAny>);

impl fmt::Display for Shown<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.str() {
            Ok(text) => f.write_str(&text.to_string_lossy()),
            Err(error) => {
                // What it raises says nothing of what the message is about.
                forgotten(self.0.py(), error);
                f.write_str("<an object that str() refuses>")
            }
        }
    }
}
