//! Streams: which devices have them, what their handles mean there (R70 to R78), and who keeps them alive.

use std::sync::Arc;
use std::thread::{self, ThreadId};

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;

use crate::abi::*;
use crate::cpython::interpreter::PythonOwner;
use crate::driver;
use crate::types::device;
use crate::types::error::Error;

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

#[cold]
pub(crate) fn no_streams(device: DLDevice) -> PyErr {
    PyBufferError::new_err(format!(
        "{} has no streams: only None is accepted",
        device::name(device)
    ))
}

/// The error for a stream of another device than the tensor.
#[cold]
pub(crate) fn elsewhere(stream: &Stream, here: DLDevice) -> Error {
    Error::Invalid(format!(
        "stream {:#x} is one of {}, but the tensor is on {}",
        stream.handle(),
        device::name(here),
        device::name(stream.device())
    ))
}

/// A stream of a device, and what keeps it alive.
#[derive(Clone)]
pub(crate) struct Stream {
    handle: i64,
    device: DLDevice,
    /// The thread whose default stream this is, where the handle names that of whatever thread uses it (H8).
    thread: Option<ThreadId>,
    owner: Option<Arc<PythonOwner>>,
    /// Whether it is known to be one of the device.
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

    /// The default stream, for a device that has streams.
    pub(crate) fn default(device: DLDevice) -> Self {
        Self::new(default(device).unwrap_or(0), device, None)
    }

    /// The default stream that other streams do not wait for where there is one, for a device that has streams.
    pub(crate) fn thread_default(device: DLDevice) -> Self {
        match family(device) {
            Family::Cuda => Self::new(PER_THREAD, device, None),
            Family::Rocm | Family::None => Self::default(device),
        }
    }

    /// What a table's `current_work_stream` answered, where NULL is the default stream (R141).
    pub(crate) fn of_table(handle: i64, device: DLDevice) -> Self {
        match handle {
            0 => Self::default(device),
            handle => Self::new(handle, device, None).verified(),
        }
    }

    /// The same stream, found to be one of its device.
    pub(crate) fn verified(self) -> Self {
        Self {
            verified: true,
            ..self
        }
    }

    /// The stream of the same handle on `device`, which the driver has named.
    pub(crate) fn on(&self, device: DLDevice) -> Self {
        Self {
            device,
            ..self.clone()
        }
        .verified()
    }

    /// Whether it is known to be one of its device: special handles are, and what was asked for.
    pub(crate) fn is_verified(&self) -> bool {
        self.verified
    }

    /// Its handle, as DLPack writes it.
    pub(crate) fn handle(&self) -> i64 {
        self.handle
    }

    /// The device that it belongs to.
    pub(crate) fn device(&self) -> DLDevice {
        self.device
    }

    /// Whether it is one that no program destroys.
    pub(crate) fn is_permanent(&self) -> bool {
        default(self.device) == Some(self.handle)
    }

    /// Whether an object is held that keeps it alive.
    pub(crate) fn is_owned(&self) -> bool {
        self.owner.is_some()
    }

    /// Whether it lives as long as this does.
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
    /// `BufferError` in another thread than that whose default stream this is.
    pub(crate) fn raw(&self) -> Result<driver::RawStream, Error> {
        if self
            .thread
            .is_some_and(|thread| thread != thread::current().id())
        {
            return Err(Error::refused(
                "the stream is the default stream of another thread (2), which has no name in this one",
            ));
        }
        // SAFETY: a stream that an argument or a table named is alive during that call; later uses are of those
        // that the owner here keeps, of those that the caller of `from_dlpack` vouches for by an integer, and of
        // those that no program destroys (S18).
        Ok(unsafe { driver::RawStream::of_handle(self.handle) })
    }
}
