//! Deferred release of memory that a stream may still use (H3 to H5).
//!
//! A deleter may run on any thread, attached or not, during a capture, inside a host function, and after the driver is
//! gone. Memory is released once its streams have passed the ends of their uses, or nothing runs any more. An error
//! that says neither leaves it for later.
//!
//! A thread asks for that, which lives while memory is deferred: no call into dlx need follow a release.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::mem::{forget, replace, take};
use std::process;
use std::thread::{Builder, Thread, park_timeout, sleep};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::abi::DLDevice;
use crate::cpython::boundary::guard;
use crate::cpython::fork::{Lock, Locked};
use crate::cpython::interpreter::blocking;
use crate::driver;
use crate::stream::end::End;
use crate::stream::handle::Stream;
use crate::stream::order;
use crate::stream::usage::{Release, StreamUsage};

/// Maximum number of deferred tensors.
const COUNT: usize = 1024;
/// Maximum part of a device's memory that is deferred, not counting the tensor that was deferred last: one tenth.
const PART: usize = 10;
/// The name of the thread, which Linux limits to 15 characters.
const NAME: &str = "dlx-release";
/// How long the thread rests before it asks again: the first, while memory is deferred and released, and else twice as
/// long each time, up to the second. Then it ends, if nothing is deferred.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(32)];

/// Memory to release once all of its ends have been passed.
struct Deferred {
    /// The order in which entries were deferred.
    number: u64,
    device: DLDevice,
    bytes: usize,
    ends: Vec<End>,
    memory: Box<dyn Send>,
}

/// All deferred entries, oldest first.
struct Waiting {
    entries: VecDeque<Deferred>,
    /// Number of the next entry.
    next: u64,
    /// The thread that releases, and its process: a fork has none.
    thread: Option<(u32, Thread)>,
    /// Whether that rests for more than the first of its pauses.
    rests: bool,
    /// Whether the interpreter exits, so that no thread starts.
    is_over: bool,
}

impl Waiting {
    /// Wakes the thread, or starts it if this process has none. Where none can start, the next entry tries again.
    fn wake(&mut self) {
        match &self.thread {
            Some((process, thread)) if *process == process::id() => {
                if take(&mut self.rests) {
                    thread.unpark();
                }
            }
            _ if self.is_over => {}
            _ => {
                let started = Builder::new().name(NAME.to_owned()).spawn(run);
                self.thread = (started.ok()).map(|handle| (process::id(), handle.thread().clone()));
            }
        }
    }

    /// Whether this process has a thread that releases.
    fn has_thread(&self) -> bool {
        (self.thread.as_ref()).is_some_and(|(process, _)| *process == process::id())
    }

    /// The index of the entry of this number, or of the first one after it.
    fn place(&self, number: u64) -> usize {
        (self.entries).partition_point(|known| known.number < number)
    }
}

fn waiting() -> Locked<'static, Waiting> {
    static WAITING: Lock<Waiting> = Lock::new(Waiting {
        entries: VecDeque::new(),
        next: 0,
        thread: None,
        rests: false,
        is_over: false,
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
    match (usage.used(), usage.release) {
        (_, Release::None) => ends.clear(),
        (_, Release::RecordStream) | (None, _) => {}
        (Some(used), Release::Auto) => {
            let then = usage.producer.as_ref().map(|producer| &producer.then);
            let now = usage.now();
            let is_used = |own: Option<&Stream>| own.is_some_and(|own| own.is(used));
            if is_used(then) && is_used(now.as_ref()) {
                return ends;
            }
            let Some(end) = End::of(used) else {
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
                    order::wait(&next.in_this_thread(), point).ok();
                }
            }
            ends.push(end);
        }
    }
    ends
}

/// Drops `memory` on `device` once all of `ends` have been passed; beyond the limits, waits for older entries.
pub(crate) fn defer(ends: Vec<End>, device: DLDevice, bytes: i64, memory: Box<dyn Send>) {
    if ends.iter().any(End::is_never) {
        return forget(memory);
    }
    let number = {
        let mut waiting = waiting();
        let number = waiting.next;
        waiting.next += 1;
        waiting.entries.push_back(Deferred {
            number,
            device,
            bytes: usize::try_from(bytes).unwrap_or(0),
            ends,
            memory,
        });
        waiting.wake();
        number
    };
    let bound = bound(device);
    while let Some((oldest, ends)) = beyond_bounds(number, device, bound) {
        let mut is_done = true;
        for end in &ends {
            is_done &= end.synchronize().is_ok();
        }
        look(oldest, ends);
        if !is_done {
            return;
        }
    }
}

