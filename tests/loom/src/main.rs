//! Models of dlx's lock-free code: loom runs every interleaving, and every value that a weak memory lets a load see.
//!
//! The sources are those of dlx, unchanged. In this crate `std` is a module whose atomics, locks, threads and allocator
//! are those of `modelled.rs`, and `pyo3`, `libc` and the rooms that they use are as small as they can be. A model must
//! pass as the code is, and fail with each planted bug.
//!
//! loom makes no store visible before its thread has made it, so it does not try every reordering of `Relaxed`
//! operations; `SeqCst` is exact only where all accesses to an atomic are. Of each thread it remembers the last access
//! to an atomic, so each model is written from both sides. Not modelled is what relies on no order: the pool of events
//! behind the lock of `fork.rs`, and counters and flags that are set once.

#![no_std]
#![allow(
    dead_code,
    unused_imports,
    reason = "of the included files, only a part is modelled"
)]

extern crate self as libc;
extern crate self as pyo3;
extern crate self as std;
#[macro_use]
extern crate std as real;

pub(crate) use real::{boxed, cell, collections, marker, mem, ops, process, ptr, slice, time, vec};

#[macro_use]
mod modelled;
mod planted;
mod stubs;

pub(crate) use modelled::{alloc, sync, thread};
pub(crate) use stubs::{ffi, prelude, pthread_atfork, types};

#[path = "../../../src/abi.rs"]
mod abi;

#[path = "../../../src/cpython"]
mod cpython {
    pub(crate) use crate::stubs::{boundary, depth, interpreter};
    pub(crate) mod fork;
    pub(crate) mod type_map;
}

#[path = "../../../src/tensor"]
mod tensor {
    pub(crate) mod block;
    pub(crate) mod managed;
}

mod models {
    pub(crate) mod blocks;
    pub(crate) mod forks;
    pub(crate) mod offers;
    pub(crate) mod slots;
    pub(crate) mod type_maps;
}

use planted::Bug::*;

fn main() -> process::ExitCode {
    models::slots::is_as_there();
    let mut all = true;
    let mut run = |name, model: fn(), bugs| all &= planted::check(name, model, bugs);
    run(
        "block: released by two",
        models::blocks::released,
        &[RelaxedLoads, RelaxedUpdates, NoFence, TornUpdates],
    );
    run(
        "block: the sole holder takes the value",
        models::blocks::taken,
        &[RelaxedLoads, RelaxedUpdates, TornUpdates],
    );
    run(
        "offer: accepted, and deleted by another thread",
        models::offers::accepted,
        &[RelaxedUpdates, TornUpdates],
    );
    run("offer: refused", models::offers::refused, &[]);
    run(
        "fork: while a thread is inside",
        models::forks::apart,
        &[NotSequential],
    );
    run(
        "fork: after two threads were inside",
        models::forks::counted,
        &[TornUpdates, NoLock],
    );
    run(
        "type map: added by two",
        models::type_maps::added,
        &[TornOnce, NeverTheSame],
    );
    run("slot: claimed by two", models::slots::claimed, &[NoLock]);
    run("slot: inherited", models::slots::inherited, &[NoLock]);
    process::ExitCode::from(u8::from(!all))
}
