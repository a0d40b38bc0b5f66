//! A stream that is to be ordered, in its context.

#![forbid(unsafe_code)]

use crate::abi::DLDevice;
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
    /// The stream, perhaps in the context of `outer`, which is current.
    pub(super) fn of(stream: &'a Stream, outer: Option<&Current>) -> Result<Self, Error> {
        let (current, raw) = stream.enter(outer)?;
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

    /// The device that the driver reports; `None` while the stream captures: asking for its context would invalidate that.
    pub(super) fn device(&self) -> Result<Option<DLDevice>, driver::Error> {
        let said = self.stream.device();
        match self.capture {
            Capture::None if self.current.owns(self.raw)? => Ok(Some(said)),
            Capture::None => driver::device_of_stream(said, self.raw).map(Some),
            _ => Ok(None),
        }
    }

    /// Refuses a stream of another device than it is said to be of (R86).
    pub(super) fn check_device(&self) -> Result<(), Error> {
        let (stream, said) = (self.stream, self.stream.device());
        if stream.is_verified() {
            return Ok(());
        }
        match self.device()? {
            Some(found) if found != said => Err(elsewhere(stream.handle(), found, said)),
            _ => Ok(()),
        }
    }
}
