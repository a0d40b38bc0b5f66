//! Giving memory back while a stream may still use it (H3 to H5).
//!
//! A deleter may run in any thread, with or without Python, during a capture, and after the driver has gone:
//! whatever fails here ends in the deleter being called.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;

use crate::cpython::fork::{Lock, Locked};
use crate::cpython::interpreter::blocking;
use crate::driver;
use crate::driver::{Capture, Event};
use crate::stream::handle::Stream;
use crate::stream::order;
use crate::stream::order::Joined;
use crate::stream::usage::{Release, StreamUsage};
use crate::types::error::Error;

/// Tensors whose deleters wait, at most.
const COUNT: usize = 1024;
/// Bytes whose deleters wait, at most.
const BYTES: usize = 1 << 30;
/// How many a sweep looks at.
const LOOKS: usize = 8;

/// Memory that is given back when points have been passed.
struct Deferred {
    ends: Vec<Arc<Event>>,
    bytes: usize,
    memory: Box<dyn Send>,
}

impl Deferred {
    /// Whether nobody uses it any more.
    fn is_done(&self) -> bool {
        // A point that cannot be asked about any more has been passed, or nothing runs.
        self.ends.iter().all(|end| end.is_done().unwrap_or(true))
    }

    /// Waits until nobody uses it any more, and gives it back.
    fn finish(self) {
        for end in &self.ends {
            blocking(|| end.synchronize()).ok();
        }
        drop(self.memory);
    }
}

/// All of them, the oldest first, and the sum of their bytes.
struct Waiting {
    entries: VecDeque<Deferred>,
    bytes: usize,
    /// Where the next sweep begins.
    next: usize,
}

impl Waiting {
    fn take(&mut self, index: usize) -> Option<Deferred> {
        let entry = self.entries.remove(index)?;
        self.bytes -= entry.bytes;
        Some(entry)
    }
}

fn waiting() -> Locked<'static, Waiting> {
    static WAITING: Lock<Waiting> = Lock::new(Waiting {
        entries: VecDeque::new(),
        bytes: 0,
        next: 0,
    });
    WAITING.lock()
}

/// The points that memory still waits for, of which `usage` tells who uses it.
///
/// A view of a tensor that has streams of its own, `viewed`, leaves the rest to that: what waits here is never asked for
/// a stream later, which may be gone then (H3).
pub(crate) fn ends(usage: &StreamUsage, viewed: Option<&StreamUsage>) -> Vec<Arc<Event>> {
    let ends = ends_of(usage);
    let Some(viewed) = viewed.filter(|viewed| viewed.release != Release::None) else {
        return ends;
    };
    for end in ends {
        viewed.add_use(end, &[]);
    }
    Vec::new()
}

/// Drops `memory` when all of `ends` have been passed.
pub(crate) fn defer(ends: Vec<Arc<Event>>, bytes: i64, memory: Box<dyn Send>) {
    let bytes = usize::try_from(bytes).unwrap_or(0);
    queue(Deferred {
        ends,
        bytes,
        memory,
    });
}

/// The points at which nobody uses the memory any more, of those that the policy does not see to by itself.
fn ends_of(usage: &StreamUsage) -> Vec<Arc<Event>> {
    let mut ends: Vec<_> = usage.uses().drain(..).collect();
    match (&usage.used, usage.release) {
        (_, Release::None) => ends.clear(),
        (_, Release::RecordStream) | (None, _) => {}
        (Some(used), Release::Sync) => {
            blocking(|| synchronize(used)).ok();
        }
        (Some(used), release) => {
            let is_seen_to = (usage.producer.as_ref())
                .and_then(|producer| producer.steady())
                .is_some_and(|producer| {
                    let waits = || order::after(&producer, used, Joined::Never).is_ok();
                    producer.is(used) || (release == Release::WaitBack && waits())
                });
            if !is_seen_to {
                // A capture replays later, at times that nobody knows; a driver that fails runs nothing any more.
                ends.extend(point(used).ok().flatten().map(Arc::new));
            }
        }
    }
    if usage.release == Release::Sync {
        for end in ends.drain(..) {
            blocking(|| end.synchronize()).ok();
        }
    }
    ends
}

/// The point that the stream has reached; `None` in a capture.
fn point(used: &Stream) -> Result<Option<Event>, Error> {
    let current = driver::enter(used.device())?;
    let Ok(stream) = used.raw() else {
        // The default stream of another thread has no name in this one.
        drop(current);
        blocking(|| {
            let current = driver::enter(used.device())?;
            driver::relaxed(&*current, || current.synchronize_context())
        })?;
        return Ok(None);
    };
    match current.capture(stream)? {
        Capture::None => Ok(Some(Event::record(&current, stream, Capture::None)?)),
        _ => Ok(None),
    }
}

/// Waits for the stream, unless it captures.
fn synchronize(used: &Stream) -> Result<(), Error> {
    let stream = used.raw()?;
    let current = driver::enter(used.device())?;
    match current.capture(stream)? {
        Capture::None => Ok(current.synchronize(stream)?),
        _ => Ok(()),
    }
}

/// Queues `entry`, and gives back what is done; beyond the bounds it waits for the oldest.
fn queue(entry: Deferred) {
    sweep();
    let mut waiting = waiting();
    waiting.bytes += entry.bytes;
    waiting.entries.push_back(entry);
    drop(waiting);
    while let Some(oldest) = beyond_bounds() {
        oldest.finish();
    }
}

/// The oldest entry, taken out if there are too many.
fn beyond_bounds() -> Option<Deferred> {
    let mut waiting = waiting();
    if waiting.entries.len() > COUNT || waiting.bytes > BYTES {
        waiting.take(0)
    } else {
        None
    }
}

/// Gives back what is done; the driver is asked only if something waits.
pub(crate) fn sweep() {
    let mut done = Vec::new();
    let mut waiting = waiting();
    for _ in 0..LOOKS.min(waiting.entries.len()) {
        // Each sweep goes on where the last one stopped: one stream that hangs does not hold up the others.
        let index = match waiting.next {
            next if next < waiting.entries.len() => next,
            _ => 0,
        };
        match waiting.entries.get(index).map(Deferred::is_done) {
            Some(true) => done.extend(waiting.take(index)),
            Some(false) => waiting.next = index + 1,
            None => break,
        }
    }
    drop(waiting);
    // Deleters may come back here.
    drop(done);
}

/// Waits for all that is left and gives it back, when the interpreter exits.
pub(crate) fn finish() {
    loop {
        let Some(oldest) = waiting().take(0) else {
            return;
        };
        oldest.finish();
    }
}
