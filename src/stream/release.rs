//! Deferred release of memory that a stream may still use (H3 to H5).
//!
//! A deleter may run on any thread, attached or not, during a capture, inside a host function, and after the driver is
//! gone. Memory is released once its streams have passed the ends of their uses, or nothing runs any more. An error
//! that says neither leaves it for later.
//!
//! A thread asks for that, which lives while memory is deferred: no call into dlx need follow a release.

#![forbid(unsafe_code)]

use std::mem::{forget, replace, take};
use std::process;
use std::sync::Arc;
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
use crate::stream::order::{self, Waits};
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
    device: DLDevice,
    bytes: usize,
    held: Lock<Held>,
}

/// Behind one lock, so that whoever finds no ends finds no memory.
struct Held {
    ends: Vec<End>,
    /// `None` once it is being released.
    memory: Option<Box<dyn Send>>,
}

/// All deferred entries, oldest first.
struct Waiting {
    entries: Vec<Arc<Deferred>>,
    /// Whether one has come in since the thread has asked last.
    has_new: bool,
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
}

fn waiting() -> Locked<'static, Waiting> {
    static WAITING: Lock<Waiting> = Lock::new(Waiting {
        entries: Vec::new(),
        has_new: false,
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
    let mut ends: Vec<_> = usage.uses.lock().drain(..).collect();
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
    let new = Arc::new(Deferred {
        device,
        bytes: usize::try_from(bytes).unwrap_or(0),
        held: Lock::new(Held {
            ends,
            memory: Some(memory),
        }),
    });
    {
        let mut waiting = waiting();
        waiting.entries.push(new.clone());
        waiting.has_new = true;
        waiting.wake();
    }
    let bound = bound(device);
    while let Some(oldest) = beyond_bounds(&new, bound) {
        let mut waits = Waits::default();
        (oldest.held.lock().ends.iter()).for_each(|end| end.collect(&mut waits));
        let is_done = waits.synchronize().is_ok();
        look(&oldest);
        if !is_done {
            return;
        }
    }
}

/// Looks at an entry: releases its memory if all ends have been passed, and returns whether it is there no more. No lock is
/// held meanwhile, as the driver may block; another thread may look at it, too.
fn look(entry: &Arc<Deferred>) -> bool {
    let ends = entry.held.lock().ends.clone();
    // Deleters free memory, which else invalidates captures of other threads. What has no point is not released.
    let _relaxed = (ends.first().and_then(End::point)).map(|point| point.relaxed());
    let ends: Vec<_> = ends.into_iter().filter_map(End::left).collect();
    let is_never = ends.iter().any(End::is_never);
    let is_over = is_never || ends.is_empty();
    let (before, memory) = {
        let mut held = entry.held.lock();
        let memory = is_over.then(|| held.memory.take()).flatten();
        (replace(&mut held.ends, ends), memory)
    };
    // Python owns some streams.
    drop(before);
    if is_never {
        forget(memory);
    } else {
        drop(memory);
    }
    if is_over {
        // It counts until then.
        (waiting().entries).retain(|known| !Arc::ptr_eq(known, entry));
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

/// The oldest entry that can be waited for, if beside `new` there are too many entries, or too many bytes on its device.
/// The host does not wait for work that it has just queued.
fn beyond_bounds(new: &Arc<Deferred>, bound: usize) -> Option<Arc<Deferred>> {
    let waiting = waiting();
    let others = || (waiting.entries.iter()).filter(|entry| !Arc::ptr_eq(entry, new));
    let there = || others().filter(|entry| entry.device == new.device);
    let is_too_large = there().map(|entry| entry.bytes).sum::<usize>() > bound;
    if others().count() < COUNT && !is_too_large {
        return None;
    }
    let is_recorded =
        |entry: &&Arc<Deferred>| (entry.held.lock().ends.iter()).all(|end| end.point().is_some());
    let oldest = if is_too_large {
        there().find(is_recorded)
    } else {
        others().find(is_recorded)
    };
    oldest.cloned()
}

/// Looks once at each entry that is deferred by now; returns whether any was released.
fn pass() -> bool {
    let entries = waiting().entries.clone();
    let released = entries.iter().filter(|entry| look(entry));
    released.count() > 0
}

/// Releases entries as they become done, until there are none.
fn run() {
    let [first, last] = PAUSES;
    let mut pause = first;
    loop {
        park_timeout(pause);
        let released = guard(pass, |_| false);
        let mut waiting = waiting();
        let has_new = take(&mut waiting.has_new);
        let is_idle = !released && !has_new;
        let is_over = waiting.is_over || (is_idle && pause == last && waiting.entries.is_empty());
        if is_over {
            waiting.thread = None;
            return;
        }
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
