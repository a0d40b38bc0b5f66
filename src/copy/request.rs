//! The request of a `from_dlpack` call, and how an imported tensor is made to satisfy it.

#![forbid(unsafe_code)]

use std::cell::OnceCell;
use std::sync::Arc;

use pyo3::exceptions::{PyAssertionError, PyBufferError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::abi::{DLDevice, DLPACK_FLAG_BITMASK_IS_COPIED};
use crate::copy::by_driver::{self, On};
use crate::copy::host;
use crate::stream::order::{self, Joined};
use crate::stream::usage::{Producer, Ready, Release, StreamUsage};
use crate::stream::{self, Stream, Wanted, WorkStream};
use crate::tensor::snapshot::Snapshot;
use crate::types::device;
use crate::types::error::{Error, caused, copy_refused, copy_refused_type};

/// Whoever will use a tensor.
pub(crate) trait Consumer {
    /// The stream that it will run on.
    fn stream(&self, device: DLDevice) -> PyResult<i64>;

    /// Hears that the tensor is ready on this stream, which was made to wait.
    fn ready(&self, _device: DLDevice, _handle: i64) -> PyResult<()> {
        Ok(())
    }

    /// Hears who names the stream that the tensor is ready on, which was not made to wait.
    fn note_library(&self, _device: DLDevice, _work_stream: WorkStream) -> PyResult<()> {
        Ok(())
    }
}

impl<F: Fn(DLDevice) -> PyResult<i64>> Consumer for F {
    fn stream(&self, device: DLDevice) -> PyResult<i64> {
        self(device)
    }
}

/// Who names the stream that a tensor is for. It is asked once: the answer may be Python's.
pub(crate) struct Asked<'a, 'py> {
    by: By<'a, 'py>,
    known: OnceCell<(DLDevice, Wanted)>,
}

enum By<'a, 'py> {
    Argument(&'a Bound<'py, PyAny>),
    Consumer(&'a dyn Consumer),
}

impl<'a, 'py> Asked<'a, 'py> {
    /// The argument `stream=`.
    pub(crate) fn by_argument(stream: &'a Bound<'py, PyAny>) -> Self {
        Self {
            by: By::Argument(stream),
            known: OnceCell::new(),
        }
    }

    /// Whoever the tensor is for.
    pub(crate) fn by_consumer(consumer: &'a dyn Consumer) -> Self {
        Self {
            by: By::Consumer(consumer),
            known: OnceCell::new(),
        }
    }

    fn wanted(&self, device: DLDevice) -> PyResult<Wanted> {
        if let Some((of, wanted)) = self.known.get()
            && *of == device
        {
            return Ok(wanted.clone());
        }
        let wanted = match self.by {
            By::Argument(stream) => stream::wanted(Some(stream), device)?,
            By::Consumer(consumer) if stream::has_streams(device) => {
                Wanted::Stream(Stream::of_table(consumer.stream(device)?, device))
            }
            By::Consumer(_) => Wanted::Unset,
        };
        // What was asked of another device stays.
        self.known.set((device, wanted.clone())).ok();
        Ok(wanted)
    }
}

/// The arguments of a `from_dlpack` call.
pub(crate) struct Request<'a, 'py> {
    pub(crate) device: Option<DLDevice>,
    pub(crate) copy: Option<bool>,
    /// The argument `stream=`, or whoever the tensor is for.
    pub(crate) stream: Option<&'a Asked<'a, 'py>>,
    /// How memory that is used on a stream other than its producer's is released.
    pub(crate) release: Release,
    /// Whether nothing but memory of the CPU is of use, so that `__dlpack__` may come before `__dlpack_device__`.
    pub(crate) at_once: bool,
}

impl<'a, 'py> Request<'a, 'py> {
    /// No request but the tensor, the common case.
    pub(crate) const NOTHING: Self = Self::of(None, None);

    /// The tensor on this device, if one is given, and copied or not.
    pub(crate) const fn of(device: Option<DLDevice>, copy: Option<bool>) -> Self {
        Self {
            device,
            copy,
            stream: None,
            release: Release::Auto,
            at_once: false,
        }
    }

    /// Whether the request has no device, copy or stream.
    #[inline(always)]
    pub(crate) fn is_nothing(&self) -> bool {
        self.device.is_none() && self.copy.is_none() && self.argument().is_none()
    }

    /// The argument `stream=`.
    #[inline(always)]
    pub(crate) fn argument(&self) -> Option<&'a Bound<'py, PyAny>> {
        match self.stream?.by {
            By::Argument(stream) => Some(stream),
            By::Consumer(_) => None,
        }
    }

    /// The stream requested for `device`, where the tensor is or will be.
    pub(crate) fn wanted(&self, device: DLDevice) -> PyResult<Wanted> {
        self.stream
            .map_or(Ok(Wanted::Unset), |asked| asked.wanted(device))
    }

    /// The stream requested for a tensor on `here`, unless that goes elsewhere, where the stream belongs (R85).
    pub(crate) fn wanted_at(&self, here: DLDevice) -> PyResult<Wanted> {
        match self.device {
            Some(there) if there != here => Ok(Wanted::Unset),
            _ => self.wanted(here),
        }
    }

    /// Orders a tensor whose producer's stream is known: one event from there to the requested stream, none if they are
    /// the same.
    pub(crate) fn order(
        &self,
        wanted: Wanted,
        producer: Producer,
    ) -> Result<Arc<StreamUsage>, Error> {
        let ready = match wanted {
            Wanted::NoOrder => Ready::Now,
            Wanted::Stream(stream) => {
                order::after(&stream, &producer.then, Joined::Never)?;
                Ready::After(stream)
            }
            Wanted::Unset => Ready::Point(order::point(&producer.then)?),
        };
        Ok(self.usage(ready, Some(producer)))
    }

    /// The usage of a tensor on `here` for which nothing is awaited, on the requested stream if there is one.
    pub(crate) fn order_nothing(
        &self,
        wanted: Wanted,
        here: DLDevice,
    ) -> PyResult<Arc<StreamUsage>> {
        let ready = match wanted {
            Wanted::Stream(stream) => Ready::After(stream::check_device(stream, here)?),
            // Nothing is awaited; the ends of later uses are noted here.
            Wanted::NoOrder | Wanted::Unset => Ready::Now,
        };
        Ok(self.usage(ready, None))
    }

    /// Whether the request takes more than the tensor itself or a copy on the CPU.
    pub(crate) fn moves(&self, here: DLDevice) -> bool {
        let there = self.device.unwrap_or(here);
        there != here || (self.copy == Some(true) && !host::can(here))
    }

    /// The stream for a copy to `there`.
    pub(crate) fn on(&self, there: DLDevice) -> PyResult<On> {
        // Asking for a release after a stream vouches for its handle.
        On::of(self.wanted(there)?, there, self.release == Release::None)
    }

    /// The usage of a tensor that is `ready` then, perhaps on the requested stream.
    pub(crate) fn usage(&self, ready: Ready, producer: Option<Producer>) -> Arc<StreamUsage> {
        Arc::new(StreamUsage {
            ready,
            is_used: self.release != Release::None,
            release: self.release,
            producer,
            ..StreamUsage::default()
        })
    }
}

/// Copies or moves a tensor that dlx already holds, as requested. Its order has been settled.
pub(crate) fn again(
    py: Python<'_>,
    snapshot: Snapshot,
    request: &Request<'_, '_>,
) -> PyResult<Snapshot> {
    let here = snapshot.meta().device;
    let there = request.device.unwrap_or(here);
    match request.copy {
        Some(false) if there != here => Err(elsewhere(py, here, there)),
        Some(false) | None if there == here => Ok(snapshot),
        _ => by_driver::copied(py, &snapshot, there, request.on(there)?),
    }
}

/// The error for a move with `copy=False`.
#[cold]
pub(crate) fn elsewhere(py: Python<'_>, here: DLDevice, there: DLDevice) -> PyErr {
    let message = format!("copy=False, but the tensor is on {here} and not on {there}");
    copy_refused(py, message)
}

/// Whether this exception is a producer declining to copy, so that dlx may. Assertions count: torch and Paddle assert
/// that CPU tensors get no stream, and that they were built for the device. For the latter JAX raises a plain
/// `RuntimeError`.
pub(crate) fn is_refusal(py: Python<'_>, error: &PyErr, there: DLDevice) -> bool {
    let refused = copy_refused_type(py).is_ok_and(|class| error.is_instance(py, class));
    !refused
        && (error.is_instance_of::<PyBufferError>(py)
            || error.is_instance_of::<PyValueError>(py)
            || is_about_builds(py, error, there))
}

/// Whether this exception says that the producer was built without the device `there`.
pub(crate) fn is_about_builds(py: Python<'_>, error: &PyErr, there: DLDevice) -> bool {
    // No build lacks the CPU, and subclasses of `RuntimeError` mean something else.
    let is_runtime_error = error.get_type(py).is(py.get_type::<PyRuntimeError>());
    (is_runtime_error && there != device::CPU) || error.is_instance_of::<PyAssertionError>(py)
}

/// Fails if dlx cannot make the move that the producer refused: with the producer's own error (R60), unless that is
/// about its build, which does not help a caller who asked for a device.
pub(crate) fn refused_by_both(
    py: Python<'_>,
    error: PyErr,
    here: DLDevice,
    there: DLDevice,
) -> Result<(), PyErr> {
    match by_driver::direction(here, there) {
        Ok(_) => Ok(()),
        Err(why) if is_about_builds(py, &error, there) => Err(caused(py, why.into(), error)),
        Err(_) => Err(error),
    }
}

/// Copies or moves as requested, or refuses a copy that the producer made despite `copy=False` (R58, R59).
pub(crate) fn finish(
    py: Python<'_>,
    snapshot: Snapshot,
    request: &Request<'_, '_>,
) -> PyResult<Snapshot> {
    if request.copy == Some(false) && snapshot.has(DLPACK_FLAG_BITMASK_IS_COPIED) {
        let message = "copy=False, but the producer made a copy";
        return Err(copy_refused(py, message.to_owned()));
    }
    again(py, snapshot, request)
}
