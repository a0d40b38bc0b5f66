//! Checks pyarrow's arrays of tensors (`arrow.fixed_shape_tensor`), and single tensors of them, before calling their
//! `__dlpack__`. Arrow's own protocol is `adapters/arrow.rs`.
//!
//! An array exports a null inside a row as the number in its place; it refuses a row that is null itself. A single tensor
//! whose type has a permutation exports the strides of another shape; the array of it exports the right ones.

#![forbid(unsafe_code)]

use pyo3::exceptions::PyBufferError;
use pyo3::ffi::PyTypeObject;
use pyo3::intern;
use pyo3::prelude::*;

use crate::cpython::call::attribute;
use crate::cpython::lookup::is_in_type;

/// Refuses what pyarrow would export wrongly, whatever `sys.modules` says.
#[inline(always)]
pub(crate) fn check(x: &Bound<'_, PyAny>) -> PyResult<()> {
    if is_foreign(x.py(), x.get_type_ptr()) {
        Ok(())
    } else {
        of_unknown(x)
    }
}

/// Whether [`check`] has no question for objects of `class`: they lack what all of extension types have.
#[inline(always)]
pub(crate) fn is_foreign(py: Python<'_>, class: *mut PyTypeObject) -> bool {
    is_in_type(class, intern!(py, "from_storage")) == Some(false)
}

/// As [`check`], for what may be of Arrow's canonical type of tensors.
#[cold]
#[inline(never)]
fn of_unknown(x: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = x.py();
    let Some(kind) = attribute(x, intern!(py, "type"))? else {
        return Ok(());
    };
    let name = attribute(&kind, intern!(py, "extension_name"))?;
    if !name.map_or(Ok(false), |name| name.eq("arrow.fixed_shape_tensor"))? {
        return Ok(());
    }
    match attribute(x, intern!(py, "storage"))? {
        Some(storage) => check_array(&storage),
        None => check_tensor(&kind),
    }
}

/// Refuses an array with nulls inside its rows.
fn check_array(storage: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = storage.py();
    let elements = storage.call_method0(intern!(py, "flatten"))?;
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
fn check_tensor(kind: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = kind.py();
    let order: Option<Vec<usize>> = kind.getattr(intern!(py, "permutation"))?.extract()?;
    if order.is_none_or(|order| order.is_sorted()) {
        return Ok(());
    }
    Err(PyBufferError::new_err(
        "the FixedShapeTensorScalar has a permutation, for which pyarrow exports wrong strides; pass the array that it is \
         of, dlx.from_dlpack(array)[i]",
    ))
}
