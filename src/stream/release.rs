//! Deferred release of memory that a stream may still use (H3 to H5).
//!
//! A deleter may run on any thread, attached or not, during a capture, and after the driver is gone. Whatever fails
//! here, the deleter is called in the end.

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

/// Maximum number of deferred tensors.
const COUNT: usize = 1024;
/// Maximum number of deferred bytes.
const BYTES: usize = 1 << 30;
/// Entries that one sweep checks.
const LOOKS: usize = 8;

/// Memory to release once all of its points have been passed.
struct Deferred {
    ends: Vec<Arc<Event>>,
    bytes: usize,
    memory: Box<dyn Send>,
}

impl Deferred {
    /// Whether the memory is no longer used.
    fn is_done(&self) -> bool {
        // If a point cannot be queried, it has been passed or nothing runs any more.
        self.ends.iter().all(|end| end.is_done().unwrap_or(true))
    }

    /// Waits until the memory is no longer used, then releases it.
    fn finish(self) {
        for end in &self.ends {
            blocking(|| end.synchronize()).ok();
        }
        drop(self.memory);
    }
}

/// All deferred entries, oldest first, and the sum of their bytes.
struct Waiting {
    entries: VecDeque<Deferred>,
    bytes: usize,
    /// Where the next sweep starts.
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

/// The points that memory with this `usage` must still wait for.
///
/// For a view of a tensor with streams of its own, `viewed`, the remaining points are passed on to that tensor: an
/// entry deferred here must not need the stream later, which may be gone by then (H3).
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

/// Drops `memory` once all of `ends` have been passed.
pub(crate) fn defer(ends: Vec<Arc<Event>>, bytes: i64, memory: Box<dyn Send>) {
    let bytes = usize::try_from(bytes).unwrap_or(0);
    queue(Deferred {
        ends,
        bytes,
        memory,
    });
}

/// The points after which the memory is no longer used, except those that the release policy handles itself:
///
/// ```text
/// None:            none
/// RecordStream:    the ends in `usage.uses`
/// Sync:            none, after the host has waited for those ends and for `usage.used`
/// Auto, WaitBack:  those ends, and the point that `usage.used` has reached, unless the producer works on that stream
///                  or (WaitBack) its stream can be made to wait for it
/// ```
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
                // A captured graph may be replayed at any later time; a driver that fails runs nothing any more.
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

/// The point that the stream has reached; `None` during a capture.
fn point(used: &Stream) -> Result<Option<Event>, Error> {
    let current = driver::enter(used.device())?;
    let Ok(stream) = used.raw() else {
        // The per-thread default stream of another thread has no handle in this one.
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

/// Waits for the stream, unless it is capturing.
fn synchronize(used: &Stream) -> Result<(), Error> {
    let stream = used.raw()?;
    let current = driver::enter(used.device())?;
    match current.capture(stream)? {
        Capture::None => Ok(current.synchronize(stream)?),
        _ => Ok(()),
    }
}

/// Queues `entry` and releases those that are done; over the limits, waits for the oldest.
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

/// The oldest entry, removed, if the limits are exceeded.
fn beyond_bounds() -> Option<Deferred> {
    let mut waiting = waiting();
    if waiting.entries.len() > COUNT || waiting.bytes > BYTES {
        waiting.take(0)
    } else {
        None
    }
}

/// Releases entries that are done; calls the driver only if there are entries.
pub(crate) fn sweep() {
    let mut done = Vec::new();
    let mut waiting = waiting();
    for _ in 0..LOOKS.min(waiting.entries.len()) {
        // Each sweep continues where the last one stopped, so one hanging stream does not hold up the others.
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
    // Deleters may re-enter this module.
    drop(done);
}

/// Waits for all remaining entries and releases them, at interpreter exit.
pub(crate) fn finish() {
    loop {
        let Some(oldest) = waiting().take(0) else {
            return;
        };
        oldest.finish();
    }
}
