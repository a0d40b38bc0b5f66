//! Ordering of streams: an event recorded on the producing stream, which the consuming stream waits for.
//!
//! Whatever would invalidate a graph capture is refused before such a call; the driver is asked for the captures first. It
//! is called detached from the interpreter: a call waits where a stream's queue is full, perhaps of a callback that needs
//! the interpreter.

#![forbid(unsafe_code)]

mod rules;

use std::sync::Arc;

use rules::{allow, both, entered_before, merged, refused, unable};

use crate::abi::DLDevice;
use crate::cpython::interpreter::blocking;
use crate::driver::{self, Capture, Current, Event, RawStream};
use crate::stream::handle::{Stream, elsewhere};
use crate::types::error::Error;

/// Whether the waiting stream is joined back before the end of the block that uses it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joined {
    Back,
    Never,
}

/// What a stream is to wait for: each stream and each point once.
#[derive(Default)]
pub(crate) struct Waits {
    streams: Vec<Stream>,
    /// Those of which earlier work is awaited: it was queued before any capture, so no graph has it.
    outside: Vec<Stream>,
    points: Vec<Arc<Event>>,
}

impl Waits {
    /// Adds all work queued on `stream` by the time of [`all`].
    pub(crate) fn add(&mut self, stream: &Stream) {
        if !self.streams.iter().any(|known| known.is(stream)) {
            self.streams.push(stream.clone());
        }
    }

    /// As [`Self::add`], for work that was queued before a capture that may still go on.
    pub(crate) fn add_outside(&mut self, stream: &Stream) {
        self.add(stream);
        self.outside.push(stream.clone());
    }

    /// Adds a point.
    pub(crate) fn add_point(&mut self, point: &Arc<Event>) {
        if !self.points.iter().any(|known| Arc::ptr_eq(known, point)) {
            self.points.push(point.clone());
        }
    }

    /// Blocks until all of it is done.
    ///
    /// # Errors
    ///
    /// `BufferError` if a part of it is captured; errors of the driver.
    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        if self.points.iter().any(|point| point.capture().is_some()) {
            return Err(Error::refused(
                "the tensor becomes ready inside the capture of a graph, whose work has no end yet; synchronize after \
                 the capture",
            ));
        }
        for point in &self.points {
            blocking(|| point.synchronize())?;
        }
        self.streams.iter().try_for_each(synchronize)
    }
}

/// One of the streams to be ordered, with its context current until this is dropped.
struct Side<'a> {
    stream: &'a Stream,
    current: Current,
    raw: RawStream,
    capture: Capture,
}

impl<'a> Side<'a> {
    /// The stream, perhaps in the context of `outer`, which is current.
    fn of(stream: &'a Stream, outer: Option<&Current>) -> Result<Self, Error> {
        let (current, raw) = stream.enter(outer)?;
        let capture = current.capture(raw)?;
        Ok(Self {
            stream,
            current,
            raw,
            capture,
        })
    }

    /// The device that the driver reports; `None` while the stream captures: asking for its context would invalidate that.
    fn device(&self) -> Result<Option<DLDevice>, driver::Error> {
        let said = self.stream.device();
        match self.capture {
            Capture::None if self.current.owns(self.raw)? => Ok(Some(said)),
            Capture::None => driver::device_of_stream(said, self.raw).map(Some),
            _ => Ok(None),
        }
    }