/// Looks at an entry with these ends: releases its memory if all have been passed, and returns whether it is there no more.
/// No lock is held meanwhile, as the driver may block; another thread may look at it, too.
fn look(number: u64, ends: Vec<End>) -> bool {
    // Deleters free memory, which else invalidates captures of other threads. What has no point is not released.
    let _relaxed = (ends.first().and_then(End::point).cloned()).map(|point| point.relaxed());
    let ends: Vec<_> = ends.into_iter().filter_map(End::left).collect();
    let mut waiting = waiting();
    let place = waiting.place(number);
    let Some(entry) = (waiting.entries.get_mut(place)).filter(|entry| entry.number == number)
    else {
        return true;
    };
    let is_never = ends.iter().any(End::is_never);
    let is_over = is_never || ends.is_empty();
    let before = replace(&mut entry.ends, ends);
    let memory = is_over.then(|| replace(&mut entry.memory, Box::new(())));
    drop(waiting);
    // Python owns some streams.
    drop(before);
    if is_never {
        forget(memory);
    } else {
        drop(memory);
    }
    if is_over {
        // It counts until then.
        let mut waiting = self::waiting();
        waiting.entries.retain(|entry| entry.number != number);
    }
    is_over
}

/// Maximum number of deferred bytes on `device`.
fn bound(device: DLDevice) -> usize {
    /// Where the driver does not say how much memory there is, as of pinned memory.
    const UNKNOWN: usize = 1 << 30;
    static KNOWN: Lock<Vec<(DLDevice, usize)>> = Lock::new(Vec::new());
    let known = |(of, bound): &(DLDevice, usize)| (*of == device).then_some(*bound);
    if let Some(bound) = KNOWN.lock().iter().find_map(known) {
        return bound;
    }
    match blocking(|| driver::of(device)?.memory(device.device_id)) {
        Ok(bytes) => {
            let bound = bytes / PART;
            KNOWN.lock().push((device, bound));
            bound
        }
        Err(_) => UNKNOWN,
    }
}

/// The number and the ends of the oldest entry that can be waited for, if beside `new` there are too many entries, or too
/// many bytes on `here`, its device. The host does not wait for work that it has just queued.
fn beyond_bounds(new: u64, here: DLDevice, bound: usize) -> Option<(u64, Vec<End>)> {
    let waiting = waiting();
    let others = || (waiting.entries.iter()).filter(|entry| entry.number != new);
    let there = || others().filter(|entry| entry.device == here);
    let is_too_large = there().map(|entry| entry.bytes).sum::<usize>() > bound;
    if others().count() < COUNT && !is_too_large {
        return None;
    }
    let is_recorded = |entry: &&Deferred| entry.ends.iter().all(|end| end.point().is_some());
    let oldest = if is_too_large {
        there().find(is_recorded)
    } else {
        others().find(is_recorded)
    }?;
    Some((oldest.number, oldest.ends.clone()))
}

/// Looks once at each entry that is deferred by now; returns whether any was released.
fn pass() -> bool {
    let next = |number: u64| {
        let waiting = waiting();
        let found = waiting.entries.get(waiting.place(number));
        found.map(|entry| (entry.number, entry.ends.clone()))
    };
    let mut released = false;
    let (mut place, end) = (0, waiting().next);
    while let Some((number, ends)) = next(place).filter(|&(number, _)| number < end) {
        place = number + 1;
        released |= look(number, ends);
    }
    released
}

/// Releases entries as they become done, until there are none.
fn run() {
    let [first, last] = PAUSES;
    let (mut pause, mut seen) = (first, 0);
    loop {
        park_timeout(pause);
        let released = guard(pass, |_| false);
        let mut waiting = waiting();
        let is_idle = !released && waiting.next == seen;
        let is_over = waiting.is_over || (is_idle && pause == last && waiting.entries.is_empty());
        if is_over {
            waiting.thread = None;
            return;
        }
        seen = waiting.next;
        waiting.rests = is_idle;
        pause = if is_idle { last.min(2 * pause) } else { first };
    }
}

/// The number of tensors whose memory waits for a stream; what has passed is released now.
#[pyfunction]
pub(crate) fn deferred() -> usize {
    let mut waiting = waiting();
    if waiting.has_thread() {
        waiting.wake();
    }
    waiting.entries.len()
}

/// Ends the thread, and releases the remaining entries at interpreter exit, as they become done; after a second,
/// leaves the rest to the operating system: a kernel may never end.
pub(crate) fn finish() {
    const LIMIT: Duration = Duration::from_secs(1);
    let begin = Instant::now();
    {
        let mut waiting = waiting();
        waiting.is_over = true;
        waiting.rests = true;
        waiting.wake();
    }
    loop {
        // It enters Python, which it must not once the interpreter exits.
        let has_thread = waiting().has_thread();
        if !has_thread {
            pass();
        }
        let mut waiting = waiting();
        if !has_thread && waiting.entries.is_empty() {
            return;
        }
        if begin.elapsed() > LIMIT {
            let entries = take(&mut waiting.entries);
            drop(waiting);
            return forget(entries);
        }
        drop(waiting);
        blocking(|| sleep(PAUSES[0]));
    }
}
