//! Chains of owners, let go of link by link.
//!
//! An array that holds a tensor that holds an array, and so on, is freed by calls inside calls, for which a stack has
//! no room where the chain is long enough. So dlx, through which each link goes, lets go of so many inside each other;
//! what is further down waits until the outermost call is done.

#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::mem::{ManuallyDrop, take};

/// Links that are let go of inside each other, at most: as many as CPython allows its containers.
const MOST: i32 = 50;

/// A call that lets go of a link.
type Late = Box<dyn FnOnce()>;

thread_local! {
    /// How many links this thread is inside of; one less where something waits, so that the outermost call ends below 0.
    static DEPTH: Cell<i32> = const { Cell::new(0) };
    /// What waits. Never dropped, so that it is there as long as the thread; it is empty at depth 0.
    static LATE: RefCell<ManuallyDrop<Vec<Late>>> =
        const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

/// Calls what lets go of a link. Where there are too many, it does not, and what was to be let go is left to [`later`].
///
/// A panic leaves the thread a link deeper, where less is let go of at once and nothing too late.
#[inline(always)]
pub(crate) fn within(let_go: impl FnOnce()) -> bool {
    DEPTH.with(|depth| {
        if depth.get() >= MOST {
            return false;
        }
        depth.set(depth.get() + 1);
        let_go();
        depth.set(depth.get() - 1);
        if depth.get() < 0 {
            catch_up();
        }
        true
    })
}

/// Calls what lets go of a link when this thread has let go of those that it is inside of.
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

/// Lets go of what waits, and of what comes to wait meanwhile.
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

    /// A link of a chain, and how deep it was let go.
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
}
