//! Explains in one line why a torch tensor is refused, and what to call instead.

#![forbid(unsafe_code)]

use pyo3::exceptions::{
    PyBufferError, PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;

use super::{TORCH, is_tensor};
use crate::cpython::modules::python;
use crate::types::error::{caused, first_line, or_false, unseen};

/// Explains `error`, which torch or a check raised for `tensor`, if that is torch's: what it is and what to call (R60).
#[cold]
#[inline(never)]
pub(crate) fn explain(tensor: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    Python::attach(|py| {
        if !or_false(is_tensor(tensor)) {
            return error;
        }
        let is_buffer_error = error.is_instance_of::<PyBufferError>(py);
        // Its subclasses report other failures, such as running out of memory.
        let class = error.get_type(py);
        let is_runtime_error = class.is(py.get_type::<PyRuntimeError>())
            || class.is(py.get_type::<PyNotImplementedError>());
        // Raised for a device that DLPack has no number for, and by classes without elements; neither is about gradients.
        let is_other =
            class.is(py.get_type::<PyValueError>()) || class.is(py.get_type::<PyTypeError>());
        if !is_buffer_error && !is_runtime_error && !is_other {
            return error;
        }
        let message = match refusal(tensor, !is_other) {
            // Already explained, when torch was asked for the device.
            Some(message) if is_buffer_error && error.value(py).to_string() == message => {
                return error;
            }
            Some(message) => message,
            None if !is_runtime_error => return error,
            None => format!("torch cannot export the tensor: {}", first_line(py, &error)),
        };
        caused(py, PyBufferError::new_err(message), error)
    })
}

/// The error for a tensor whose memory does not show what it is.
#[cold]
#[inline(never)]
pub(super) fn refused(tensor: &Bound<'_, PyAny>, grad: bool) -> PyErr {
    let message = Python::attach(|_| refusal(tensor, grad));
    PyBufferError::new_err(message.unwrap_or_else(|| {
        "the values of the torch tensor are not those in its memory; pass tensor.clone()".to_owned()
    }))
}

/// What DLPack cannot carry about `tensor`, and what to call.
fn refusal(tensor: &Bound<'_, PyAny>, grad: bool) -> Option<String> {
    let found =
        || python(tensor.py(), TORCH, "refusal", (tensor, grad))?.extract::<Option<String>>();
    // If even the query fails, refuse without an explanation.
    found().map_err(unseen).unwrap_or(None)
}

/// The error for a tensor without memory, whose address is only its offset.
#[cold]
pub(super) fn nowhere(tensor: &Bound<'_, PyAny>) -> PyErr {
    match Python::attach(|_| refusal(tensor, true)) {
        Some(message) => PyBufferError::new_err(message),
        None => outside(),
    }
}

/// The error for a tensor with elements outside its storage.
#[cold]
pub(super) fn outside() -> PyErr {
    PyBufferError::new_err(
        "the torch tensor reaches outside of its storage, which was resized or is being changed by another thread; \
         pass a tensor that lies within its storage",
    )
}
