//! `__array__`, by which pandas, xarray and others make a NumPy array of themselves: in their memory, or a copy.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use super::{array_interface, numpy};
use crate::cpython::call::{attribute, call};
use crate::cpython::interpreter::has_others;
use crate::tensor::snapshot::Snapshot;
use crate::types::error::type_name;

/// The method of `x`; none of a class.
fn method<'py>(x: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    if x.is_instance_of::<PyType>() {
        return Ok(None);
    }
    attribute(x, intern!(x.py(), "__array__"))
}

/// The array that a call returns, and whether nobody else has it.
fn array(
    method: &Bound<'_, PyAny>,
    keywords: Option<&Bound<'_, PyDict>>,
) -> PyResult<(Snapshot, bool)> {
    let array = call(method, keywords)?;
    let base = attribute(&array, intern!(array.py(), "base"))?;
    let is_ours = base.is_some_and(|base| base.is_none()) && !has_others(&array);
    let snapshot = if numpy::is_ndarray(&array) {
        numpy::snapshot(&array)?
    } else {
        array_interface::from_struct(&array)?.ok_or_else(|| {
            PyTypeError::new_err(format!(
                "{method} returned {}, not a numpy.ndarray",
                type_name(&array.get_type())
            ))
        })?
    };
    Ok((snapshot, is_ours))
}

/// Whether two arrays, which are both alive, are the same memory.
fn is_same(one: &Snapshot, other: &Snapshot) -> bool {
    one.meta().data == other.meta().data
}

/// Imports the array that `x` makes without a copy; `None` if it makes none, or none that shows itself to be shared.
pub(super) fn shared(x: &Bound<'_, PyAny>) -> PyResult<Option<Snapshot>> {
    let Some(method) = method(x)? else {
        return Ok(None);
    };
    let keywords = PyDict::new(x.py());
    keywords.set_item(intern!(x.py(), "copy"), false)?;
    let made = || array(&method, Some(&keywords)).map(|(made, _)| made);
    match made().and_then(|one| Ok((made()?, one))) {
        Ok((other, one)) => Ok(is_same(&one, &other).then_some(one)),
        // Before NumPy 2 the method had no such keyword.
        Err(error) if error.is_instance_of::<PyException>(x.py()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Imports the array that `x` makes, marked as a copy unless it is the same memory each time.
pub(super) fn snapshot(x: &Bound<'_, PyAny>) -> PyResult<Option<Snapshot>> {
    let Some(method) = method(x)? else {
        return Ok(None);
    };
    let (one, is_ours) = array(&method, None)?;
    if !is_ours && is_same(&one, &array(&method, None)?.0) {
        return Ok(Some(one));
    }
    Ok(Some(one.copied()?))
}
