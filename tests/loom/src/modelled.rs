//! What `std` is in the included sources: atomics, locks, thread-locals and the allocator, on loom.
//!
//! Constructors are constant, as those of `std`. So what loom tracks is made when an execution begins, before any
//! thread starts, and taken at the first access: an atomic's number says how far the value is from its initial one.

use real::cell::{Cell, RefCell, UnsafeCell};
use real::rc::Rc;
use real::sync::atomic::{AtomicUsize, Ordering};
use real::vec::Vec;

use loom::cell::UnsafeCell as Tracked;
use loom::sync::atomic::AtomicUsize as Number;

use crate::planted::{Bug, is_planted};

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

pub(crate) mod sync {
    use real::cell::UnsafeCell;
    use real::ops::{Deref, DerefMut};
    pub(crate) use real::sync::{LockResult, PoisonError};

    use loom::sync::atomic::Ordering::{AcqRel, Acquire, Release};

    use super::{Anew, Bug, Number, Tracked, is_planted, number, tracked};

    pub(crate) mod atomic {
        use real::marker::PhantomData;
        use real::ptr;
        pub(crate) use real::sync::atomic::Ordering;

        use super::super::alloc::accessed;
        use super::super::thread::has_slept;
        use super::super::{Anew, Bug, Number, is_planted, number};

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
                let order = weakened(order, Bug::RelaxedStores, Ordering::Release);
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

            pub(crate) fn swap(&self, value: bool, order: Ordering) -> bool {
                self.0.swap(value.into(), order) != 0
            }
        }

        /// A pointer, by its address.
        pub(crate) struct AtomicPtr<T>(Word, PhantomData<*mut T>);

        // SAFETY: an address.
        unsafe impl<T> Sync for AtomicPtr<T> {}

        impl<T> AtomicPtr<T> {
            pub(crate) const fn null() -> Self {
                Self(Word::new(0), PhantomData)
            }

            pub(crate) fn load(&self, order: Ordering) -> *mut T {
                ptr::without_provenance_mut(self.0.load(order))
            }

            pub(crate) fn store(&self, pointer: *mut T, order: Ordering) {
                self.0.store(pointer.addr(), order);
            }
        }
    }

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
}

pub(crate) mod thread {
    use real::cell::Cell;
    use real::time::Duration;

    use super::Local;

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

macro_rules! thread_local {
    ($(#[$attribute:meta])* static $name:ident: $type:ty = const $initial:block;) => {
        $(#[$attribute])*
        static $name: crate::modelled::Local<$type> = crate::modelled::Local::new($initial);
    };
}

pub(crate) mod alloc {
    pub(crate) use real::alloc::{GlobalAlloc, Layout, handle_alloc_error};
    use real::collections::BTreeMap;

    use super::{Rc, RefCell, Tracked};

    struct Block {
        layout: Layout,
        is_freed: bool,
        tracked: Rc<Tracked<()>>,
    }

    real::thread_local! {
        /// All blocks of the execution, which stay until it ends.
        static BLOCKS: RefCell<BTreeMap<usize, Block>> = const { RefCell::new(BTreeMap::new()) };
    }

    /// The system's allocator. Freeing must come after every access to an atomic in the block.
    pub(crate) struct System;

    // SAFETY: blocks of the real one, each of its own.
    unsafe impl GlobalAlloc for System {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller's layout is not empty.
            let start = unsafe { real::alloc::System.alloc(layout) };
            let block = Block {
                layout,
                is_freed: false,
                tracked: Rc::new(Tracked::new(())),
            };
            BLOCKS.with_borrow_mut(|blocks| blocks.insert(start.expose_provenance(), block));
            start
        }

        unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
            let tracked = BLOCKS.with_borrow_mut(|blocks| {
                let block = blocks.get_mut(&start.addr()).expect("a block");
                assert!(!block.is_freed, "freed twice");
                assert_eq!(block.layout, layout);
                block.is_freed = true;
                block.tracked.clone()
            });
            tracked.with_mut(|_| ());
        }
    }

    /// Notes an access to an address, in a block or not.
    pub(super) fn accessed(address: usize) {
        let tracked = BLOCKS.with_borrow(|blocks| {
            let (start, block) = blocks.range(..=address).next_back()?;
            let is_inside = address - start < block.layout.size();
            assert!(
                !(is_inside && block.is_freed),
                "accessed after it was freed"
            );
            is_inside.then(|| block.tracked.clone())
        });
        if let Some(tracked) = tracked {
            tracked.with(|_| ());
        }
    }

    /// Frees the blocks of the execution before.
    pub(super) fn begin() {
        for (start, block) in BLOCKS.take() {
            // SAFETY: allocated with this layout; the execution that had it has ended.
            unsafe {
                real::alloc::System
                    .dealloc(real::ptr::with_exposed_provenance_mut(start), block.layout);
            }
        }
    }

    /// Fails if the execution leaves a block.
    pub(crate) fn end() {
        assert!(
            BLOCKS.with_borrow(|blocks| blocks.values().all(|block| block.is_freed)),
            "a leak"
        );
    }
}
