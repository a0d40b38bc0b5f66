//! Locks that are free whenever the process forks: the child has a single thread, so a lock held by any other would
//! stay locked forever.
//!
//! A fork through Python holds the GIL or has stopped Python's other threads, so attached threads are not inside dlx's
//! locks. These locks are for code that runs detached: deleters, and the parts of dlx that release the GIL. A fork
//! waits until no thread is inside, and no thread enters until the fork is done.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

#[cfg(unix)]
use crate::cpython::interpreter;

/// Number of threads inside a lock, and number of forks in progress.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
static FORKS: AtomicUsize = AtomicUsize::new(0);
/// How many forks this process is away from the one that loaded dlx.
static GENERATION: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// How many times this thread has entered without leaving.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

const MOMENT: Duration = Duration::from_micros(20);

/// Keeps forks out until dropped. No Python code may run meanwhile.
pub(crate) struct Inside(());

impl Inside {
    /// Enters, after any fork in progress.
    ///
    /// Each side announces itself before it looks for the other, so at least one of them sees the other:
    ///
    /// ```text
    /// enter:  INSIDE += 1; while FORKS > 0: INSIDE -= 1, sleep, INSIDE += 1
    /// fork:   FORKS += 1; while INSIDE > 0: sleep; fork; FORKS -= 1
    /// ```
    pub(crate) fn enter() -> Self {
        let depth = DEPTH.get();
        DEPTH.set(depth + 1);
        if depth == 0 {
            INSIDE.fetch_add(1, Ordering::SeqCst);
            while FORKS.load(Ordering::SeqCst) > 0 {
                INSIDE.fetch_sub(1, Ordering::SeqCst);
                sleep(MOMENT);
                INSIDE.fetch_add(1, Ordering::SeqCst);
            }
        }
        Self(())
    }
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

/// A mutex for threads that may be detached. A panic does not poison it.
#[derive(Default)]
pub(crate) struct Lock<T>(Mutex<T>);

/// The guard of a locked [`Lock`].
pub(crate) struct Locked<'a, T>(MutexGuard<'a, T>, Inside);

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits for other threads, and for forks.
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

/// A number that a forked child does not share with its parent.
pub(crate) fn generation() -> usize {
    GENERATION.load(Ordering::Relaxed)
}

/// Installs the fork handlers of this process, once.
#[cfg(unix)]
pub(crate) fn watch() {
    use std::ffi::c_int;
    use std::sync::atomic::AtomicBool;

    use crate::cpython::boundary::guard;

    extern "C" fn prepare() {
        let wait = || {
            FORKS.fetch_add(1, Ordering::SeqCst);
            // A driver that forks during a call of dlx execs another program, and its fork need not wait.
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
            // Other threads may have been counted while they tried to enter; the child has none of them.
            INSIDE.store(usize::from(DEPTH.get() > 0), Ordering::SeqCst);
            FORKS.store(0, Ordering::SeqCst);
            GENERATION.fetch_add(1, Ordering::SeqCst);
            interpreter::forked();
        };
        guard(alone, drop);
    }
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.swap(true, Ordering::Relaxed) {
        // SAFETY: the handlers access only atomics and a thread-local number, which a child may do, and do not unwind
        // (S1, panics). They stay mapped with this library, which Python does not unload.
        let _: c_int = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    }
}

/// Windows has no forks.
#[cfg(not(unix))]
pub(crate) fn watch() {}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    #[test]
    fn a_lock_that_another_thread_holds_is_free_in_a_child() {
        use std::sync::mpsc::channel;
        use std::thread;

        use super::*;

        static LOCK: Lock<()> = Lock::new(());
        watch();
        let (holds, held) = channel();
        let other = thread::spawn(move || {
            let _locked = LOCK.lock();
            let _ = holds.send(());
            sleep(Duration::from_millis(200));
        });
        assert_eq!(held.recv(), Ok(()));
        // SAFETY: the child takes the lock, and ends without what the other tests have begun.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends a child that waits forever.
            unsafe { libc::alarm(10) };
            drop(LOCK.lock());
            // SAFETY: does not return.
            unsafe { libc::_exit(0) };
        }
        assert!(other.join().is_ok());
        let mut status = -1;
        // SAFETY: our child, and a number to fill.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
