//! `exchange/slot.rs`: the pool of tables. This is a copy of what it does with atomics, without PyO3, the tables and the
//! origin, which the rest of that file consists of; [`is_as_there`] compares the statements.

use real::ptr::null_mut;

use loom::thread;

use crate::modelled::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use crate::modelled::sync::{Mutex, OnceLock, PoisonError};

static POOL: [Slot; 2] = [const { Slot::new() }; 2];
static USED: AtomicUsize = AtomicUsize::new(0);
static CLAIMING: Mutex<()> = Mutex::new(());

struct Slot {
    class: AtomicPtr<u8>,
    holder: OnceLock<usize>,
    heir: AtomicUsize,
}

const ONE: *mut u8 = real::ptr::without_provenance_mut(16);

impl Slot {
    const fn new() -> Self {
        Self {
            class: AtomicPtr::null(),
            holder: OnceLock::new(),
            heir: AtomicUsize::new(0),
        }
    }

    fn claim(class: *mut u8) -> &'static Self {
        let _claiming = CLAIMING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = POOL.iter().find(|slot| slot.is_for(class)) {
            return slot;
        }
        let slot = &POOL[USED.fetch_add(1, Ordering::Relaxed)];
        assert!(slot.holder.set(class.addr()).is_ok());
        slot.class.store(class, Ordering::Release);
        slot
    }

    fn is_for(&self, class: *mut u8) -> bool {
        self.class.load(Ordering::Acquire) == class
    }

    fn heir(&self) -> Option<&'static Self> {
        let number = self.heir.load(Ordering::Acquire).checked_sub(1)?;
        POOL.get(number)
    }

    fn inherit(&self, number: usize) {
        self.heir.store(number + 1, Ordering::Release);
    }

    fn forget(&self) {
        self.class.store(null_mut(), Ordering::Release);
    }
}

/// Fails where `slot.rs` no longer has these statements, in this order.
pub(crate) fn is_as_there() {
    let mut rest = include_str!("../../../../src/exchange/slot.rs");
    for statement in [
        "let _claiming = CLAIMING.lock().unwrap_or_else(PoisonError::into_inner);",
        "POOL.iter().find(|slot| slot.is_for(class.as_ptr()))",
        "USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)",
        "slot.holder.get_or_init(|| Holder {",
        "slot.class.store(class.as_ptr(), Ordering::Release);",
        "let heir = self.is_for(null_mut()).then(|| self.heir()).flatten();",
        "let number = self.heir.load(Ordering::Acquire).checked_sub(1)?;",
        "self.class.load(Ordering::Acquire) == class",
        "self.heir.store(heir.number() + 1, Ordering::Release);",
        "slot.class.store(null_mut(), Ordering::Release);",
    ] {
        let found = rest.split_once(statement);
        rest = found
            .map(|(_, after)| after)
            .unwrap_or_else(|| panic!("no {statement}"));
    }
}

/// Whoever finds the slot of a class finds its holder in it.
///
/// The thread that loom begins with claims: of each thread, loom keeps the last access to an atomic, and so misses that
/// the load at the beginning of a claim, too, is before the other's.
pub(crate) fn found() {
    let thread = thread::spawn(|| {
        if let Some(slot) = POOL.iter().find(|slot| slot.is_for(ONE)) {
            assert_eq!(slot.holder.get(), Some(&ONE.addr()));
        }
    });
    Slot::claim(ONE);
    thread.join().expect("no panic");
}

/// Two threads claim a slot for the same class, and get the same.
pub(crate) fn claimed() {
    let thread = thread::spawn(|| real::ptr::from_ref(Slot::claim(ONE)).addr());
    let here = real::ptr::from_ref(Slot::claim(ONE)).addr();
    assert_eq!(here, thread.join().expect("no panic"));
}

/// A later class at the address of a dead one has claimed a slot and inherits: whoever sees the heir finds its holder.
pub(crate) fn inherited() {
    let old = Slot::claim(ONE);
    old.forget();
    let thread = thread::spawn(move || {
        Slot::claim(ONE);
        old.inherit(1);
    });
    if let Some(heir) = old.is_for(null_mut()).then(|| old.heir()).flatten() {
        assert_eq!(heir.holder.get(), Some(&ONE.addr()));
    }
    thread.join().expect("no panic");
}
