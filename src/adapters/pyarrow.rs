//! Checks pyarrow's arrays of tensors before calling their `__dlpack__`, which exports a null inside a row as the number
//! beneath it. It refuses a row that is null itself.

#![forbid(unsafe_code)]

use pyo3::exceptions::PyBufferError;
use pyo3::intern;
use pyo3::prelude::*;

use crate::cpython::modules::{is_loaded, loaded_class};

/// Refuses an array of tensors with nulls inside its rows; does not import pyarrow.
#[inline(always)]
pub(crate) fn check(x: &Bound<'_, PyAny>) -> PyResult<()> {
    if is_loaded(intern!(x.py(), "pyarrow"))? {
        of_loaded(x)
    } else {
        Ok(())
    }
}

#[cold]
#[inline(never)]
fn of_loaded(x: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = x.py();
    let class = loaded_class(intern!(py, "pyarrow"), intern!(py, "FixedShapeTensorArray"))?;
    if !class.is_some_and(|class| x.is_instance(&class).unwrap_or(false)) {
        return Ok(());
    }
    let elements = x
        .getattr(intern!(py, "storage"))?
        .call_method0(intern!(py, "flatten"))?;
    let nulls: usize = elements.getattr(intern!(py, "null_count"))?.extract()?;
    if nulls == 0 {
        return Ok(());
    }
    Err(PyBufferError::new_err(format!(
        "the FixedShapeTensorArray has {nulls} nulls inside its rows, which DLPack cannot represent; pass \
         x.storage.flatten().fill_null(value), its elements in one row, and reshape the result"
    )))
}
