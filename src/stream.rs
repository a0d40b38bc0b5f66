//! What a `stream` argument means on a device (R70 to R78).

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt};

use crate::abi::*;
use crate::device;
use crate::snapshot::Snapshot;

/// `stream=-1`: no order is asked for (R76).
pub(crate) const NO_SYNC: i64 = -1;

/// The stream that DLPack's handles name on a device.
enum Family {
    /// 1 legacy default, 2 per-thread default, above 2 a handle (R73, R74).
    Cuda,
    /// 0 default, above 2 a handle (R75).
    Rocm,
    /// No stream, or none that an integer could name.
    None,
}

fn family(device: DLDevice) -> Family {
    match device.device_type {
        kDLCUDA | kDLCUDAManaged => Family::Cuda,
        kDLROCM => Family::Rocm,
        _ => Family::None,
    }
}

/// Whether work on the device runs in streams that an integer names.
pub(crate) fn has_streams(device: DLDevice) -> bool {
    !matches!(family(device), Family::None)
}

/// The default stream of a device, as a consumer names it explicitly (R84).
pub(crate) fn default(device: DLDevice) -> Option<i64> {
    match family(device) {
        Family::Cuda => Some(1),
        Family::Rocm => Some(0),
        Family::None => None,
    }
}

/// The integer of a stream argument that was given.
pub(crate) fn integer(stream: &Bound<'_, PyAny>) -> PyResult<i64> {
    if stream.is_instance_of::<PyBool>() || !stream.is_instance_of::<PyInt>() {
        return Err(PyTypeError::new_err(format!(
            "stream must be an int or None, not {}",
            stream.get_type().name()?
        )));
    }
    stream
        .extract()
        .map_err(|_| PyValueError::new_err("stream is no stream handle, it exceeds 64 bits"))
}

/// The stream, checked for the device.
pub(crate) fn checked(stream: i64, device: DLDevice) -> PyResult<i64> {
    let accepted = match family(device) {
        Family::Cuda if stream == NO_SYNC || stream > 0 => return Ok(stream),
        Family::Rocm if stream == NO_SYNC || stream == 0 || stream > 2 => return Ok(stream),
        Family::Cuda => "-1 (no order), 1 (legacy default), 2 (per-thread default) and handles",
        Family::Rocm => "-1 (no order), 0 (default) and handles above 2",
        Family::None => {
            return Err(PyBufferError::new_err(format!(
                "stream is {stream}, but {} has no streams: only None is accepted",
                device::name(device)
            )));
        }
    };
    Err(PyValueError::new_err(format!(
        "stream is {stream}; accepted on {} are {accepted}",
        device::name(device)
    )))
}

/// What an importer passes to a producer on `device`: nothing where there are no streams (R71), and the
/// default stream explicitly where none was named (R83, R84).
pub(crate) fn for_import(
    stream: Option<&Bound<'_, PyAny>>,
    device: DLDevice,
) -> PyResult<Option<i64>> {
    let Some(stream) = stream else {
        return Ok(default(device));
    };
    let stream = integer(stream)?;
    if stream == NO_SYNC && !has_streams(device) {
        return Ok(None);
    }
    checked(stream, device).map(Some)
}

/// Checks that `snapshot` can be given to a consumer on `stream` without a dependency getting lost.
///
/// dlx does not wait on streams itself: elements that become ready on one stream are exported for that
/// stream, or without order on the consumer's own word (-1).
pub(crate) fn for_export(stream: Option<&Bound<'_, PyAny>>, snapshot: &Snapshot) -> PyResult<()> {
    let device = snapshot.memo().device;
    let consumer = match stream {
        None => default(device),
        Some(stream) => Some(checked(integer(stream)?, device)?),
    };
    ordered(consumer, snapshot)
}

/// Whether work on `consumer` comes after what the elements of `snapshot` wait for.
pub(crate) fn ordered(consumer: Option<i64>, snapshot: &Snapshot) -> PyResult<()> {
    match (snapshot.memo().stream, consumer) {
        (None | Some(NO_SYNC), _) | (_, None | Some(NO_SYNC)) => Ok(()),
        (Some(ready), Some(consumer)) if ready == consumer => Ok(()),
        (Some(ready), Some(consumer)) => Err(PyBufferError::new_err(format!(
            "the tensor is ready on stream {ready} and dlx does not order stream {consumer} after it; \
             import it with stream={consumer}, or export with stream=-1 once the streams are ordered"
        ))),
    }
}

/// The stream that C consumers of dlx tensors run on: the legacy default one, or NULL where there is none
/// (R139, R141).
pub(crate) fn current_work_stream(device: DLDevice) -> i64 {
    default(device).unwrap_or(0)
}
