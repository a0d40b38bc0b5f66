//! What the caller of `from_dlpack` asked for, and how a tensor that is there is made to fit.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyAssertionError, PyBufferError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::abi::{DLDevice, DLPACK_FLAG_BITMASK_IS_COPIED};
use crate::copy::by_driver;
use crate::copy::by_driver::On;
use crate::copy::host;
use crate::stream;
use crate::stream::order;
use crate::stream::order::Joined;
use crate::stream::release;
use crate::stream::usage::Release;
use crate::stream::usage::{Producer, Ready, StreamUsage};
use crate::stream::{Stream, Wanted};
use crate::tensor::snapshot::Snapshot;
use crate::types::device;
use crate::types::error::{Error, copy_refused, copy_refused_type};

/// The stream that a consumer will run on.
pub(crate) type StreamOf<'a> = &'a dyn Fn(DLDevice) -> PyResult<i64>;

/// What the caller of `from_dlpack` asked for.
pub(crate) struct Request<'a, 'py> {
    pub(crate) device: Option<DLDevice>,
    pub(crate) copy: Option<bool>,
    pub(crate) stream: Option<&'a Bound<'py, PyAny>>,
    /// The stream that a library works on which the tensor is for, where the caller named none.
    pub(crate) stream_of: Option<StreamOf<'a>>,
    /// How the memory is given back by a stream that is not its producer's.
    pub(crate) release: Release,
}

impl Request<'_, '_> {
    /// The usual: nothing but the tensor.
    pub(crate) const NOTHING: Self = Self {
        device: None,
        copy: None,
        stream: None,
        stream_of: None,
        release: Release::Auto,
    };

    /// Whether nothing is asked for but the tensor.
    #[inline(always)]
    pub(crate) fn is_nothing(&self) -> bool {
        self.device.is_none() && self.copy.is_none() && self.stream.is_none()
    }

    /// Whether, besides, nobody has named the stream that the tensor is for.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.is_nothing() && self.stream_of.is_none()
    }

    /// What the argument `stream` asks for on the device where the tensor is, or is wanted.
    pub(crate) fn wanted(&self, device: DLDevice) -> PyResult<Wanted> {
        match (self.stream, self.stream_of) {
            (None, Some(stream_of)) if stream::has_streams(device) => {
                let handle = stream_of(device)?;
                Ok(Wanted::Stream(Stream::of_table(handle, device)))
            }
            _ => stream::wanted(self.stream, device),
        }
    }

    /// The order of a tensor of a producer whose stream is known, by one event from that to the stream that was
    /// asked for; none where they are the same.
    pub(crate) fn order(&self, wanted: Wanted, producer: Producer) -> Result<StreamUsage, Error> {
        let ready = match wanted {
            Wanted::NoOrder => Ready::Now,
            Wanted::Stream(stream) => {
                if !stream.is(&producer.then) {
                    release::sweep();
                    order::after(&stream, &producer.then, Joined::Never)?;
                }
                return Ok(self.ready_on(stream, Some(producer)));
            }
            Wanted::Unset => {
                release::sweep();
                Ready::Point(order::point(&producer.then)?)
            }
        };
        Ok(StreamUsage {
            ready,
            release: self.release,
            producer: Some(producer),
            ..StreamUsage::default()
        })
    }

    /// Whether it takes more than the tensor itself and a copy by the CPU.
    pub(crate) fn moves(&self, here: DLDevice) -> bool {
        let there = self.device.unwrap_or(here);
        there != here || (self.copy == Some(true) && !host::can(here))
    }

    /// The stream that a copy to `there` runs on.
    pub(crate) fn on(&self, there: DLDevice) -> PyResult<On> {
        Ok(match self.wanted(there)? {
            Wanted::Unset => On::Current,
            Wanted::NoOrder => On::Unordered,
            Wanted::Stream(stream) => {
                let stream = stream::check_device(stream)?;
                // A handle is vouched for by who asks for the release behind it.
                On::asked(stream, self.release == Release::None)
            }
        })
    }

    /// What a tensor waits for that is ready on the stream that was asked for.
    pub(crate) fn ready_on(&self, stream: Stream, producer: Option<Producer>) -> StreamUsage {
        let used = (self.release != Release::None).then(|| stream.clone());
        StreamUsage {
            ready: Ready::After(stream),
            used,
            release: self.release,
            producer,
            ..StreamUsage::default()
        }
    }
}

/// A tensor that dlx holds already, as requested; its stream has been looked at.
pub(crate) fn again(
    py: Python<'_>,
    snapshot: Snapshot,
    request: &Request<'_, '_>,
) -> PyResult<Snapshot> {
    let here = snapshot.meta().device;
    let there = request.device.unwrap_or(here);
    match request.copy {
        Some(false) if there != here => Err(elsewhere(py, here, there)),
        Some(true) => by_driver::copied(py, &snapshot, there, request.on(there)?),
        _ if there != here => by_driver::copied(py, &snapshot, there, request.on(there)?),
        _ => Ok(snapshot),
    }
}

/// The error for a copy that nobody asked for, but a move takes.
#[cold]
pub(crate) fn elsewhere(py: Python<'_>, here: DLDevice, there: DLDevice) -> PyErr {
    let (here, there) = (device::name(here), device::name(there));
    let message = format!("copy=False, but the tensor is on {here} and not on {there}");
    copy_refused(py, message)
}

/// Whether a producer says by this exception that it does not copy, so that dlx may. An assertion is about what it was
/// asked for: torch and Paddle take no stream for what is on the CPU, and have no devices that they were not built for;
/// nor does JAX, by a plain `RuntimeError`.
pub(crate) fn is_refusal(py: Python<'_>, error: &PyErr) -> bool {
    let refused = copy_refused_type(py).is_ok_and(|class| error.is_instance(py, class));
    !refused
        && (error.is_instance_of::<PyBufferError>(py)
            || error.is_instance_of::<PyValueError>(py)
            || is_about_builds(py, error))
}

/// Whether a producer says by this exception that it was built without what it was asked for.
pub(crate) fn is_about_builds(py: Python<'_>, error: &PyErr) -> bool {
    // Subclasses of it are about something else.
    let is_runtime_error = error.get_type(py).is(py.get_type::<PyRuntimeError>());
    is_runtime_error || error.is_instance_of::<PyAssertionError>(py)
}

/// The refusal of a producer where dlx does not move the tensor either: the producer's own (R60), but what is about its
/// build says nothing to who asked for a device.
pub(crate) fn refused_by_both(
    py: Python<'_>,
    error: PyErr,
    here: DLDevice,
    there: DLDevice,
) -> Result<(), PyErr> {
    match by_driver::check(here, there) {
        Ok(()) => Ok(()),
        Err(why) if is_about_builds(py, &error) => {
            let explained = PyErr::from(why);
            explained.set_cause(py, Some(error));
            Err(explained)
        }
        Err(_) => Err(error),
    }
}

/// The copy that was asked for, or the refusal of one that nobody asked for (R58, R59).
pub(crate) fn finish(
    py: Python<'_>,
    snapshot: Snapshot,
    request: &Request<'_, '_>,
) -> PyResult<Snapshot> {
    let copied = snapshot.has(DLPACK_FLAG_BITMASK_IS_COPIED);
    match request.copy {
        Some(false) if copied => Err(copy_refused(
            py,
            "copy=False, but the producer made a copy".to_owned(),
        )),
        _ => again(py, snapshot, request),
    }
}
