//! Which stream may wait for which while graphs are captured, and what dlx says where one may not.

#![forbid(unsafe_code)]

use std::sync::Arc;

use super::{Joined, Side, Waits};
use crate::driver::{Capture, Event};
use crate::stream::handle::Stream;
use crate::types::error::Error;

impl Waits {
    /// The rules for captures, and that a stream which captures may not be waited for if what is awaited was queued before:
    /// nothing inside the capture can wait for it.
    pub(super) fn allow(
        &self,
        ahead: &Side<'_>,
        behind: &Side<'_>,
        joined: Joined,
    ) -> Result<(), Error> {
        let is_outside = self.outside.iter().any(|stream| stream.is(ahead.stream));
        match ahead.capture {
            Capture::Active(_) if is_outside => Err(refused(ahead.stream, BEFORE)),
            _ => allow(ahead, behind, joined),
        }
    }
}

impl Side<'_> {
    /// The point that the stream has reached; an error if its work has none, or to record it would end a capture.
    pub(super) fn point(&self) -> Result<Arc<Event>, Error> {
        match self.capture {
            Capture::Implicit => return Err(refused(self.stream, IMPLICIT)),
            Capture::Invalidated => return Err(invalidated(self.stream)),
            Capture::None | Capture::Active(_) => {}
        }
        let point = Event::record(&self.current, self.raw, self.capture)?;
        Ok(Arc::new(point))
    }

    /// Whether the stream, in the state `capture`, still has to wait for a point; an error if it may not.
    pub(super) fn must_wait_for(&self, point: &Event, capture: Capture) -> Result<bool, Error> {
        match (point.capture(), capture) {
            (None, Capture::None) => {}
            (Some(ahead), Capture::Active(behind)) if ahead == behind => {}
            // A completed event needs no wait, which would invalidate the capture.
            (None, _) if point.is_done()? => return Ok(false),
            (None, Capture::Active(_)) => return Err(refused(self.stream, ISOLATED)),
            (_, Capture::Implicit) => return Err(refused(self.stream, IMPLICIT)),
            (_, Capture::Invalidated) => return Err(invalidated(self.stream)),
            (Some(_), _) => {
                let own = self.stream;
                return Err(Error::refused(format!(
                    "the tensor becomes ready inside the capture of a graph, which stream {own} is not part of; \
                     use it on a stream of that capture, or import it outside"
                )));
            }
        }
        Ok(true)
    }
}

/// The rules for captures: whether `behind` may wait for `ahead`.
pub(super) fn allow(ahead: &Side<'_>, behind: &Side<'_>, joined: Joined) -> Result<(), Error> {
    let (producer, consumer) = (ahead.stream, behind.stream);
    match (ahead.capture, behind.capture) {
        (Capture::None, Capture::None) => Ok(()),
        (Capture::Active(ahead), Capture::Active(behind)) if ahead == behind => Ok(()),
        (Capture::Implicit, _) => Err(refused(producer, IMPLICIT)),
        (_, Capture::Implicit) => Err(refused(consumer, IMPLICIT)),
        (Capture::Invalidated, _) => Err(invalidated(producer)),
        (_, Capture::Invalidated) => Err(invalidated(consumer)),
        (Capture::Active(_), Capture::Active(_)) => Err(merged(producer, consumer)),
        // The driver reports "not capturing" for the legacy default stream while a non-blocking stream captures.
        (Capture::Active(_), Capture::None) if consumer.is_permanent() => {
            Err(refused(consumer, IMPLICIT))
        }
        (Capture::Active(_), Capture::None) if joined == Joined::Back => Ok(()),
        (Capture::Active(_), Capture::None) => Err(Error::refused(format!(
            "the producer's stream {producer} captures a graph, and stream {consumer} would be drawn into it without \
             coming back (904); use dlx.borrow or Tensor.use, which join the streams again, or the producer's own stream"
        ))),
        (Capture::None, Capture::Active(_)) => Err(refused(consumer, ISOLATED)),
    }
}

/// The error for streams that cannot be ordered without a driver.
#[cold]
pub(super) fn unable(producer: Option<&Stream>, consumer: &Stream, error: Error) -> Error {
    match producer {
        Some(producer) if error.is_absent() => Error::Unordered(format!(
            "the tensor is ready on stream {producer} and stream {consumer} cannot be made to wait for it: {}; import \
             it with stream={consumer}, or export with stream=-1 once the streams are ordered",
            error.message()
        )),
        _ => error,
    }
}

/// What a stream that captures a graph cannot wait for, or be waited for.
const ISOLATED: &str = "captures a graph, and waiting for work outside of it would end the capture (905); import the \
     tensor before the capture begins, or pass stream=-1 if the streams are in order";
const BEFORE: &str = "used the tensor before it began the capture of a graph, and nothing can wait for that inside the \
     capture; use the tensor after the capture, or pass stream=-1 if the streams are in order";
const IMPLICIT: &str = "is the legacy default stream, and using it while another stream captures a graph would end that \
     capture (906); capture with the tensor's own stream, or pass stream=-1";

/// The error for a stream, and why it is refused.
#[cold]
pub(super) fn refused(stream: &Stream, why: &str) -> Error {
    Error::refused(format!("stream {stream} {why}"))
}

#[cold]
pub(super) fn merged(one: &Stream, other: &Stream) -> Error {
    Error::refused(format!(
        "streams {one} and {other} capture two different graphs, and a wait would merge them (902); capture both into \
         one, or pass stream=-1"
    ))
}

#[cold]
pub(super) fn both(consumer: &Stream) -> Error {
    Error::refused(format!(
        "the tensors become ready inside the capture of a graph and outside of it, and stream {consumer} cannot wait \
         for both (905); import those outside before the capture begins, or pass stream=-1 if the streams are in order"
    ))
}

#[cold]
pub(super) fn entered_before(producer: &Stream) -> Error {
    Error::refused(format!(
        "the block was entered before stream {producer} began the capture of a graph, and nothing can wait inside the \
         capture for what the block did before; leave the block before the capture begins, or enter it in the capture"
    ))
}

#[cold]
fn invalidated(stream: &Stream) -> Error {
    Error::refused(format!(
        "the capture of stream {stream} has failed (901); end it first"
    ))
}
