//! Ordering of streams: an event recorded on the producing stream, which the consuming stream waits for.
//!
//! Whatever would invalidate a graph capture is refused before calling the driver.

#![forbid(unsafe_code)]

use crate::abi::DLDevice;
use crate::driver;
use crate::driver::{Capture, Current, Event};
use crate::stream::handle::{Stream, elsewhere};
use crate::types::error::Error;

/// Whether the waiting stream is joined back before the end of the block that uses it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joined {
    Back,
    Never,
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
    let (before, then) = (producer.raw()?, consumer.raw()?);
    let unable = |error| unable(producer, consumer, error);
    let here = driver::enter(producer.device()).map_err(unable)?;
    let ahead = here.capture(before)?;
    if consumer.device() == producer.device() {
        let behind = here.capture(then)?;
        allow(ahead, behind, joined, producer, consumer)?;
        if !consumer.is_verified() && behind == Capture::None {
            check_context(&here, consumer)?;
        }
        return Ok(Event::record(&here, before, ahead)?.wait(then)?);
    }
    let there = driver::enter(consumer.device())?;
    let behind = there.capture(then)?;
    allow(ahead, behind, joined, producer, consumer)?;
    if !consumer.is_verified() && behind == Capture::None {
        check_context(&there, consumer)?;
    }
    let here = driver::enter(producer.device())?;
    let event = Event::record(&here, before, ahead)?;
    drop(here);
    Ok(event.wait(then)?)
}

/// The point that `producer` has reached in its work.
///
/// # Errors
///
/// As for [`after`].
pub(crate) fn point(producer: &Stream) -> Result<Event, Error> {
    let before = producer.raw()?;
    let current = driver::enter(producer.device())?;
    let capture = current.capture(before)?;
    match capture {
        Capture::None | Capture::Active(_) => Ok(Event::record(&current, before, capture)?),
        Capture::Implicit => Err(implicit(producer)),
        Capture::Invalidated => Err(invalidated(producer)),
    }
}

/// Makes `consumer` wait for a point.
///
/// # Errors
///
/// As for [`after`].
pub(crate) fn wait(consumer: &Stream, event: &Event) -> Result<(), Error> {
    let then = consumer.raw()?;
    let current = driver::enter(consumer.device())?;
    let behind = current.capture(then)?;
    if !consumer.is_verified() && behind == Capture::None {
        check_context(&current, consumer)?;
    }
    match (event.capture(), behind) {
        (None, Capture::None) => {}
        (Some(ahead), Capture::Active(behind)) if ahead == behind => {}
        // A completed event needs no wait, which would invalidate the capture.
        (None, _) if event.is_done()? => return Ok(()),
        (None, Capture::Active(_)) => return Err(isolated(consumer)),
        (_, Capture::Implicit) => return Err(implicit(consumer)),
        (_, Capture::Invalidated) => return Err(invalidated(consumer)),
        (Some(_), _) => {
            return Err(Error::refused(format!(
                "the tensor becomes ready inside the capture of a graph, which stream {} is not part of; \
                 use it on a stream of that capture, or import it outside",
                consumer.handle()
            )));
        }
    }
    Ok(event.wait(then)?)
}

/// Refuses a stream of another device (R86). A capturing stream is not checked: asking for its context would
/// invalidate the capture.
pub(crate) fn check_device(current: &Current, stream: Stream) -> Result<Stream, Error> {
    if stream.is_verified() || current.capture(stream.raw()?)? != Capture::None {
        return Ok(stream);
    }
    check_context(current, &stream)?;
    Ok(stream.verified())
}

fn check_context(current: &Current, stream: &Stream) -> Result<(), Error> {
    let device_id = current.device_of_stream(stream.raw()?)?;
    let here = DLDevice {
        device_id,
        ..stream.device()
    };
    if here == stream.device() {
        Ok(())
    } else {
        Err(elsewhere(stream, here))
    }
}

/// The rules for captures: whether `consumer` may wait for `producer`. `ahead` is the capture state of the producer,
/// `behind` that of the consumer.
fn allow(
    ahead: Capture,
    behind: Capture,
    joined: Joined,
    producer: &Stream,
    consumer: &Stream,
) -> Result<(), Error> {
    match (ahead, behind) {
        (Capture::None, Capture::None) => Ok(()),
        (Capture::Active(ahead), Capture::Active(behind)) if ahead == behind => Ok(()),
        (Capture::Implicit, _) => Err(implicit(producer)),
        (_, Capture::Implicit) => Err(implicit(consumer)),
        (Capture::Invalidated, _) => Err(invalidated(producer)),
        (_, Capture::Invalidated) => Err(invalidated(consumer)),
        (Capture::Active(_), Capture::Active(_)) => Err(Error::refused(format!(
            "streams {} and {} capture two different graphs, and a wait would merge them (902); \
             capture both into one, or pass stream=-1",
            producer.handle(),
            consumer.handle()
        ))),
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
fn unable(producer: &Stream, consumer: &Stream, error: driver::Error) -> Error {
    if error.is_absent() {
        Error::Unordered(format!(
            "the tensor is ready on stream {} and stream {} cannot be made to wait for it: {error}; import it with \
             stream={}, or export with stream=-1 once the streams are ordered",
            producer.handle(),
            consumer.handle(),
            consumer.handle(),
        ))
    } else {
        error.into()
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
