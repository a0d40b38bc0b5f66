//! Ordering of streams: an event recorded on the producing stream, which the consuming stream waits for.
//!
//! Whatever would invalidate a graph capture is refused before calling the driver. The driver is called detached from
//! the interpreter: a call waits where a stream's queue is full, perhaps of a callback that needs the interpreter.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::cpython::interpreter::blocking;
use crate::driver;
use crate::driver::{Capture, Current, Event, RawStream};
use crate::stream::handle::{Stream, elsewhere};
use crate::types::error::Error;

/// Whether the waiting stream is joined back before the end of the block that uses it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joined {
    Back,
    Never,
}

/// Whether one of the streams that were ordered may capture a graph; then no deleter should run, since many free memory,
/// which invalidates captures.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Captures {
    None,
    Possible,
}

/// What a stream is to wait for: each stream and each point once.
#[derive(Default)]
pub(crate) struct Waits {
    streams: Vec<Stream>,
    /// Streams of which work is awaited that no graph has.
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
}

/// Makes `consumer` wait for all work queued on `producer`; does nothing if they are the same stream (R81).
///
/// # Errors
///
/// `BufferError` if that would invalidate a capture; errors of the driver.
pub(crate) fn after(
    consumer: &Stream,
    producer: &Stream,
    joined: Joined,
) -> Result<Captures, Error> {
    let mut waits = Waits::default();
    waits.add(producer);
    all(consumer, &waits, joined)
}

/// Makes `consumer` wait for a point.
///
/// # Errors
///
/// As for [`after`].
pub(crate) fn wait(consumer: &Stream, point: &Arc<Event>) -> Result<Captures, Error> {
    let mut waits = Waits::default();
    waits.add_point(point);
    all(consumer, &waits, Joined::Never)
}

/// Makes `consumer` wait for all of `waits` but itself.
///
/// # Errors
///
/// As for [`after`].
pub(crate) fn all(consumer: &Stream, waits: &Waits, joined: Joined) -> Result<Captures, Error> {
    let Waits {
        streams, points, ..
    } = waits;
    let others = || streams.iter().filter(|stream| !stream.is(consumer));
    if points.is_empty() && others().next().is_none() {
        return Ok(Captures::Possible);
    }
    blocking(|| {
        let unable = |error| unable(streams.first(), consumer, error);
        let mut side = Side::of(consumer).map_err(unable)?;
        side.check_context()?;
        if others().count() + points.len() > 1 {
            check(&side, waits, joined)?;
        }
        for producer in others() {
            let ahead = Side::of(producer).map_err(unable)?;
            waits.allow(&ahead, &side, joined)?;
            let event = ahead.record()?;
            let capture = ahead.capture;
            drop(ahead);
            side.wait(&event)?;
            // A wait for what is captured draws the stream into that capture.
            side.capture = capture;
        }
        for point in points {
            side.wait_for(point)?;
        }
        Ok(match side.capture {
            Capture::None => Captures::None,
            _ => Captures::Possible,
        })
    })
}

/// Checks that `side` may wait for all of `waits`, before it waits for any: one that captures draws it into the capture,
/// where it could not wait for the others.
fn check(side: &Side<'_>, waits: &Waits, joined: Joined) -> Result<(), Error> {
    let mut known: Option<(&Stream, Capture)> = None;
    let others = waits.streams.iter();
    for producer in others.filter(|stream| !stream.is(side.stream)) {
        let ahead = Side::of(producer)?;
        waits.allow(&ahead, side, joined)?;
        match known {
            Some((_, capture)) if capture == ahead.capture => {}
            Some((other, Capture::Active(_))) if ahead.capture != Capture::None => {
                return Err(merged(other, producer));
            }
            Some(_) => return Err(both(side.stream)),
            None => known = Some((producer, ahead.capture)),
        }
    }
    let behind = known.map_or(side.capture, |(_, capture)| capture);
    for point in &waits.points {
        side.may_wait_for(point, behind)?;
    }
    Ok(())
}

