//! The stream of `__cuda_array_interface__`: the elements are ready once it has caught up (R148, R149).

#![forbid(unsafe_code)]

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};

use crate::abi::DLDevice;
use crate::cpython::call::attribute;
use crate::cpython::modules::loaded;
use crate::cpython::once::intern;
use crate::stream::handle::Stream;
use crate::types::error::caused;

/// The stream that the interface of `x` currently names, if any; for arrays of Numba without one, the default stream.
pub(crate) fn stream(x: &Bound<'_, PyAny>, device: DLDevice) -> PyResult<Option<Stream>> {
    let py = x.py();
    let Some(interface) = attribute(x, intern!(py, "__cuda_array_interface__"))? else {
        return Ok(None);
    };
    let dict = interface.cast::<PyDict>().ok();
    let value = dict.map_or(Ok(None), |dict| dict.get_item(intern!(py, "stream")))?;
    let handle = handle(x, value.as_ref())?;
    Ok(handle.map(|handle| Stream::new(handle, device, None)))
}

/// The handle in the entry `stream` of the interface of `x`; none if it is absent or None.
///
/// # Errors
///
/// `BufferError` for 0, which is ambiguous between the legacy and the per-thread default stream, and for invalid
/// values.
pub(crate) fn handle(
    x: &Bound<'_, PyAny>,
    value: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<i64>> {
    let Some(value) = value.filter(|value| !value.is_none()) else {
        return of_numba(x);
    };
    let handle: PyResult<i64> = value.extract();
    let is_zero = matches!(handle, Ok(0));
    let default = is_zero.then(|| of_numba(x)).transpose()?.flatten();
    match handle {
        Ok(handle) if handle > 0 && !value.is_instance_of::<PyBool>() => Ok(Some(handle)),
        Ok(_) if default.is_some() => Ok(default),
        found => {
            let error = PyBufferError::new_err(format!(
                "__cuda_array_interface__ has stream {}; expected None, 1 (legacy default), 2 (per-thread \
                 default) or a handle",
                value.repr()?
            ));
            Err(caused(value.py(), error, found.err()))
        }
    }
}

/// The default stream of Numba if `x` is an array of its own, which names no stream while it works on that one.
fn of_numba(x: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    let py = x.py();
    let is_numbas = |class: &Bound<'_, PyAny>| {
        let module = class.getattr(intern!(py, "__module__"));
        let module = module.and_then(|module| module.extract::<String>());
        module.is_ok_and(|module| matches!(module.split('.').next(), Some("numba" | "numba_cuda")))
    };
    if !x.get_type().mro().iter().any(|class| is_numbas(&class)) {
        return Ok(None);
    }
    // Either answer is in order: both streams wait for each other.
    let config = loaded(intern!(py, "numba.core.config"))?;
    let name = intern!(py, "CUDA_PER_THREAD_DEFAULT_STREAM");
    let per_thread = config.map_or(Ok(None), |config| config.getattr_opt(name))?;
    let per_thread = per_thread.map_or(Ok(false), |flag| flag.is_truthy())?;
    Ok(Some(if per_thread { 2 } else { 1 }))
}
