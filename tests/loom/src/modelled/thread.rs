//! Sleeping, and cells of each thread.

use real::cell::{Cell, RefCell};
use real::time::Duration;
use real::vec::Vec;

use super::Anew;

/// How often a thread has slept.
static SLEPT: Local<Cell<usize>> = Local::new(Cell::new(0));

/// Another thread goes on. After a while this one sees stores as they are made, and loom tries one way only: a
/// thread that sleeps in a loop would never end if it could see an old value each time.
pub(crate) fn sleep(_: Duration) {
    SLEPT.set(SLEPT.get() + 1);
    if has_slept() {
        loom::skip_branch();
    }
    loom::thread::yield_now();
}

pub(super) fn has_slept() -> bool {
    SLEPT.get() > 3
}

/// A cell of each thread of the model.
pub(crate) struct Local<T>(Anew<RefCell<Vec<(loom::thread::ThreadId, T)>>>, T);

impl<T: Copy> Local<Cell<T>> {
    fn place<R>(&self, found: impl FnOnce(&Cell<T>) -> R) -> R {
        let here = loom::thread::current().id();
        let mut all = self.0.get(RefCell::default).borrow_mut();
        let index = all.iter().position(|(thread, _)| *thread == here);
        let index = index.unwrap_or_else(|| {
            all.push((here, Cell::new(self.1.get())));
            all.len() - 1
        });
        found(&all[index].1)
    }

    pub(crate) fn get(&self) -> T {
        self.place(Cell::get)
    }

    pub(crate) fn set(&self, value: T) {
        self.place(|cell| cell.set(value));
    }
}

impl<T> Local<T> {
    pub(crate) const fn new(initial: T) -> Self {
        Self(Anew::new(), initial)
    }
}

// SAFETY: as for `Anew`; the initial value is only read.
unsafe impl<T> Sync for Local<T> {}
