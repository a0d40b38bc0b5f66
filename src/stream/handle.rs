//! Streams: which devices have them, the meaning of their handles (R70 to R78), and their owners.

use std::fmt;
use std::sync::{Arc, Weak};
use std::thread::{self, ThreadId};

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;

use crate::abi::*;
use crate::cpython::interpreter::{PythonOwner, blocking};
use crate::driver::{self, Capture, Context, Current};
use crate::types::device;
use crate::types::error::Error;

/// `stream=-1`: no ordering (R76).
pub(crate) const NO_SYNC: i64 = -1;

/// The handles of the default streams on CUDA.
const LEGACY: i64 = 1;
const PER_THREAD: i64 = 2;

/// The default stream of a device, as consumers pass it explicitly (R84); `None` if it has no streams, or none that an
/// integer can name.
pub(crate) fn default(device: DLDevice) -> Option<i64> {
    match device.device_type {
        kDLCUDA | kDLCUDAManaged => Some(LEGACY),
        kDLROCM => Some(0),
        _ => None,
    }
}

/// The device whose streams work on memory of `device`: managed memory has none of its own.
pub(super) fn device_of_streams(device: DLDevice) -> DLDevice {
    match device.device_type {
        kDLCUDAManaged => device::of(kDLCUDA, device.device_id),
        _ => device,
    }
}

/// Whether the device has streams with integer handles.
pub(crate) fn has_streams(device: DLDevice) -> bool {
    default(device).is_some()
}

/// Whether work on the device has to be ordered: by streams, or, on one of a later DLPack, nobody has said how.
#[inline(always)]
pub(crate) fn needs_order(device: DLDevice) -> bool {
    has_streams(device) || device::is_later(device)
}

/// The handle, if it is valid for the device.
pub(crate) fn checked(stream: i64, device: DLDevice) -> PyResult<i64> {
    let accepted = match default(device) {
        // 1 legacy default, 2 per-thread default, above 2 a handle (R73, R74).
        Some(LEGACY) if stream == NO_SYNC || stream > 0 => return Ok(stream),
        Some(LEGACY) => "-1 (no order), 1 (legacy default), 2 (per-thread default) or a handle",
        // 0 default, above 2 a handle (R75).
        Some(_) if stream == NO_SYNC || stream == 0 || stream > 2 => return Ok(stream),
        Some(_) => "-1 (no order), 0 (default) or a handle above 2",
        None => {
            return Err(PyBufferError::new_err(format!(
                "stream is {stream}, but {}",
                none_of(device)
            )));
        }
    };
    Err(PyValueError::new_err(format!(
        "stream is {stream}; expected on {device}: {accepted}"
    )))
}

#[cold]
pub(crate) fn no_streams(device: DLDevice) -> PyErr {
    PyBufferError::new_err(none_of(device))
}

fn none_of(device: DLDevice) -> String {
    if device::is_later(device) {
        format!(
            "{device} is a device of a DLPack after 1.3, of which dlx knows no streams; expected None"
        )
    } else {
        format!("{device} has no streams; expected None")
    }
}

/// The error for a stream of `there`, another device than the tensor's.
#[cold]
pub(crate) fn elsewhere(handle: i64, there: DLDevice, tensor: DLDevice) -> Error {
    Error::Invalid(format!(
        "stream {handle:#x} is one of {there}, but the tensor is on {tensor}"
    ))
}

/// The context that default streams of `device` belong to now, if it is not the primary one: one that the driver made, or
/// a green context.
fn context(device: DLDevice) -> Option<Context> {
    // Without a driver there is none.
    let driver = driver::of(device).ok()?;
    driver.other_context(device.device_id).ok().flatten()
}

/// A stream of a device, and the object that keeps it alive.
#[derive(Clone)]
pub(crate) struct Stream {
    handle: i64,
    /// Never managed memory.
    device: DLDevice,
    /// For the per-thread default stream, whose handle means another stream in each thread: its thread (H8).
    thread: Option<ThreadId>,
    /// For a default stream, whose handle means another stream in each context: its context, if that is not the primary
    /// one (H8).
    context: Option<Context>,
    owner: Option<Arc<PythonOwner>>,
    /// Whether it is known to belong to its device.
    is_verified: bool,
}

/// A stream, without keeping alive what keeps it alive. An upgraded [`Weak`] of its tensor's streams would not do: they are
/// released by whoever holds them alone.
#[derive(Clone)]
pub(crate) struct WeakStream(Stream, Option<Weak<PythonOwner>>);

impl WeakStream {
    /// The stream, unless it had an owner that is gone.
    pub(crate) fn upgrade(&self) -> Option<Stream> {
        let owner = match &self.1 {
            Some(owner) => Some(owner.upgrade()?),
            None => None,
        };
        let stream = self.0.clone();
        Some(Stream { owner, ..stream })
    }
}

/// In messages, a stream is its handle in DLPack's numbering.
impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}