/// Makes all streams of `back` wait for the work queued on `producer`, by one event; goes on to the next if one fails,
/// and returns the first error. Returns that event, unless it is part of a graph.
pub(crate) fn back(back: &Waits, producer: &Stream) -> (Option<Arc<Event>>, Result<(), Error>) {
    let others = || back.streams.iter().filter(|stream| !stream.is(producer));
    if others().next().is_none() {
        return (None, Ok(()));
    }
    blocking(|| {
        let ahead = match Side::of(producer) {
            Ok(ahead) => ahead,
            Err(error) => return (None, Err(error)),
        };
        let mut allowed = Vec::new();
        let mut result = Ok(());
        for consumer in others() {
            let join = || {
                let side = Side::of(consumer)?;
                allow(&ahead, &side, Joined::Never)?;
                Ok(side)
            };
            match join() {
                Ok(side) => allowed.push(side.stream),
                Err(error) => result = result.and(Err(error)),
            }
        }
        if allowed.is_empty() {
            return (None, result);
        }
        let end = match ahead.record() {
            Ok(end) => Arc::new(end),
            Err(error) => return (None, result.and(Err(error.into()))),
        };
        for consumer in allowed {
            let wait = || {
                let (_current, raw) = consumer.enter()?;
                Ok(end.wait(raw)?)
            };
            result = result.and(wait());
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
            "the library of a lent tensor works on another stream than when the block was entered, and stream {} \
             captures a graph, for which the earlier stream cannot wait; leave the block on the stream that it was \
             entered on",
            stream.handle()
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
    blocking(|| {
        let side = Side::of(producer)?;
        match side.capture {
            Capture::None | Capture::Active(_) => Ok(Arc::new(side.record()?)),
            Capture::Implicit => Err(implicit(producer)),
            Capture::Invalidated => Err(invalidated(producer)),
        }
    })
}

/// The stream with the device that the driver reports (R86). A capturing stream is returned as it is: asking for its
/// context would invalidate the capture.
///
/// # Errors
///
/// Those of the driver.
pub(crate) fn verified(stream: Stream) -> Result<Stream, Error> {
    let found = blocking(|| {
        let side = Side::of(&stream)?;
        match side.capture {
            Capture::None => Ok::<_, Error>(Some(stream.clone().of_its_device()?)),
            _ => Ok(None),
        }
    })?;
    Ok(found.unwrap_or(stream))
}

/// Blocks until all work queued on `stream` is done, detached from the interpreter.
///
/// # Errors
///
/// `BufferError` while it captures a graph; errors of the driver.
pub(crate) fn synchronize(stream: &Stream) -> Result<(), Error> {
    blocking(|| {
        let side = Side::of(stream)?;
        match side.capture {
            Capture::None => Ok(side.current.synchronize(side.raw)?),
            _ => Err(Error::refused(format!(
                "stream {} captures a graph, whose work has no end yet; synchronize after the capture",
                stream.handle()
            ))),
        }
    })
}

/// One of the streams to be ordered, with its context current until this is dropped.
struct Side<'a> {
    stream: &'a Stream,
    current: Current,
    raw: RawStream,
    capture: Capture,
}

impl<'a> Side<'a> {
    fn of(stream: &'a Stream) -> Result<Self, Error> {
        let (current, raw) = stream.enter()?;
        let capture = current.capture(raw)?;
        Ok(Self {
            stream,
            current,
            raw,
            capture,
        })
    }

    fn record(&self) -> Result<Event, driver::Error> {
        Event::record(&self.current, self.raw, self.capture)
    }

    fn wait(&self, event: &Event) -> Result<(), driver::Error> {
        event.wait(self.raw)
    }

    fn wait_for(&self, point: &Event) -> Result<(), Error> {
        if self.may_wait_for(point, self.capture)? {
            self.wait(point)?;
        }
        Ok(())
    }

    /// Whether the stream has to wait for a point, in the state `capture`.
    fn may_wait_for(&self, point: &Event, capture: Capture) -> Result<bool, Error> {
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
    fn check_context(&self) -> Result<(), Error> {
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

impl Waits {
    /// As [`allow`]; of a stream that captures, what was queued before is not to be had.
    fn allow(&self, ahead: &Side<'_>, behind: &Side<'_>, joined: Joined) -> Result<(), Error> {
        let is_outside = self.outside.iter().any(|stream| stream.is(ahead.stream));
        match ahead.capture {
            Capture::Active(_) if is_outside => Err(before(ahead.stream)),
            _ => allow(ahead, behind, joined),
        }
    }
}

/// The rules for captures: whether `behind` may wait for `ahead`.
fn allow(ahead: &Side<'_>, behind: &Side<'_>, joined: Joined) -> Result<(), Error> {
    let (producer, consumer) = (ahead.stream, behind.stream);
    match (ahead.capture, behind.capture) {
        (Capture::None, Capture::None) => Ok(()),
        (Capture::Active(ahead), Capture::Active(behind)) if ahead == behind => Ok(()),
        (Capture::Implicit, _) => Err(implicit(producer)),
        (_, Capture::Implicit) => Err(implicit(consumer)),
        (Capture::Invalidated, _) => Err(invalidated(producer)),
        (_, Capture::Invalidated) => Err(invalidated(consumer)),
        (Capture::Active(_), Capture::Active(_)) => Err(merged(producer, consumer)),
        // The driver reports "not capturing" for the legacy default stream while a non-blocking stream captures.
        (Capture::Active(_), Capture::None) if consumer.is_permanent() => Err(implicit(consumer)),
        (Capture::Active(_), Capture::None) if joined == Joined::Back => Ok(()),
        (Capture::Active(_), Capture::None) => Err(Error::refused(format!(
            "the producer's stream {} captures a graph, and stream {} would be drawn into it without coming back \
             (904); use dlx.borrow or Tensor.use, which join the streams again, or the producer's own stream",
            producer.handle(),
            consumer.handle()
        ))),
        (Capture::None, Capture::Active(_)) => Err(isolated(consumer)),
    }
}

/// The error for streams that cannot be ordered without a driver.
#[cold]
fn unable(producer: Option<&Stream>, consumer: &Stream, error: Error) -> Error {
    match producer {
        Some(producer) if error.is_absent() => Error::Unordered(format!(
            "the tensor is ready on stream {} and stream {} cannot be made to wait for it: {}; import it with \
             stream={}, or export with stream=-1 once the streams are ordered",
            producer.handle(),
            consumer.handle(),
            error.message(),
            consumer.handle(),
        )),
        _ => error,
    }
}

#[cold]
fn isolated(consumer: &Stream) -> Error {
    Error::refused(format!(
        "stream {} captures a graph, and waiting for work outside of it would end the capture (905); import the \
         tensor before the capture begins, or pass stream=-1 if the streams are in order",
        consumer.handle()
    ))
}

#[cold]
fn merged(one: &Stream, other: &Stream) -> Error {
    Error::refused(format!(
        "streams {} and {} capture two different graphs, and a wait would merge them (902); capture both into one, or \
         pass stream=-1",
        one.handle(),
        other.handle()
    ))
}

#[cold]
fn both(consumer: &Stream) -> Error {
    Error::refused(format!(
        "the tensors become ready inside the capture of a graph and outside of it, and stream {} cannot wait for both \
         (905); import those outside before the capture begins, or pass stream=-1 if the streams are in order",
        consumer.handle()
    ))
}

#[cold]
fn before(producer: &Stream) -> Error {
    Error::refused(format!(
        "stream {} used the tensor before it began the capture of a graph, and nothing can wait for that inside the \
         capture; use the tensor after the capture, or pass stream=-1 if the streams are in order",
        producer.handle()
    ))
}

#[cold]
fn implicit(stream: &Stream) -> Error {
    Error::refused(format!(
        "stream {} is the legacy default stream, and using it while another stream captures a graph would end that \
         capture (906); capture with the tensor's own stream, or pass stream=-1",
        stream.handle()
    ))
}

#[cold]
fn invalidated(stream: &Stream) -> Error {
    Error::refused(format!(
        "the capture of stream {} has failed (901); end it first",
        stream.handle()
    ))
}
