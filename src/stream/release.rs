//! Deferred release of memory that a stream may still use (H3 to H5).
//!
//! A deleter may run on any thread, attached or not, during a capture, inside a host function, and after the driver is
//! gone. Memory is released once its streams have passed the ends of their uses, or nothing runs any more. An error
//! that says neither leaves it for later.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::mem::forget;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::cpython::fork::{Lock, Locked};
use crate::cpython::interpreter::blocking;
use crate::stream::end::End;
use crate::stream::order;
use crate::stream::order::Captures;
use crate::stream::usage::{Release, StreamUsage};

/// Maximum number of deferred tensors.
const COUNT: usize = 1024;
/// Maximum number of deferred bytes, not counting the tensor that was deferred last.
const BYTES: usize = 1 << 30;
/// Entries that one sweep checks.
const LOOKS: usize = 2;

/// Memory to release once all of its ends have been passed.
struct Deferred {
    /// The order in which entries were deferred.
    number: u64,
    ends: Vec<End>,
    bytes: usize,
    memory: Box<dyn Send>,
}

impl Deferred {
    /// Drops the ends that have been passed; returns whether none is left.
    fn settle(&mut self) -> bool {
        let ends = std::mem::take(&mut self.ends);
        self.ends = ends.into_iter().filter_map(End::left).collect();
        self.ends.is_empty()
    }
}

/// All deferred entries, oldest first, and the sum of their bytes.
struct Waiting {
    entries: VecDeque<Deferred>,
    bytes: usize,
    /// Number of the next entry.
    next: u64,
    /// The entry with which the next sweep begins.
    looked: u64,
}

impl Waiting {
    fn add(&mut self, entry: Deferred) {
        let place = self.place(entry.number);
        self.bytes += entry.bytes;
        self.entries.insert(place, entry);
    }

    fn take(&mut self, index: usize) -> Option<Deferred> {
        let entry = self.entries.remove(index)?;
        self.bytes -= entry.bytes;
        Some(entry)
    }

    /// The index of the entry of this number, or of the first one after it.
    fn place(&self, number: u64) -> usize {
        (self.entries).partition_point(|known| known.number < number)
    }
}

fn waiting() -> Locked<'static, Waiting> {
    static WAITING: Lock<Waiting> = Lock::new(Waiting {
        entries: VecDeque::new(),
        bytes: 0,
        next: 0,
        looked: 0,
    });
    WAITING.lock()
}

/// The ends that memory with this `usage` must still wait for.
///
/// For a view of a tensor with streams of its own, `viewed`, the ends are passed on to that tensor, which is released
/// after them.
pub(crate) fn ends(usage: &StreamUsage, viewed: Option<&StreamUsage>) -> Vec<End> {
    let ends = ends_of(usage);
    let Some(viewed) = viewed.filter(|viewed| viewed.release != Release::None) else {
        return ends;
    };
    for end in ends {
        viewed.add_use(end, &[]);
    }
    Vec::new()
}

/// The ends of all uses, except those of which the producer was told or that the caller takes care of.
///
/// A use on the stream that the producer's library worked on at the import, and works on now, is one of the library's
/// own: it frees or reuses the memory in the order of that stream, or has its own rule for memory that was allocated on
/// another (`record_stream` of torch).
fn ends_of(usage: &StreamUsage) -> Vec<End> {
    let mut ends: Vec<_> = usage.uses().drain(..).collect();
    match (&usage.used, usage.release) {
        (_, Release::None) => ends.clear(),
        (_, Release::RecordStream) | (None, _) => {}
        (Some(used), Release::Auto) => {
            let then = usage.producer.as_ref().map(|producer| &producer.then);
            let now = usage.now();
            if [then, now.as_ref()]
                .iter()
                .all(|own| own.is_some_and(|own| own.is(used)))
            {
                return ends;
            }
            let Some(end) = End::of(used) else {
                // Nor does what those wait for that were deferred before.
                sweep();
                return Vec::new();
            };
            if let (End::Point(point), Some(producer)) = (&end, &usage.producer)
                && producer.is_held()
            {
                // The object that the tensor holds keeps this stream alive (R151). Its library writes next on it, or on
                // the one that it names now (R150).
                let then = &producer.then;
                let now = now.as_ref().filter(|now| !now.is(then));
                for next in [Some(then), now].into_iter().flatten() {
                    order::wait(next, point).ok();
                }
            }
            ends.push(end);
        }
    }
    ends
}

