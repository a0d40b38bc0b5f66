//! `exchange/slot.rs`: the pool of tables. This is a copy of what it does with locks and atomics, without PyO3, the tables
//! and the origin, which the rest of that file consists of; [`is_as_there`] compares the statements.

use loom::thread;

use crate::modelled::sync::atomic::{AtomicBool, Ordering};
use crate::modelled::sync::{Mutex, OnceLock, PoisonError};

static POOL: [OnceLock<Slot>; 2] = [const { OnceLock::new() }; 2];
static CLAIMING: Mutex<()> = Mutex::new(());

struct Slot {
    address: usize,
    is_alive: AtomicBool,
    heir: Mutex<Option<&'static Slot>>,
}

const ONE: usize = 16;
const TWO: usize = 32;

impl Slot {
    fn claim(address: usize) -> &'static Self {
        let _claiming = CLAIMING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = used().find(|slot| slot.is_for(address)) {
            return slot;
        }
        let place = &POOL[used().count()];
        let made = place.set(Self {
            address,
            is_alive: AtomicBool::new(true),
            heir: Mutex::new(None),
        });
        drop(made);
        place.get().expect("set above, or by another thread")
    }

    fn is_alive(&self) -> bool {
        self.is_alive.load(Ordering::Acquire)
    }

    fn is_for(&self, address: usize) -> bool {
        self.address == address && self.is_alive()
    }

    fn serving(&'static self) -> &'static Self {
        if self.is_alive() {
            return self;
        }
        let heir = self.heir.lock().unwrap_or_else(PoisonError::into_inner);
        heir.unwrap_or(self)
    }

    fn inherit(&self, heir: &'static Self) {
        *self.heir.lock().unwrap_or_else(PoisonError::into_inner) = Some(heir);
    }

    fn forget(&self) {
        self.is_alive.store(false, Ordering::Release);
    }
}

fn used() -> impl Iterator<Item = &'static Slot> {
    POOL.iter().map_while(OnceLock::get)
}

/// Fails where `slot.rs` no longer has these statements, in this order.
pub(crate) fn is_as_there() {
    let mut rest = include_str!("../../../../src/exchange/slot.rs");
    for statement in [
        "let _claiming = CLAIMING.lock();",
        "if let Some(slot) = Self::given_to(class) {",
        "let index = used().count();",
        "let Some(place) = POOL.get(index) else {",
        "Ok(Some(place.get_or_init(|| Self {",
        "used().find(|slot| slot.is_for(class.as_ptr()))",
        "if self.is_alive() {",
        "self.heir.lock().unwrap_or(self)",
        "self.is_alive.load(Ordering::Acquire)",
        "self.address == class.addr() && self.is_alive()",
        "*self.heir.lock() = Some(heir);",
        "POOL.iter().map_while(OnceLock::get)",
        "slot.is_alive.store(false, Ordering::Release);",
    ] {
        let found = rest.split_once(statement);
        rest = found
            .map(|(_, after)| after)
            .unwrap_or_else(|| panic!("no {statement}"));
    }
}

/// Two threads claim slots for the same class and for another: each gets that of its class.
pub(crate) fn claimed() {
    let claim = |address| {
        let slot = Slot::claim(address);
        assert_eq!(slot.address, address);
        real::ptr::from_ref(slot).addr()
    };
    let thread = thread::spawn(move || (claim(ONE), claim(TWO)));
    let here = claim(TWO);
    assert_eq!(here, thread.join().expect("no panic").1);
}

/// A later class at the address of a dead one has claimed a slot and inherits while a consumer uses the table: it gets
/// the slot of either.
pub(crate) fn inherited() {
    let old = Slot::claim(ONE);
    old.forget();
    let thread = thread::spawn(move || old.inherit(Slot::claim(ONE)));
    let found = old.serving();
    assert!(found.is_alive() || real::ptr::eq(found, old));
    thread.join().expect("no panic");
}
