//! Streams: which devices have them, the meaning of their handles (R70 to R78), and their owners.

use std::sync::Arc;
use std::thread::{self, ThreadId};

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;

use crate::abi::*;
use crate::cpython::interpreter::PythonOwner;
use crate::driver;
use crate::types::device;
use crate::types::error::Error;

/// `stream=-1`: no ordering (R76).
pub(crate) const NO_SYNC: i64 = -1;

/// How DLPack numbers the streams of a device.
enum Family {
    /// 1 legacy default, 2 per-thread default, above 2 a handle (R73, R74).
    Cuda,
    /// 0 default, above 2 a handle (R75).
    Rocm,
    /// No streams, or none that an integer can name.
    None,
}

fn family(device: DLDevice) -> Family {
    match device.device_type {
        kDLCUDA | kDLCUDAManaged => Family::Cuda,
        kDLROCM => Family::Rocm,
        _ => Family::None,
    }
}

/// Whether the device has streams with integer handles.
pub(crate) fn has_streams(device: DLDevice) -> bool {
    !matches!(family(device), Family::None)
}

/// The default stream of a device, as consumers pass it explicitly (R84).
pub(crate) fn default(device: DLDevice) -> Option<i64> {
    match family(device) {
        Family::Cuda => Some(1),
        Family::Rocm => Some(0),
        Family::None => None,
    }
}

/// The handle, if it is valid for the device.
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

#[cold]
pub(crate) fn no_streams(device: DLDevice) -> PyErr {
    PyBufferError::new_err(format!(
        "{} has no streams: only None is accepted",
        device::name(device)
    ))
}

/// The error for a stream of a device other than the tensor's.
#[cold]
pub(crate) fn elsewhere(stream: &Stream, here: DLDevice) -> Error {
    Error::Invalid(format!(
        "stream {:#x} is one of {}, but the tensor is on {}",
        stream.handle(),
        device::name(here),
        device::name(stream.device())
    ))
}

/// A stream of a device, and the object that keeps it alive.
#[derive(Clone)]
pub(crate) struct Stream {
    handle: i64,
    device: DLDevice,
    /// For the per-thread default stream, whose handle means another stream in each thread: its thread (H8).
    thread: Option<ThreadId>,
    owner: Option<Arc<PythonOwner>>,
    /// Whether the stream is known to belong to the device.
    verified: bool,
}

/// The handle of the calling thread's default stream on CUDA.
const PER_THREAD: i64 = 2;

impl Stream {
    /// The stream of a handle that was checked for `device`.
    pub(crate) fn new(handle: i64, device: DLDevice, owner: Option<PythonOwner>) -> Self {
        let is_thread = handle == PER_THREAD && matches!(family(device), Family::Cuda);
        Self {
            handle,
            device,
            thread: is_thread.then(|| thread::current().id()),
            owner: owner.map(Arc::new),
            verified: (0..=2).contains(&handle),
        }
    }

    /// The default stream of a device that has streams.
    pub(crate) fn default(device: DLDevice) -> Self {
        Self::new(default(device).unwrap_or(0), device, None)
    }

    /// The non-blocking default stream if there is one, else the default stream, of a device that has streams.
    pub(crate) fn thread_default(device: DLDevice) -> Self {
        match family(device) {
            Family::Cuda => Self::new(PER_THREAD, device, None),
            Family::Rocm | Family::None => Self::default(device),
        }
    }

    /// The stream from a table's `current_work_stream`; NULL is the default stream (R141).
    pub(crate) fn of_table(handle: i64, device: DLDevice) -> Self {
        match handle {
            0 => Self::default(device),
            handle => Self::new(handle, device, None).verified(),
        }
    }

    /// The same stream, marked as belonging to its device.
    pub(crate) fn verified(self) -> Self {
        Self {
            verified: true,
            ..self
        }
    }

    /// The stream of the same handle on `device`, as reported by the driver.
    pub(crate) fn on(&self, device: DLDevice) -> Self {
        Self {
            device,
            ..self.clone()
        }
        .verified()
    }

    /// Whether the stream is known to belong to its device: the driver was asked, or the handle is a special one.
    pub(crate) fn is_verified(&self) -> bool {
        self.verified
    }

    /// The handle in DLPack's numbering.
    pub(crate) fn handle(&self) -> i64 {
        self.handle
    }

    /// The stream's device.
    pub(crate) fn device(&self) -> DLDevice {
        self.device
    }

    /// Whether the stream is one that programs cannot destroy.
    pub(crate) fn is_permanent(&self) -> bool {
        default(self.device) == Some(self.handle)
    }

    /// Whether this holds an object that keeps the stream alive.
    pub(crate) fn is_owned(&self) -> bool {
        self.owner.is_some()
    }

    /// Whether the stream lives at least as long as this value.
    pub(crate) fn is_kept(&self) -> bool {
        self.owner.is_some() || self.is_permanent()
    }

    /// Whether both are the same stream.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.handle == other.handle && self.device == other.device && self.thread == other.thread
    }

    /// The stream as a driver takes it.
    ///
    /// # Errors
    ///
    /// `BufferError` for another thread's default stream.
    pub(crate) fn raw(&self) -> Result<driver::RawStream, Error> {
        if self
            .thread
            .is_some_and(|thread| thread != thread::current().id())
        {
            return Err(Error::refused(
                "the stream is the default stream of another thread (2), which has no name in this one",
            ));
        }
        // SAFETY: a stream given by an argument or a table is alive during that call. Streams used later are kept
        // alive by `owner`, vouched for by the caller who passed an integer to `from_dlpack`, or indestructible (S18).
        Ok(unsafe { driver::RawStream::of_handle(self.handle) })
    }
}
