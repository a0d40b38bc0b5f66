//! Releases chains of owners without exhausting the stack.
//!
//! An array that holds a tensor that holds an array, and so on, is freed by nested calls, so a long chain overflows
//! the stack. Every link passes through dlx, which nests a limited number of releases and defers the rest until the
//! outermost call is done:
//!
//! ```text
//! within(release):  if depth == MOST: return false    # the caller passes the release to `later`
//!                   depth += 1; release(); depth -= 1
//!                   if outermost and anything is deferred: release the deferred links one by one
//! ```

#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::mem::{ManuallyDrop, take};

/// Maximum number of nested releases, the same that CPython allows its containers.
const MOST: i32 = 50;

/// A deferred release.
type Late = Box<dyn FnOnce()>;

thread_local! {
    /// Number of links that this thread is inside of, less one while releases are deferred, so that the outermost call
    /// sees a negative value.
    static DEPTH: Cell<i32> = const { Cell::new(0) };
    /// Deferred releases. Never dropped, so it is available until the thread ends; empty at depth 0.
    static LATE: RefCell<ManuallyDrop<Vec<Late>>> =
        const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

/// A release that is running, also where a panic ends it.
struct Nested<'a>(&'a Cell<i32>);

impl Drop for Nested<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Runs `let_go` and returns true, or returns false without running it if too many releases are nested; the caller
/// then passes it to [`later`].
#[inline(always)]
pub(crate) fn within(let_go: impl FnOnce()) -> bool {
    DEPTH.with(|depth| {
        if depth.get() >= MOST {
            return false;
        }
        depth.set(depth.get() + 1);
        let nested = Nested(depth);
        let_go();
        drop(nested);
        if depth.get() < 0 {
            catch_up();
        }
        true
    })
}

/// Runs `let_go` of `held`, which it ends; if too many releases are nested, `held` is dropped once the outermost is done.
#[inline(always)]
pub(crate) fn nested<T: 'static>(held: T, let_go: impl FnOnce(&mut T)) {
    let mut held = ManuallyDrop::new(held);
    if !within(|| let_go(&mut held)) {
        later(|| drop(ManuallyDrop::into_inner(held)));
    }
}

/// Runs `let_go` once the outermost release of this thread is done.
#[cold]
#[inline(never)]
pub(crate) fn later(let_go: impl FnOnce() + 'static) {
    let is_first = LATE.with_borrow_mut(|late| {
        late.push(Box::new(let_go));
        late.len() == 1
    });
    if is_first {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Runs the deferred releases, and those that they defer in turn.
#[cold]
#[inline(never)]
fn catch_up() {
    while let Some(let_go) = LATE.with_borrow_mut(|late| late.pop()) {
        DEPTH.set(1);
        let_go();
    }
    LATE.with_borrow_mut(|late| drop(take(&mut **late)));
    DEPTH.set(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link of a chain; records the depth at which it was dropped.
    struct Link(Option<Box<Link>>, std::rc::Rc<Cell<(usize, i32)>>);

    impl Drop for Link {
        fn drop(&mut self) {
            let mut next = self.0.take();
            let (count, deepest) = self.1.get();
            self.1.set((count + 1, deepest.max(DEPTH.get())));
            if !within(|| drop(next.take())) {
                later(|| drop(next));
            }
        }
    }

    #[test]
    fn a_chain_of_any_length_is_let_go_of_before_the_call_returns() {
        let seen = std::rc::Rc::new(Cell::new((0, 0)));
        let mut chain = None;
        for _ in 0..100_000 {
            chain = Some(Box::new(Link(chain, seen.clone())));
        }
        drop(chain);
        assert_eq!(seen.get(), (100_000, MOST));
        assert_eq!(DEPTH.get(), 0);
        assert_eq!(LATE.with_borrow(|late| late.capacity()), 0);
    }

    #[test]
    fn after_a_panic_the_next_chain_is_released_whole() {
        let panics = || within(|| std::panic::resume_unwind(Box::new(())));
        assert!(std::panic::catch_unwind(panics).is_err());
        let seen = std::rc::Rc::new(Cell::new((0, 0)));
        let mut chain = None;
        for _ in 0..1000 {
            chain = Some(Box::new(Link(chain, seen.clone())));
        }
        drop(chain);
        assert_eq!(seen.get(), (1000, MOST));
        assert_eq!(DEPTH.get(), 0);
    }
}
