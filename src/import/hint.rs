//! What dlx says of an object that it cannot import, and what to pass instead, which `python/dlx/_libraries/hints.py` knows.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyAttributeError, PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::cpython::modules::python;
use crate::types::error::{caused, or_false, type_name, unless_urgent, unseen};

const HINTS: &str = "dlx._libraries.hints";

/// What `x` is and what to pass instead; `None` for an object of a class that dlx does not know.
///
/// Attaches through PyO3, because this runs Python code for a table function, too.
#[cold]
fn of(x: &Bound<'_, PyAny>, name: &str) -> Option<String> {
    let ask = |py: Python<'_>| python(py, HINTS, name, (x,))?.extract::<Option<String>>();
    // Without an answer the error says what dlx takes.
    Python::attach(|py| ask(py).map_err(unseen).unwrap_or(None))
}

/// The error `message` about an answer of `x` that is not what the protocol says, with a hint if there is one.
#[cold]
pub(crate) fn nonsense(x: &Bound<'_, PyAny>, message: String) -> PyErr {
    PyTypeError::new_err(match of(x, "tensor") {
        Some(hint) => format!("{message}; {hint}"),
        None => message,
    })
}

/// `error`, which a protocol of `x` raised, with a note if there is a hint (R60: the error itself is passed on). By one
/// that has Arrow's stream, a column or a table says that it is no tensor: that is a refusal.
#[cold]
pub(crate) fn noted(x: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = x.py();
    if !error.is_instance_of::<PyException>(py) {
        return error;
    }
    let noted = || {
        let said = (x, type_name(&x.get_type()), error.value(py));
        Ok::<_, PyErr>(PyErr::from_value(python(py, HINTS, "noted", said)?))
    };
    // Without the note the error still says enough.
    noted().unwrap_or_else(|other| unless_urgent(py, other, error))
}

/// The error for a class passed as a tensor: what it has under the names of a protocol wants an instance.
#[cold]
pub(crate) fn not_a_class(x: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = x.py();
    if x.is_instance_of::<PyType>() && error.is_instance_of::<PyTypeError>(py) {
        caused(py, no_protocol(x, "__dlpack__"), error)
    } else {
        error
    }
}

/// The error for an object without the protocol (R61): what it is and what to pass, or what dlx takes.
#[cold]
pub(crate) fn no_protocol(x: &Bound<'_, PyAny>, missing: &str) -> PyErr {
    let hint = of(x, "missing");
    let error = PyAttributeError::new_err(format!(
        "{} has no {missing}; {}",
        type_name(&x.get_type()),
        hint.as_deref().unwrap_or("expected a tensor")
    ));
    // A property of the class may have raised.
    Python::attach(|py| match x.getattr(missing) {
        Err(other) if !other.is_instance_of::<PyAttributeError>(py) => other,
        Err(cause) if or_false(x.get_type().hasattr(missing)) => caused(py, error, cause),
        _ => error,
    })
}
