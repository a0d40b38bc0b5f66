//! What `std` is in the included sources: atomics, locks, thread-locals and the allocator, on loom.
//!
//! Constructors are constant, as those of `std`. So what loom tracks is made when an execution begins, before any
//! thread starts, and taken at the first access: an atomic's number says how far the value is from its initial one.

macro_rules! thread_local {
    ($(#[$attribute:meta])* static $name:ident: $type:ty = const $initial:block;) => {
        $(#[$attribute])*
        static $name: crate::modelled::thread::Local<$type> = crate::modelled::thread::Local::new($initial);
    };
}

pub(crate) mod alloc;
pub(crate) mod atomic;
mod lock;
pub(crate) mod thread;

pub(crate) mod sync {
    pub(crate) use super::atomic;
    pub(crate) use super::lock::*;
}

use real::cell::{Cell, RefCell, UnsafeCell};
use real::sync::atomic::{AtomicUsize, Ordering};
use real::vec::Vec;

use loom::cell::UnsafeCell as Tracked;
use loom::sync::atomic::AtomicUsize as Number;

/// How many atomics and how many tracked values one execution may have.
const STOCK: usize = 16;

#[derive(Default)]
struct Stock {
    numbers: Vec<Number>,
    tracked: Vec<Tracked<()>>,
}

real::thread_local! {
    /// The number of the execution. Those of a model follow each other on one thread of the system.
    static EXECUTION: Cell<usize> = const { Cell::new(0) };
    static STOCKED: RefCell<Stock> = RefCell::default();
}

/// Begins an execution, before it starts a thread.
pub(crate) fn begin() {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    EXECUTION.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
    alloc::begin();
    let number = || {
        let number = Number::new(0);
        // So that loom knows which `SeqCst` stores come after it.
        number.store(0, Ordering::SeqCst);
        number
    };
    STOCKED.set(Stock {
        numbers: (0..STOCK).map(|_| number()).collect(),
        tracked: (0..STOCK).map(|_| Tracked::new(())).collect(),
    });
}

/// Something that each execution has anew.
struct Anew<T> {
    execution: Cell<usize>,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: all threads of a model run on one thread of the system, and models share no statics.
unsafe impl<T> Sync for Anew<T> {}
// SAFETY: as for `Sync`.
unsafe impl<T> Send for Anew<T> {}

impl<T> Anew<T> {
    const fn new() -> Self {
        Self {
            execution: Cell::new(0),
            value: UnsafeCell::new(None),
        }
    }

    fn get(&self, make: impl FnOnce() -> T) -> &T {
        if self.execution.replace(EXECUTION.get()) != EXECUTION.get() {
            // SAFETY: references to the value end with the execution that made it.
            unsafe { *self.value.get() = Some(make()) };
        }
        // SAFETY: as above; nothing replaces it within the execution.
        unsafe { (*self.value.get()).as_ref() }.expect("made above")
    }
}

fn number() -> Number {
    STOCKED.with_borrow_mut(|stock| stock.numbers.pop().expect("a larger STOCK"))
}

fn tracked() -> Tracked<()> {
    STOCKED.with_borrow_mut(|stock| stock.tracked.pop().expect("a larger STOCK"))
}
