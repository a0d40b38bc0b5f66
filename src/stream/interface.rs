//! The stream of `__cuda_array_interface__`: the elements are ready once it has caught up (R148, R149).

#![forbid(unsafe_code)]

use pyo3::exceptions::PyBufferError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};

use crate::abi::DLDevice;
use crate::cpython::call::attribute;
use crate::stream::handle::Stream;

/// The stream that the interface of `x` currently names, if any.
pub(crate) fn stream(x: &Bound<'_, PyAny>, device: DLDevice) -> PyResult<Option<Stream>> {
    let py = x.py();
    let Some(interface) = attribute(x, intern!(py, "__cuda_array_interface__"))? else {
        return Ok(None);
    };
    let value = match interface.cast::<PyDict>() {
        Ok(dict) => dict.get_item(intern!(py, "stream"))?,
        Err(_) => None,
    };
    let handle = handle(value.as_ref())?;
    Ok(handle.map(|handle| Stream::new(handle, device, None)))
}

/// The handle in the entry `stream`; none if it is absent or None.
///
/// # Errors
///
/// `BufferError` for 0, which is ambiguous between the legacy and the per-thread default stream, and for invalid
/// values.
pub(crate) fn handle(value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<i64>> {
    let Some(value) = value.filter(|value| !value.is_none()) else {
        return Ok(None);
    };
    let handle: PyResult<i64> = value.extract();
    match handle {
        Ok(handle) if handle > 0 && !value.is_instance_of::<PyBool>() => Ok(Some(handle)),
        found => {
            let error = PyBufferError::new_err(format!(
                "__cuda_array_interface__ has stream {}, accepted is None, 1 (legacy default), 2 (per-thread \
                 default) or a handle",
                value.repr()?
            ));
            error.set_cause(value.py(), found.err());
            Err(error)
        }
    }
}