impl Stream {
    /// The stream of a handle that was checked for `device`.
    pub(crate) fn new(handle: i64, device: DLDevice, owner: Option<PythonOwner>) -> Self {
        let device = device_of_streams(device);
        let is_thread = handle == PER_THREAD && default(device) == Some(LEGACY);
        let is_default = (0..=PER_THREAD).contains(&handle);
        Self {
            thread: is_thread.then(|| thread::current().id()),
            context: if is_default { context(device) } else { None },
            owner: owner.map(Arc::new),
            is_verified: is_default,
            ..Self::plain(handle, device)
        }
    }

    /// A stream that is known to belong to `device`, and that its handle alone tells from others (see [`Self::is_plain`]).
    pub(crate) fn plain(handle: i64, device: DLDevice) -> Self {
        Self {
            handle,
            device: device_of_streams(device),
            thread: None,
            context: None,
            owner: None,
            is_verified: true,
        }
    }

    /// The default stream of a device that has streams.
    pub(crate) fn default(device: DLDevice) -> Self {
        Self::new(default(device).unwrap_or(0), device, None)
    }

    /// The number of the stream from a table's `current_work_stream`; NULL is the default stream (R141).
    pub(crate) fn number(handle: i64, device: DLDevice) -> i64 {
        let default = || default(device).unwrap_or(0);
        if handle == 0 { default() } else { handle }
    }

    /// The stream from a table's `current_work_stream`.
    pub(crate) fn of_table(handle: i64, device: DLDevice) -> Self {
        Self::new(Self::number(handle, device), device, None).verified()
    }

    /// The same stream, marked as belonging to its device.
    pub(crate) fn verified(self) -> Self {
        Self {
            is_verified: true,
            ..self
        }
    }

    /// The same stream, which is known to be one of `device`.
    pub(crate) fn on(self, device: DLDevice) -> Self {
        Self { device, ..self }.verified()
    }

    /// Whether work on memory of `device` can be queued on the stream: managed memory takes streams of every GPU.
    pub(crate) fn serves(&self, device: DLDevice) -> bool {
        let there = device_of_streams(device);
        there == self.device || there != device && there.device_type == self.device.device_type
    }

    /// Whether the stream is known to belong to its device: the driver was asked, or the handle is a special one.
    pub(crate) fn is_verified(&self) -> bool {
        self.is_verified
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

    /// The same stream, which that does not keep alive.
    pub(crate) fn downgrade(&self) -> WeakStream {
        let owner = self.owner.as_ref().map(Arc::downgrade);
        let stream = Self {
            owner: None,
            ..self.clone()
        };
        WeakStream(stream, owner)
    }

    /// Whether the stream lives at least as long as this value.
    pub(crate) fn is_kept(&self) -> bool {
        self.owner.is_some() || self.is_permanent()
    }

    /// Whether both are the same stream.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.handle == other.handle
            && self.device == other.device
            && self.thread == other.thread
            && self.context == other.context
    }

    /// Makes the context of the stream current, perhaps that of `outer`, which is.
    ///
    /// # Errors
    ///
    /// As for [`Self::raw`]; those of the driver.
    pub(crate) fn enter(
        &self,
        outer: Option<&Current>,
    ) -> Result<(Current, driver::RawStream), Error> {
        let raw = self.raw()?;
        Ok((driver::enter(self.device, self.context, outer)?, raw))
    }

    /// What the stream does with the work queued on it.
    ///
    /// # Errors
    ///
    /// As for [`Self::enter`].
    pub(crate) fn capture(&self) -> Result<Capture, Error> {
        blocking(|| {
            let (current, raw) = self.enter(None)?;
            Ok(current.capture(raw)?)
        })
    }

    /// The stream, or in place of that of another thread the legacy default stream, whose points come after its work.
    pub(crate) fn in_this_thread(&self) -> Self {
        let named = self.clone();
        match self.raw() {
            Ok(_) => named,
            Err(_) => Self {
                handle: LEGACY,
                thread: None,
                ..named
            },
        }
    }

    /// Whether [`Self::plain`] makes the same stream of its handle.
    pub(crate) fn is_plain(&self) -> bool {
        self.is_verified()
            && self.thread.is_none()
            && self.context.is_none()
            && self.owner.is_none()
    }

    /// The stream as a driver takes it.
    ///
    /// # Errors
    ///
    /// `BufferError` for another thread's default stream.
    pub(crate) fn raw(&self) -> Result<driver::RawStream, Error> {
        let is_other = |thread| thread != thread::current().id();
        if self.thread.is_some_and(is_other) {
            return Err(Error::refused(
                "the stream is the default stream of another thread (2), which has no name in this one",
            ));
        }
        // SAFETY: a stream given by an argument or a table is alive during that call. Streams used later are kept
        // alive by `owner`, vouched for by the caller who passed an integer to `from_dlpack`, or indestructible (S18).
        Ok(unsafe { driver::RawStream::of_handle(self.handle) })
    }
}
