//! Checks pyarrow's arrays of tensors, and single tensors of them, before calling their `__dlpack__`.
//!
//! An array exports a null inside a row as the number in its place; it refuses a row that is null itself. A single tensor
//! whose type has a permutation exports the strides of another shape.

#![forbid(unsafe_code)]

use pyo3::exceptions::PyBufferError;
use pyo3::ffi::PyTypeObject;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::cpython::lookup::{is_in_type, is_subtype};
use crate::cpython::modules::{is_loaded, loaded_class};

/// Refuses what pyarrow would export wrongly; does not import pyarrow.
#[inline(always)]
pub(crate) fn check(x: &Bound<'_, PyAny>) -> PyResult<()> {
    if !lacks_type(x.py(), x.get_type_ptr()) && is_loaded(intern!(x.py(), "pyarrow"))? {
        of_loaded(x)
    } else {
        Ok(())
    }
}

/// Whether [`check`] has no question for objects of `class`, loaded or not.
pub(crate) fn is_foreign(class: &Bound<'_, PyType>) -> PyResult<bool> {
    if lacks_type(class.py(), class.as_type_ptr()) {
        return Ok(true);
    }
    let py = class.py();
    for name in [
        intern!(py, "FixedShapeTensorArray"),
        intern!(py, "FixedShapeTensorScalar"),
    ] {
        match loaded_class(intern!(py, "pyarrow"), name)? {
            Some(checked) if !is_subtype(class.as_type_ptr(), &checked) => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Both classes have a `type`; to ask CPython's cache for it takes less than to find a module.
#[inline(always)]
fn lacks_type(py: Python<'_>, class: *mut PyTypeObject) -> bool {
    is_in_type(class, intern!(py, "type")) == Some(false)
}

#[cold]
#[inline(never)]
fn of_loaded(x: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = x.py();
    if is_one(x, intern!(py, "FixedShapeTensorArray"))? {
        check_array(x)
    } else if is_one(x, intern!(py, "FixedShapeTensorScalar"))? {
        check_tensor(x)
    } else {
        Ok(())
    }
}

/// Whether `x` is of pyarrow's class of this name.
fn is_one(x: &Bound<'_, PyAny>, name: &Bound<'_, PyString>) -> PyResult<bool> {
    let class = loaded_class(intern!(x.py(), "pyarrow"), name)?;
    Ok(class.is_some_and(|class| is_subtype(x.get_type_ptr(), &class)))
}

/// Refuses an array with nulls inside its rows.
fn check_array(x: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = x.py();
    let elements = x
        .getattr(intern!(py, "storage"))?
        .call_method0(intern!(py, "flatten"))?;
    let nulls: usize = elements.getattr(intern!(py, "null_count"))?.extract()?;
    if nulls == 0 {
        return Ok(());
    }
    Err(PyBufferError::new_err(format!(
        "the FixedShapeTensorArray has nulls inside its rows ({nulls}), which DLPack cannot represent; pass \
         x.storage.flatten().fill_null(value), its elements in one row, and reshape the result"
    )))
}

/// Refuses a single tensor whose dimensions are not in the order of its elements.
fn check_tensor(x: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = x.py();
    let kind = x.getattr(intern!(py, "type"))?;
    let order: Option<Vec<usize>> = kind.getattr(intern!(py, "permutation"))?.extract()?;
    if order.is_none_or(|order| order.is_sorted()) {
        return Ok(());
    }
    Err(PyBufferError::new_err(
        "the FixedShapeTensorScalar has a permutation, for which pyarrow exports wrong strides; pass the array that it is \
         of, dlx.from_dlpack(array)[i]",
    ))
}
