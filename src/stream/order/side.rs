//! A stream that is to be ordered, in its context.

#![forbid(unsafe_code)]

use super::rules::{implicit, invalidated, isolated};
use crate::driver;
use crate::driver::{Capture, Current, Event, RawStream};
use crate::stream::handle::{Stream, elsewhere};
use crate::types::error::Error;

/// One of the streams to be ordered, with its context current until this is dropped.
pub(super) struct Side<'a> {
    pub(super) stream: &'a Stream,
    pub(super) current: Current,
    pub(super) raw: RawStream,
    pub(super) capture: Capture,
}

impl<'a> Side<'a> {
    pub(super) fn of(stream: &'a Stream) -> Result<Self, Error> {
        let (current, raw) = stream.enter()?;
        let capture = current.capture(raw)?;
        Ok(Self {
            stream,
            current,
            raw,
            capture,
        })
    }

    pub(super) fn record(&self) -> Result<Event, driver::Error> {
        Event::record(&self.current, self.raw, self.capture)
    }

    pub(super) fn wait(&self, event: &Event) -> Result<(), driver::Error> {
        event.wait(self.raw)
    }

    pub(super) fn wait_for(&self, point: &Event) -> Result<(), Error> {
        if self.must_wait_for(point, self.capture)? {
            self.wait(point)?;
        }
        Ok(())
    }

    /// Whether the stream, in the state `capture`, still has to wait for a point; an error if it may not.
    pub(super) fn must_wait_for(&self, point: &Event, capture: Capture) -> Result<bool, Error> {
        match (point.capture(), capture) {
            (None, Capture::None) => {}
            (Some(ahead), Capture::Active(behind)) if ahead == behind => {}
            // A completed event needs no wait, which would invalidate the capture.
            (None, _) if point.is_done()? => return Ok(false),
            (None, Capture::Active(_)) => return Err(isolated(self.stream)),
            (_, Capture::Implicit) => return Err(implicit(self.stream)),
            (_, Capture::Invalidated) => return Err(invalidated(self.stream)),
            (Some(_), _) => {
                return Err(Error::refused(format!(
                    "the tensor becomes ready inside the capture of a graph, which stream {} is not part of; \
                     use it on a stream of that capture, or import it outside",
                    self.stream.handle()
                )));
            }
        }
        Ok(true)
    }

    /// Refuses a stream of another device than it is said to be of (R86).
    pub(super) fn check_context(&self) -> Result<(), Error> {
        let stream = self.stream;
        if stream.is_verified() || self.capture != Capture::None || self.current.owns(self.raw)? {
            return Ok(());
        }
        let found = driver::device_of_stream(stream.device(), self.raw)?;
        if found == stream.device() {
            Ok(())
        } else {
            Err(elsewhere(stream.handle(), found, stream.device()))
        }
    }
}
