//! A stream that is to be ordered, in its context.

#![forbid(unsafe_code)]

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
