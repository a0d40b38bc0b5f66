//! What to pass instead of an object that is not imported. `python/dlx/_hints.py` knows it.

#![forbid(unsafe_code)]

use pyo3::exceptions::{
    PyBufferError, PyException, PyNotImplementedError, PyTypeError, PyValueError,
};
use pyo3::intern;
use pyo3::prelude::*;

use crate::types::error::{caused, type_name};

/// What `x` is and what to pass instead; `None` for an object of a class that dlx does not know.
///
/// Attaches through PyO3, because this runs Python code for a table function, too.
#[cold]
pub(crate) fn of(x: &Bound<'_, PyAny>) -> Option<String> {
    let ask = |py: Python<'_>| {
        let module = py.import("dlx._hints")?;
        module
            .call_method1("tensor", (x,))?
            .extract::<Option<String>>()
    };
    // Without an answer the error says what dlx takes.
    Python::attach(|py| ask(py).unwrap_or(None))
}

/// The error `message` about an answer of `x` that is not what the protocol says, with a hint if there is one.
#[cold]
pub(crate) fn nonsense(x: &Bound<'_, PyAny>, message: String) -> PyErr {
    PyTypeError::new_err(match of(x) {
        Some(hint) => format!("{message}; {hint}"),
        None => message,
    })
}

/// `error`, which a protocol of `x` raised, with a note if there is a hint (R60: the error itself is passed on). By those
/// of Arrow's stream, a column or a table says that it is no tensor: that is a refusal.
#[cold]
pub(crate) fn noted(x: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = x.py();
    if !error.is_instance_of::<PyException>(py) {
        return error;
    }
    let Some(hint) = of(x) else { return error };
    let note = format!("{}: {hint}", type_name(&x.get_type()));
    let is_of_arrow = error.is_instance_of::<PyTypeError>(py)
        || error.is_instance_of::<PyValueError>(py)
        || error.is_instance_of::<PyNotImplementedError>(py);
    if is_of_arrow && matches!(x.hasattr(intern!(py, "__arrow_c_stream__")), Ok(true)) {
        return caused(py, PyBufferError::new_err(note), error);
    }
    // Without the note the error still says enough.
    let _ = error
        .value(py)
        .call_method1(intern!(py, "add_note"), (note,));
    error
}
