//! What a tensor of TensorFlow must be asked before its `__dlpack__` is called: that of one whose elements are no
//! numbers (strings, variants, resources) ends the process.

#![forbid(unsafe_code)]

use pyo3::exceptions::PyBufferError;
use pyo3::intern;
use pyo3::prelude::*;

use crate::cpython::modules::{is_loaded, loaded};
use crate::types::dtype::DType;

/// Refuses a tensor of TensorFlow of whose dtype DLPack has no name; TensorFlow is not imported for it.
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
    // Whatever stands in for TensorFlow in `sys.modules` need not have a class there.
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
