//! Ordering of streams: an event recorded on the producing stream, which the consuming stream waits for.
//!
//! Whatever would invalidate a graph capture is refused before such a call; the driver is asked for the captures first. It
//! is called detached from the interpreter: a call waits where a stream's queue is full, perhaps of a callback that needs
//! the interpreter.

#![forbid(unsafe_code)]

mod rules;
mod side;

use std::sync::Arc;

use rules::{allow, both, entered_before, implicit, invalidated, merged, unable};
use side::Side;

use crate::cpython::interpreter::blocking;
use crate::driver::{Capture, Event};
use crate::stream::handle::Stream;
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
    let Waits {
        streams, points, ..
    } = waits;
    let others = || streams.iter().filter(|stream| !stream.is(consumer));
    if points.is_empty() && others().next().is_none() {
        return Ok(None);
    }
    blocking(|| {
        let explain = |error| unable(streams.first(), consumer, error);
        let mut side = Side::of(consumer, None).map_err(explain)?;
        side.check_device()?;
        if others().count() + points.len() > 1 {
            check(&side, waits, joined)?;
        }
        for producer in others() {
            let ahead = Side::of(producer, Some(&side.current)).map_err(explain)?;
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
        Ok(Some(side.capture))
    })
}

/// Checks that `side` may wait for all of `waits`, before it waits for any: one that captures draws it into the capture,
/// where it could not wait for the others.
fn check(side: &Side<'_>, waits: &Waits, joined: Joined) -> Result<(), Error> {
    let mut known: Option<(&Stream, Capture)> = None;
    let others = waits.streams.iter();
    for producer in others.filter(|stream| !stream.is(side.stream)) {
        let ahead = Side::of(producer, Some(&side.current))?;
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
        side.must_wait_for(point, behind)?;
    }
    Ok(())
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
        let ahead = match Side::of(producer, None) {
            Ok(ahead) => ahead,
            Err(error) => return (None, Err(error)),
        };
        // An edge of the graph orders nothing that was queued before the capture.
        if let Capture::Active(_) = ahead.capture
            && entered.is_some_and(|entered| entered != ahead.capture)
        {
            return (None, Err(entered_before(producer)));
        }
        let mut allowed = Vec::new();
        let mut result = Ok(());
        for consumer in others() {
            let join = || {
                let side = Side::of(consumer, Some(&ahead.current))?;
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
                let (_current, raw) = consumer.enter(Some(&ahead.current))?;
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
        let side = Side::of(producer, None)?;
        match side.capture {
            Capture::None | Capture::Active(_) => Ok(Arc::new(side.record()?)),
            Capture::Implicit => Err(implicit(producer)),
            Capture::Invalidated => Err(invalidated(producer)),
        }
    })
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
            _ => Err(Error::refused(format!(
                "stream {} captures a graph, whose work has no end yet; synchronize after the capture",
                stream.handle()
            ))),
        }
    })
}