    /// Refuses a stream of another device than it is said to be of (R86).
    fn check_device(&self) -> Result<(), Error> {
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

/// Makes `consumer` wait for all work queued on `producer`; does nothing if they are the same stream (R81).
///
/// # Errors
///
/// `BufferError` if that would invalidate a capture; errors of the driver.
pub(crate) fn after(consumer: &Stream, producer: &Stream, joined: Joined) -> Result<(), Error> {
    if consumer.is(producer) {
        return Ok(());
    }
    let mut waits = Waits::default();
    waits.add(producer);
    all(consumer, &waits, joined).map(|_| ())
}

/// Makes `consumer` wait for a point.
///
/// # Errors
///
/// As for [`after`].
pub(crate) fn wait(consumer: &Stream, point: &Arc<Event>) -> Result<(), Error> {
    let mut waits = Waits::default();
    waits.add_point(point);
    all(consumer, &waits, Joined::Never).map(|_| ())
}

/// Makes `consumer` wait for all of `waits` but itself; returns what that captures from then on, `None` if nobody had to be
/// asked.
///
/// # Errors
///
/// As for [`after`].
pub(crate) fn all(
    consumer: &Stream,
    waits: &Waits,
    joined: Joined,
) -> Result<Option<Capture>, Error> {
    let others = || (waits.streams.iter()).filter(|stream| !stream.is(consumer));
    if waits.points.is_empty() && others().next().is_none() {
        return Ok(None);
    }
    blocking(|| {
        let explain = |error| unable(waits.streams.first(), consumer, error);
        let side = Side::of(consumer, None).map_err(explain)?;
        side.check_device()?;
        // All is checked before the first wait: one for what is captured draws the stream into that capture, where it
        // could not wait for the others.
        let mut known: Option<(&Stream, Capture)> = None;
        let mut points = Vec::new();
        for producer in others() {
            let ahead = Side::of(producer, Some(&side.current)).map_err(explain)?;
            waits.allow(&ahead, &side, joined)?;
            match known {
                Some((_, capture)) if capture == ahead.capture => {}
                Some((other, Capture::Active(_))) if ahead.capture != Capture::None => {
                    return Err(merged(other, producer));
                }
                Some(_) => return Err(both(consumer)),
                None => known = Some((producer, ahead.capture)),
            }
            points.push(ahead.point()?);
        }
        let behind = known.map_or(side.capture, |(_, capture)| capture);
        for point in &waits.points {
            if side.must_wait_for(point, behind)? {
                points.push(point.clone());
            }
        }
        for point in &points {
            point.wait(side.raw)?;
        }
        Ok(Some(behind))
    })
}

/// Makes all streams of `back` wait for the work queued on `producer` since [`all`] returned `entered`, by one event;
/// goes on to the next if one fails, and returns the first error. Returns that event, unless it is part of a graph.
pub(crate) fn leave(
    back: &Waits,
    producer: &Stream,
    entered: Option<Capture>,
) -> (Option<Arc<Event>>, Result<(), Error>) {
    let others = || back.streams.iter().filter(|stream| !stream.is(producer));
    if others().next().is_none() {
        return (None, Ok(()));
    }
    blocking(|| {
        let reached = || {
            let ahead = Side::of(producer, None)?;
            // An edge of the graph orders nothing that was queued before the capture.
            if let Capture::Active(_) = ahead.capture
                && entered.is_some_and(|entered| entered != ahead.capture)
            {
                return Err(entered_before(producer));
            }
            let end = ahead.point()?;
            Ok((ahead, end))
        };
        let (ahead, end) = match reached() {
            Ok(reached) => reached,
            Err(error) => return (None, Err(error)),
        };
        let mut result = Ok(());
        for consumer in others() {
            let join = || {
                let side = Side::of(consumer, Some(&ahead.current))?;
                allow(&ahead, &side, Joined::Never)?;
                Ok(end.wait(side.raw)?)
            };
            result = result.and(join());
        }
        (Some(end).filter(|end| end.capture().is_none()), result)
    })
}

/// Blocks until the work queued on `stream` is done, at the end of a block whose library works on another stream by
/// then.
///
/// # Errors
///
/// `BufferError` while it captures a graph; errors of the driver.
pub(crate) fn finish(stream: &Stream) -> Result<(), Error> {
    match synchronize(stream) {
        Err(Error::Refused(_)) => Err(Error::refused(format!(
            "the library of a lent tensor works on another stream than when the block was entered, and stream {stream} \
             captures a graph, for which the earlier stream cannot wait; leave the block on the stream that it was \
             entered on"
        ))),
        result => result,
    }
}

/// The point that `producer` has reached in its work.
///
/// # Errors
///
/// As for [`after`].
pub(crate) fn point(producer: &Stream) -> Result<Arc<Event>, Error> {
    blocking(|| Side::of(producer, None)?.point())
}

/// The stream with the device that the driver reports (R86). A capturing stream is returned as it is.
///
/// # Errors
///
/// Those of the driver.
pub(crate) fn verified(stream: &Stream) -> Result<Stream, Error> {
    let device = blocking(|| Ok::<_, Error>(Side::of(stream, None)?.device()?))?;
    let stream = stream.clone();
    Ok(match device {
        Some(device) => stream.on(device),
        None => stream,
    })
}

/// Blocks until all work queued on `stream` is done, detached from the interpreter.
///
/// # Errors
///
/// `BufferError` while it captures a graph; errors of the driver.
pub(crate) fn synchronize(stream: &Stream) -> Result<(), Error> {
    blocking(|| {
        let side = Side::of(stream, None)?;
        match side.capture {
            Capture::None => Ok(side.current.synchronize(side.raw)?),
            _ => Err(refused(
                stream,
                "captures a graph, whose work has no end yet; synchronize after the capture",
            )),
        }
    })
}
