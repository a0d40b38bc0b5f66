//! `__array__`, by which pandas, xarray and others make a NumPy array of themselves: in their memory, or a copy.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use super::numpy;
use crate::copy::host;
use crate::cpython::call::attribute;
use crate::cpython::interpreter::has_others;
use crate::cpython::lookup::is_in_type;
use crate::cpython::modules::python;
use crate::cpython::once::intern;
use crate::tensor::snapshot::Snapshot;
use crate::types::error::type_name;

/// What tells of these in Python.
const MODULE: &str = "dlx._libraries.array_method";

/// The method of `x`; none of a class, nor where it is None.
fn method<'py>(x: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    if x.is_instance_of::<PyType>() {
        return Ok(None);
    }
    let method = attribute(x, intern!(x.py(), "__array__"))?;
    Ok(method.filter(|method| !method.is_none()))
}

/// The array that a call of the method of `x` returns, and whether it is a copy: it owns its memory, and nobody else has
/// it. One of other numbers than those of the `dtype` of `x` is refused.
fn array(
    x: &Bound<'_, PyAny>,
    method: &Bound<'_, PyAny>,
    keywords: Option<&Bound<'_, PyDict>>,
    dtype: Option<&Bound<'_, PyAny>>,
) -> PyResult<(Snapshot, bool)> {
    let array = method.call((), keywords)?;
    let is_ours = !has_others(&array) && owns_memory(&array)?;
    // A subclass may mean more than its memory, as a mask does.
    if !numpy::is_native(&array)? {
        return Err(PyTypeError::new_err(format!(
            "{method} returned {}, not a numpy.ndarray that dlx reads",
            type_name(&array.get_type())
        )));
    }
    let made = array.getattr(intern!(x.py(), "dtype"))?;
    if let Some(dtype) = dtype.filter(|dtype| !dtype.is_none() && !dtype.is(&made)) {
        let why = python(x.py(), MODULE, "refusal", (x, dtype, made))?;
        if let Some(why) = why.extract::<Option<String>>()? {
            return Err(PyBufferError::new_err(why));
        }
    }
    Ok((numpy::snapshot(&array)?, is_ours))
}

/// What a function of `python/dlx/_libraries/array_method.py` answers about `x`.
pub(super) fn asked<'py>(x: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    python(x.py(), MODULE, name, (x,))
}

/// Whether the class of `x` has the dtypes of several columns and not one of its own.
fn is_table(x: &Bound<'_, PyAny>) -> bool {
    let (py, class) = (x.py(), x.get_type_ptr());
    is_in_type(class, intern!(py, "dtypes")) == Some(true)
        && is_in_type(class, intern!(py, "dtype")) != Some(true)
}

/// Whether the memory is the array's own: one without a base may also be somebody's whom it does not name.
fn owns_memory(array: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = array.py();
    let Some(flags) = attribute(array, intern!(py, "flags"))? else {
        return Ok(false);
    };
    let owns = attribute(&flags, intern!(py, "owndata"))?;
    owns.map_or(Ok(false), |owns| owns.is_truthy())
}

/// Whether two arrays, which are both alive, are the same memory.
fn is_same(one: &Snapshot, other: &Snapshot) -> bool {
    one.meta().data == other.meta().data
}

/// Imports the array that `x` makes without a copy; `None` if it makes none, or none that shows itself to be shared.
pub(super) fn shared(x: &Bound<'_, PyAny>) -> PyResult<Option<Snapshot>> {
    let py = x.py();
    // Those of tables take more time than what `snapshot` calls.
    let Some(method) = method(x)?.filter(|_| !is_table(x)) else {
        return Ok(None);
    };
    let keywords = PyDict::new(py);
    keywords.set_item(intern!(py, "copy"), false)?;
    let dtype = attribute(x, intern!(py, "dtype"))?;
    let made = |dtype| array(x, &method, Some(&keywords), dtype);
    let both = made(dtype.as_ref()).and_then(|(one, is_ours)| {
        // What nobody else has is a copy.
        let is_shared = !is_ours && is_same(&one, &made(None)?.0);
        Ok(is_shared.then_some(one))
    });
    // A refusal (`RuntimeError` in polars), or no such keyword: it is of NumPy 2.
    let is_refusal = |error: &PyErr| {
        error.get_type(py).is(py.get_type::<PyRuntimeError>())
            || error.is_instance_of::<PyBufferError>(py)
            || error.is_instance_of::<PyTypeError>(py)
            || error.is_instance_of::<PyValueError>(py)
    };
    match both {
        Err(error) if is_refusal(&error) => Ok(None),
        both => both,
    }
}

/// Imports the array that `x` makes, or a copy of it unless it is the same memory each time.
pub(crate) fn snapshot(x: &Bound<'_, PyAny>) -> PyResult<Option<Snapshot>> {
    let Some(method) = method(x)? else {
        return Ok(None);
    };
    let (method, dtype) = match is_table(x) {
        true => asked(x, "matrix")?.extract()?,
        false => (method, attribute(x, intern!(x.py(), "dtype"))?),
    };
    let (one, is_ours) = array(x, &method, None, dtype.as_ref())?;
    if is_ours {
        return Ok(Some(one.copied()?));
    }
    if is_same(&one, &array(x, &method, None, None)?.0) {
        return Ok(Some(one));
    }
    // Somebody keeps it, and may write to it again.
    Ok(Some(host::compact(x.py(), &one)?))
}
