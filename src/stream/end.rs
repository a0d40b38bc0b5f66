//! What a tensor remembers of a use that is over: a point that a stream must pass before memory is released or read again.
//! What is done when a block is left is `leave` of `stream/order.rs`.

#![forbid(unsafe_code)]

use std::sync::Arc;

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use crate::cpython::interpreter::{self, Pending, attach_uncounted, blocking};
use crate::driver::{Capture, Event};
use crate::stream::handle::Stream;
use crate::stream::order::Waits;
use crate::types::error;

/// The end of a use.
#[derive(Clone)]
pub(crate) enum End {
    /// A point in the work of a stream, which the stream need not outlive.
    Point(Arc<Event>),
    /// All work queued on the stream. The driver refused to record a point, as it does while the stream captures, in a
    /// host function, or without memory; that says nothing about the work. A point that was recorded later may be part of a
    /// capture that another thread began meanwhile, and so never be passed.
    Unrecorded(Stream, Option<Arc<Event>>),
    /// Unknown for ever: the stream was destroyed, although its work may still go on.
    Never,
}

impl End {
    /// The end of all work queued on `stream` so far; `None` if nothing runs any more.
    ///
    /// While the stream captures, this is the end of all work by the time the capture has ended. Of the graph it says
    /// nothing: that may be launched at any later time.
    pub(crate) fn of(stream: &Stream) -> Option<Self> {
        Self::recorded(stream, |point| Self::Point(Arc::new(point)))
    }

    /// As [`Self::of`]; if the point is recorded, the `end` of that.
    fn recorded(stream: &Stream, end: impl FnOnce(Event) -> Self) -> Option<Self> {
        let recorded = blocking(|| {
            let (current, raw) = stream.in_this_thread().enter(None)?;
            match current.capture(raw)? {
                Capture::None => Ok(Some(Event::record(&current, raw, Capture::None)?)),
                // What is queued becomes part of a graph.
                _ => Ok(None),
            }
        });
        match recorded {
            Ok(Some(point)) => Some(end(point)),
            Err(error::Error::Driver(error)) if error.is_final() => None,
            Err(error::Error::Driver(error)) if error.is_stream_gone() => {
                report(stream);
                Some(Self::Never)
            }
            Ok(None) | Err(_) => Some(Self::Unrecorded(stream.clone(), None)),
        }
    }

    /// Whether both are the same end.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Point(one), Self::Point(other)) => Arc::ptr_eq(one, other),
            (Self::Unrecorded(one, _), Self::Unrecorded(other, _)) => one.is(other),
            (Self::Never, Self::Never) => true,
            _ => false,
        }
    }

    /// Adds this end to what a stream is to wait for.
    pub(crate) fn collect(&self, waits: &mut Waits) {
        match self {
            Self::Point(point) | Self::Unrecorded(_, Some(point)) => waits.add_point(point),
            Self::Unrecorded(stream, None) => waits.add_outside(stream),
            Self::Never => {}
        }
    }

    /// The end, with its point recorded if the driver now permits that; `None` if it has been passed, or nothing runs any
    /// more.
    pub(crate) fn left(self) -> Option<Self> {
        match &self {
            Self::Unrecorded(stream, None) => Self::later(stream),
            Self::Never => Some(self),
            Self::Point(point) | Self::Unrecorded(_, Some(point)) => {
                match (blocking(|| point.is_done()), self) {
                    (Ok(is_done), end) => (!is_done).then_some(end),
                    (Err(error), _) if error.is_final() => None,
                    (Err(_), Self::Unrecorded(stream, _)) => Some(Self::Unrecorded(stream, None)),
                    (Err(_), end) => Some(end),
                }
            }
        }
    }

    /// As [`Self::of`], for an end that could not be recorded before.
    fn later(stream: &Stream) -> Option<Self> {
        Self::recorded(stream, |point| {
            let point = point.perhaps_captured();
            let is_outside = matches!(stream.in_this_thread().capture(), Ok(Capture::None));
            Self::Unrecorded(stream.clone(), is_outside.then(|| Arc::new(point)))
        })
    }

    /// Whether it is unknown for ever.
    pub(crate) fn is_never(&self) -> bool {
        matches!(self, Self::Never)
    }

    /// The point, if it is recorded.
    pub(crate) fn point(&self) -> Option<&Arc<Event>> {
        match self {
            Self::Point(point) => Some(point),
            Self::Unrecorded(_, point) => point.as_ref(),
            Self::Never => None,
        }
    }
}

/// Reports a stream that was destroyed before a tensor that used it, to `sys.unraisablehook`.
#[cold]
fn report(stream: &Stream) {
    let message = format!(
        "stream {:#x} was destroyed before a tensor that used it died; the memory is kept, because nothing tells when \
         the stream's work ends. Keep a stream alive as long as its tensors, or pass a dlx.Stream of its object",
        stream.handle()
    );
    attach_uncounted(|py| {
        let _pending = Pending::save(py);
        // PyO3 must count the attachment where an exception is dropped.
        Python::attach(|py| interpreter::unraisable(py, PyBufferError::new_err(message)));
    });
}
