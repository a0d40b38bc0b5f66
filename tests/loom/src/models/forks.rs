//! `cpython/fork.rs`: a fork waits until no thread is inside a lock, and no thread enters one before it is done.

use loom::thread;

use crate::cpython::fork::{Lock, watch};
use crate::modelled::sync::Alone;
use crate::stubs::at_fork;

static LOCK: Lock<u64> = Lock::new(0);
/// What a child would find half done.
static STATE: Alone = Alone::new();

fn enter() {
    let mut locked = LOCK.lock();
    *locked += 1;
    STATE.claim();
}

fn fork() {
    let [prepare, parent, _] = at_fork();
    // SAFETY: as the C library calls it.
    unsafe { prepare() };
    STATE.claim();
    // SAFETY: as the C library calls it.
    unsafe { parent() };
}

/// One thread is inside the lock, and another forks. Both go on afterwards.
pub(crate) fn apart() {
    watch();
    let enters = thread::spawn(enter);
    fork();
    enters.join().expect("no panic");
    enter();
}

/// Two threads are inside locks one after the other, and no count of them is lost: a later fork does not wait for ever.
pub(crate) fn counted() {
    watch();
    let enters = thread::spawn(enter);
    enter();
    enters.join().expect("no panic");
    fork();
}
