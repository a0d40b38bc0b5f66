//! Atomics, by loom's. An operation on one is an access to the block that it lies in.

use real::ptr;
pub(crate) use real::sync::atomic::Ordering;

use super::alloc::accessed;
use super::thread::has_slept;
use super::{Anew, Number, number};
use crate::planted::{Bug, is_planted};

pub(crate) fn fence(order: Ordering) {
    if !is_planted(Bug::NoFence) {
        loom::sync::atomic::fence(order);
    }
}

/// The order of an operation, or the weaker one that is planted.
fn weakened(order: Ordering, bug: Bug, next: Ordering) -> Ordering {
    match order {
        _ if is_planted(bug) => Ordering::Relaxed,
        Ordering::SeqCst if is_planted(Bug::NotSequential) => next,
        _ => order,
    }
}

/// An atomic word that was `initial`.
struct Word {
    initial: usize,
    number: Anew<Number>,
}

impl Word {
    const fn new(initial: usize) -> Self {
        let number = Anew::new();
        Self { initial, number }
    }

    fn number(&self) -> &Number {
        accessed(ptr::from_ref(self).addr());
        self.number.get(number)
    }

    fn load(&self, order: Ordering) -> usize {
        let order = weakened(order, Bug::RelaxedLoads, Ordering::Acquire);
        let number = match has_slept() {
            // An update sees the latest value.
            true => self.number().fetch_add(0, order),
            false => self.number().load(order),
        };
        number.wrapping_add(self.initial)
    }

    fn store(&self, value: usize, order: Ordering) {
        let order = match order {
            Ordering::SeqCst if is_planted(Bug::NotSequential) => Ordering::Release,
            _ => order,
        };
        self.number().store(value.wrapping_sub(self.initial), order);
    }

    /// Changes the number in one step, or in two if that is planted.
    fn update(
        &self,
        order: Ordering,
        change: impl Fn(&Number, Ordering) -> usize,
        after: impl Fn(usize) -> usize,
    ) -> usize {
        let order = weakened(order, Bug::RelaxedUpdates, Ordering::AcqRel);
        if !is_planted(Bug::TornUpdates) {
            return change(self.number(), order).wrapping_add(self.initial);
        }
        let before = self
            .number()
            .load(Ordering::SeqCst)
            .wrapping_add(self.initial);
        let after = after(before).wrapping_sub(self.initial);
        self.number().store(after, Ordering::SeqCst);
        before
    }

    fn add(&self, by: usize, order: Ordering) -> usize {
        let change = |number: &Number, order| number.fetch_add(by, order);
        self.update(order, change, |value| value.wrapping_add(by))
    }

    fn swap(&self, value: usize, order: Ordering) -> usize {
        let number = value.wrapping_sub(self.initial);
        self.update(order, |place, order| place.swap(number, order), |_| value)
    }
}

macro_rules! integers {
    ($($name:ident $value:ty;)*) => {$(
        pub(crate) struct $name(Word);

        impl $name {
            pub(crate) const fn new(initial: $value) -> Self {
                Self(Word::new(initial as usize))
            }

            pub(crate) fn load(&self, order: Ordering) -> $value {
                self.0.load(order) as $value
            }

            pub(crate) fn store(&self, value: $value, order: Ordering) {
                self.0.store(value as usize, order);
            }

            pub(crate) fn fetch_add(&self, by: $value, order: Ordering) -> $value {
                self.0.add(by as usize, order) as $value
            }

            pub(crate) fn fetch_sub(&self, by: $value, order: Ordering) -> $value {
                self.0.add((by as usize).wrapping_neg(), order) as $value
            }
        }
    )*};
}

integers! {
    AtomicU8 u8;
    AtomicUsize usize;
}

pub(crate) struct AtomicBool(Word);

impl AtomicBool {
    pub(crate) const fn new(initial: bool) -> Self {
        Self(Word::new(initial as usize))
    }

    pub(crate) fn load(&self, order: Ordering) -> bool {
        self.0.load(order) != 0
    }

    pub(crate) fn store(&self, value: bool, order: Ordering) {
        self.0.store(value.into(), order);
    }

    pub(crate) fn swap(&self, value: bool, order: Ordering) -> bool {
        self.0.swap(value.into(), order) != 0
    }
}