/// Drops `memory` once all of `ends` have been passed; beyond the limits, waits for older entries.
pub(crate) fn defer(ends: Vec<End>, bytes: i64, memory: Box<dyn Send>) {
    if ends.iter().any(|end| matches!(end, End::Never)) {
        return forget(memory);
    }
    let bytes = usize::try_from(bytes).unwrap_or(0);
    // Without a point, a stream captures or a host function runs, and no deleter should.
    if ends.iter().all(|end| end.point().is_some()) {
        sweep();
    }
    let mut waiting = waiting();
    let number = waiting.next;
    waiting.next += 1;
    waiting.add(Deferred {
        number,
        ends,
        bytes,
        memory,
    });
    drop(waiting);
    while let Some(oldest) = beyond_bounds(number) {
        let mut is_done = true;
        for end in &oldest.ends {
            is_done &= end.synchronize().is_ok();
        }
        release([oldest]);
        if !is_done {
            return;
        }
    }
}

/// The oldest entry that can be waited for, removed, if the limits are exceeded. The entry `last` is not: the host does
/// not wait for work that it has just queued.
fn beyond_bounds(last: u64) -> Option<Deferred> {
    let mut waiting = waiting();
    let newest = waiting.entries.back().filter(|entry| entry.number == last);
    let bytes = waiting.bytes - newest.map_or(0, |entry| entry.bytes);
    if waiting.entries.len() <= COUNT && bytes <= BYTES {
        return None;
    }
    let is_recorded = |entry: &Deferred| entry.ends.iter().all(|end| end.point().is_some());
    let can_wait = |entry: &Deferred| entry.number != last && is_recorded(entry);
    let oldest = waiting.entries.iter().position(can_wait)?;
    waiting.take(oldest)
}

/// Releases entries that are done, unless a stream may capture; calls the driver only if there are any.
pub(crate) fn sweep_after(captures: Captures) {
    if captures == Captures::None {
        sweep();
    }
}

/// Releases entries that are done; calls the driver only if there are entries.
///
/// Entries are taken out to be checked: the driver may block, and no lock may be held then.
fn sweep() {
    let mut waiting = waiting();
    if waiting.entries.is_empty() {
        return;
    }
    // Each sweep continues where the last one stopped, so one hanging stream does not hold up the others.
    let mut index = waiting.place(waiting.looked);
    let mut looked = Vec::new();
    for _ in 0..LOOKS.min(waiting.entries.len()) {
        if index >= waiting.entries.len() {
            index = 0;
        }
        looked.extend(waiting.take(index));
    }
    waiting.looked = looked.last().map_or(0, |entry| entry.number + 1);
    drop(waiting);
    release(looked);
}

/// Releases those of `entries` that are done, and puts the others back.
fn release(entries: impl IntoIterator<Item = Deferred>) {
    let entries: Vec<_> = entries.into_iter().collect();
    // Deleters free memory, which else invalidates captures of other threads.
    let mut points = entries
        .iter()
        .flat_map(|entry| &entry.ends)
        .filter_map(End::point);
    let _relaxed = points.next().map(|point| point.relaxed());
    let mut done = Vec::new();
    for mut entry in entries {
        if entry.settle() {
            done.push(entry.memory);
        } else {
            waiting().add(entry);
        }
    }
    // Deleters may re-enter this module.
    drop(done);
}

/// Releases the remaining entries at interpreter exit, as they become done; after a second, leaves the rest to the
/// operating system: a kernel may never end.
pub(crate) fn finish() {
    const LIMIT: Duration = Duration::from_secs(1);
    const MOMENT: Duration = Duration::from_millis(1);
    let begin = Instant::now();
    loop {
        let entries = std::mem::take(&mut waiting().entries);
        waiting().bytes = 0;
        release(entries);
        if waiting().entries.is_empty() {
            return;
        }
        if begin.elapsed() > LIMIT {
            return forget(std::mem::take(&mut waiting().entries));
        }
        blocking(|| sleep(MOMENT));
    }
}
