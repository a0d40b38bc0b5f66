//! oneAPI: memory that the CPU may be able to read, and queues in place of streams.
//!
//! DLPack calls every SYCL array `kDLOneAPI`, wherever its memory is. dpctl and dpnp add two attributes: `usm_type`,
//! which the runtime reports for the address, and `sycl_queue`.

#![forbid(unsafe_code)]

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyInt;

use crate::abi::{DLDevice, kDLOneAPI};
use crate::cpython::call::attribute;
use crate::cpython::once::intern;
use crate::stream::NO_SYNC;
use crate::types::error::type_name;

/// Whether the device is a oneAPI device.
pub(crate) fn is_one(device: DLDevice) -> bool {
    device.device_type == kDLOneAPI
}

/// The queue to wait for before the CPU reads the memory of `x` in place; `None` if it cannot read it. It can read
/// unified shared memory, unless that belongs to the device alone.
pub(crate) fn host_queue<'py>(x: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let kind = attribute(x, intern!(x.py(), "usm_type"))?;
    let kind = kind.and_then(|kind| kind.extract::<String>().ok());
    match kind.as_deref() {
        Some("host" | "shared") => own_queue(x),
        _ => Ok(None),
    }
}

/// The queue that work on `x` is submitted to.
fn own_queue<'py>(x: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let queue = attribute(x, intern!(x.py(), "sycl_queue"))?;
    Ok(queue.filter(|queue| !queue.is_none()))
}

/// The queue that the caller passed as `stream`, if `x` is requested on oneAPI and has queues of that class.
///
/// `None` without queues: the argument then means as little as on any device without streams.
///
/// # Errors
///
/// `TypeError` for anything but a queue, integers included: oneAPI has no handles.
pub(crate) fn queue<'a, 'py>(
    x: &Bound<'py, PyAny>,
    stream: Option<&'a Bound<'py, PyAny>>,
    there: DLDevice,
) -> PyResult<Option<&'a Bound<'py, PyAny>>> {
    let Some(stream) = stream.filter(|_| is_one(there)) else {
        return Ok(None);
    };
    let Some(own) = own_queue(x)? else {
        return Ok(None);
    };
    let class = own.get_type();
    if stream.is_instance(&class)? {
        return Ok(Some(stream));
    }
    if stream.is_exact_instance_of::<PyInt>() && stream.eq(NO_SYNC)? {
        return Ok(None);
    }
    Err(PyTypeError::new_err(format!(
        "stream is of type {}; {there} expects a queue ({}), None or -1 (no order)",
        type_name(&stream.get_type()),
        type_name(&class)
    )))
}

/// Whether `stream` is a queue, which the exporter of a tensor on `here` has already been given.
pub(crate) fn is_queue(stream: Option<&Bound<'_, PyAny>>, here: DLDevice) -> bool {
    is_one(here) && stream.is_some_and(|stream| !stream.is_instance_of::<PyInt>())
}
