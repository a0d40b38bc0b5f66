//! Checks TensorFlow tensors before calling their `__dlpack__`, which aborts the process if the elements are not numbers
//! (strings, variants, resources).

#![forbid(unsafe_code)]

use pyo3::exceptions::PyBufferError;
use pyo3::intern;
use pyo3::prelude::*;

use crate::cpython::modules::{is_loaded, loaded};
use crate::types::dtype::DType;

/// Refuses a TensorFlow tensor with a dtype that DLPack lacks; does not import TensorFlow.
#[inline(always)]
pub(crate) fn check(x: &Bound<'_, PyAny>) -> PyResult<()> {
    if is_loaded(intern!(x.py(), "tensorflow"))? {
        of_loaded(x)
    } else {
        Ok(())
    }
}

#[cold]
#[inline(never)]
fn of_loaded(x: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = x.py();
    let Some(tensorflow) = loaded(intern!(py, "tensorflow"))? else {
        return Ok(());
    };
    // A stand-in for TensorFlow in `sys.modules` need not have a class there.
    let Some(tensor) = tensorflow.getattr_opt(intern!(py, "Tensor"))? else {
        return Ok(());
    };
    if !x.is_instance(&tensor).unwrap_or(false) {
        return Ok(());
    }
    let dtype = x.getattr(intern!(py, "dtype"))?;
    let Err(error) = DType::of(&dtype) else {
        return Ok(());
    };
    let refused = PyBufferError::new_err(format!(
        "the TensorFlow tensor has elements of {}; accepted are bool, integers, floating point and complex numbers",
        dtype.str()?
    ));
    refused.set_cause(py, Some(error));
    Err(refused)
}
