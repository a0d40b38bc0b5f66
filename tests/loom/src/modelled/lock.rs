//! Locks, places that are filled once, and what only one thread may use.

use real::cell::UnsafeCell;
use real::ops::{Deref, DerefMut};
pub(crate) use real::sync::{LockResult, PoisonError};

use loom::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use super::{Anew, Number, Tracked, number, tracked};
use crate::planted::{Bug, is_planted};

struct Turn {
    lock: loom::sync::Mutex<()>,
    tracked: Tracked<()>,
}

pub(crate) struct Mutex<T> {
    value: UnsafeCell<T>,
    turn: Anew<Turn>,
}

// SAFETY: as for `Anew`.
unsafe impl<T> Sync for Mutex<T> {}

pub(crate) struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    tracked: &'a Tracked<()>,
    _turn: Option<loom::sync::MutexGuard<'a, ()>>,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            value: UnsafeCell::new(value),
            turn: Anew::new(),
        }
    }

    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let turn = self.turn.get(|| Turn {
            lock: loom::sync::Mutex::new(()),
            tracked: tracked(),
        });
        let locked = || turn.lock.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(MutexGuard {
            mutex: self,
            tracked: &turn.tracked,
            _turn: (!is_planted(Bug::NoLock)).then(locked),
        })
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.tracked.with(|_| ());
        // SAFETY: locked, or loom has said that it is not.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.tracked.with_mut(|_| ());
        // SAFETY: locked, or loom has said that it is not.
        unsafe { &mut *self.mutex.value.get() }
    }
}

/// As std's: of several threads, one writes, and the others wait for it.
struct Once<T> {
    state: Number,
    value: UnsafeCell<Option<T>>,
    tracked: Tracked<()>,
}

const EMPTY: usize = 0;
const FILLING: usize = 1;
const FULL: usize = 2;

pub(crate) struct OnceLock<T>(Anew<Once<T>>);

impl<T> OnceLock<T> {
    pub(crate) const fn new() -> Self {
        Self(Anew::new())
    }

    fn once(&self) -> &Once<T> {
        self.0.get(|| Once {
            state: number(),
            value: UnsafeCell::new(None),
            tracked: tracked(),
        })
    }

    pub(crate) fn get(&self) -> Option<&T> {
        let once = self.once();
        if once.state.load(Acquire) != FULL {
            return None;
        }
        once.tracked.with(|_| ());
        // SAFETY: full, and so written before.
        unsafe { (*once.value.get()).as_ref() }
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        let once = self.once();
        let first = if is_planted(Bug::TornOnce) {
            once.state.load(Acquire) == EMPTY
        } else {
            let claimed = once.state.compare_exchange(EMPTY, FILLING, AcqRel, Acquire);
            claimed.is_ok()
        };
        if !first {
            while once.state.load(Acquire) != FULL {
                loom::thread::yield_now();
            }
            return Err(value);
        }
        once.tracked.with_mut(|_| ());
        // SAFETY: claimed by this thread alone, or loom has said that it is not.
        unsafe { *once.value.get() = Some(value) };
        once.state.store(FULL, Release);
        Ok(())
    }
}

/// Something that only one thread may use at a time.
pub(crate) struct Alone(Anew<Tracked<()>>);

impl Alone {
    pub(crate) const fn new() -> Self {
        Self(Anew::new())
    }

    pub(crate) fn claim(&self) {
        self.0.get(tracked).with_mut(|_| ());
    }
}
