//! What a user of dlpark would write: a function that takes a tensor of any library.

#![forbid(unsafe_code)]

use dlpark::python::from_dlpack;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

/// Imports its argument, checks it, and releases it.
#[pyfunction]
fn take(x: &Bound<'_, PyAny>) -> PyResult<()> {
    let tensor = from_dlpack(x.as_borrowed(), None, None)?;
    tensor
        .validate()
        .map(|_| ())
        .map_err(|error| PyBufferError::new_err(error.to_string()))
}

#[pymodule]
fn dlpark_exchange(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(take, module)?)
}
