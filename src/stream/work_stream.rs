//! `current_work_stream` of an exchange table: the stream that a library currently works on.

use std::ffi::c_int;
use std::ptr::null_mut;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::abi::{DLDevice, DLPackCurrentWorkStream};
use crate::driver;
use crate::stream::handle::device_of_streams;
use crate::types::error::{EXCEPTION_SET, caused};

/// The `current_work_stream` of a foreign table.
#[derive(Clone, Copy)]
pub(crate) struct WorkStream(DLPackCurrentWorkStream);

impl WorkStream {
    /// Wraps the function of a table.
    pub(crate) fn new(function: DLPackCurrentWorkStream) -> Self {
        Self(function)
    }

    /// Whether both belong to the same library.
    pub(crate) fn is(self, other: Self) -> bool {
        std::ptr::fn_addr_eq(self.0, other.0)
    }

    /// The handle for `device`; 0 for NULL.
    pub(crate) fn get(self, _: Python<'_>, device: DLDevice) -> PyResult<i64> {
        let device = device_of_streams(device);
        // Some libraries leave it unwritten if there is no stream.
        let mut out = null_mut();
        // SAFETY: the foreign table's function, called attached; the out-pointer is a local.
        let code = unsafe { (self.0)(device.device_type, device.device_id, &mut out) };
        // SAFETY: attached.
        if code == 0 && unsafe { ffi::PyErr_Occurred() }.is_null() {
            return Ok(out.addr() as i64);
        }
        // The caller's attachment may be one that PyO3 does not count.
        Err(Python::attach(|py| failure(py, device, code)))
    }
}

/// The error for a function that sets an exception and returns 0, or of a library that names no stream on `device`: its own,
/// unless the cause is a missing driver, which torch reports in a dozen lines.
#[cold]
fn failure(py: Python<'_>, device: DLDevice, code: c_int) -> PyErr {
    let error = PyErr::take(py);
    if code == 0 {
        let message = format!("current_work_stream {EXCEPTION_SET}");
        return caused(py, PyBufferError::new_err(message), error);
    }
    let error = error.unwrap_or_else(|| {
        PyBufferError::new_err("current_work_stream failed without an exception")
    });
    match driver::of(device) {
        Err(why) if why.is_absent() => {
            let explained =
                PyBufferError::new_err(format!("there is no stream on {device}: {why}"));
            caused(py, explained, error)
        }
        _ => error,
    }
}
