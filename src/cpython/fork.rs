//! Locks that a fork finds open: a child has one thread, so what another thread had locked would be locked for ever.
//!
//! A fork through Python holds the GIL, or has stopped all other threads of Python: those are not between two steps of
//! dlx. This is for what threads do without Python: deleters, and what runs while dlx lets other threads go on. A fork
//! waits until none of them is inside, and nobody goes in until it is done.

use std::cell::Cell;
use std::ffi::c_int;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use crate::cpython::boundary::guard;

/// How many threads are inside, and how many forks are under way.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
static FORKS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// How often this thread has gone in and not out.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

const MOMENT: Duration = Duration::from_micros(20);

/// What no fork comes between, until it is dropped. No code of Python's may run meanwhile.
pub(crate) struct Inside(());

impl Inside {
    /// Goes in, after the forks that are under way.
    pub(crate) fn enter() -> Self {
        let depth = DEPTH.get();
        DEPTH.set(depth + 1);
        if depth == 0 {
            while !try_enter() {
                sleep(MOMENT);
            }
        }
        Self(())
    }
}

/// Counts this thread as inside, unless there is a fork to wait for.
fn try_enter() -> bool {
    INSIDE.fetch_add(1, Ordering::SeqCst);
    let may_enter = FORKS.load(Ordering::SeqCst) == 0;
    if !may_enter {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
    may_enter
}

impl Drop for Inside {
    fn drop(&mut self) {
        let depth = DEPTH.get() - 1;
        DEPTH.set(depth);
        if depth == 0 {
            INSIDE.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// A mutex for threads that need not be Python's; a panic leaves it as it is.
#[derive(Default)]
pub(crate) struct Lock<T>(Mutex<T>);

/// What a [`Lock`] holds, to whoever has locked it.
pub(crate) struct Locked<'a, T>(MutexGuard<'a, T>, Inside);

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits for others, and for forks.
    pub(crate) fn lock(&self) -> Locked<'_, T> {
        let inside = Inside::enter();
        let value = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Locked(value, inside)
    }
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Locked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// Has the forks of this process wait, from the first call on.
#[cfg(unix)]
pub(crate) fn watch() {
    extern "C" fn prepare() {
        let wait = || {
            FORKS.fetch_add(1, Ordering::SeqCst);
            // A driver that forks in a call of dlx begins another program there.
            while DEPTH.get() == 0 && INSIDE.load(Ordering::SeqCst) > 0 {
                sleep(MOMENT);
            }
        };
        guard(wait, drop);
    }
    extern "C" fn parent() {
        let go_on = || FORKS.fetch_sub(1, Ordering::SeqCst);
        guard(go_on, |_| 0);
    }
    extern "C" fn child() {
        let alone = || {
            // Others were about to look whether they may go in.
            INSIDE.store(usize::from(DEPTH.get() > 0), Ordering::SeqCst);
            FORKS.store(0, Ordering::SeqCst);
        };
        guard(alone, drop);
    }
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.swap(true, Ordering::Relaxed) {
        // SAFETY: the functions read and write atomics and a number of the thread, which a child may do, and do not
        // unwind (S1); they stay as long as this library, which Python does not unload.
        let _: c_int = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    }
}

#[cfg(not(unix))]
pub(crate) fn watch() {}
