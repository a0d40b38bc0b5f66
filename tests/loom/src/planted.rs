//! Runs a model as the code is, then with each planted bug, which it must find.

use real::boxed::Box;
use real::cell::Cell;
use real::string::String;
use real::sync::atomic::{AtomicUsize, Ordering};
use real::{panic, thread};

use crate::modelled;

/// What a model of the code must find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bug {
    /// Loads synchronize with nothing.
    RelaxedLoads,
    /// Updates synchronize with nothing.
    RelaxedUpdates,
    /// Fences are left out.
    NoFence,
    /// `SeqCst` is only `Acquire` and `Release`.
    NotSequential,
    /// An update is a load, and then a store.
    TornUpdates,
    /// A place that is filled once is looked at, and then filled.
    TornOnce,
    /// Locks do not lock.
    NoLock,
    /// A type is not recognized as the one that another thread has added.
    NeverTheSame,
}

real::thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    static FAILED: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn is_planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Fails the execution once it ends, for where a panic cannot.
pub(crate) fn fail() {
    FAILED.set(true);
}

/// How many executions the model has, or why one fails.
fn explore(model: fn(), bug: Option<Bug>) -> Result<usize, String> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    COUNT.store(0, Ordering::Relaxed);
    let explored = thread::spawn(move || {
        PLANTED.set(bug);
        loom::model(move || {
            COUNT.fetch_add(1, Ordering::Relaxed);
            modelled::begin();
            model();
            modelled::alloc::end();
            assert!(!FAILED.get(), "a panic in a function that C calls");
        });
    });
    match explored.join() {
        Ok(()) => Ok(COUNT.load(Ordering::Relaxed)),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(text.unwrap_or("?").lines().next().unwrap_or("?").into())
        }
    }
}

/// Prints what a model finds. Returns whether it is as it should be.
pub(crate) fn check(name: &str, model: fn(), bugs: &[Bug]) -> bool {
    // Only what loom says about a bug is of interest, and not where it was said.
    panic::set_hook(Box::new(|_| ()));
    let explored = explore(model, None);
    match &explored {
        Ok(count) => println!("{name}: ok, {count} executions"),
        Err(why) => println!("{name}: FAILED, {why}"),
    }
    let mut all = explored.is_ok();
    for &bug in bugs {
        let found = explore(model, Some(bug));
        match &found {
            Ok(_) => println!("{name}, {bug:?}: FAILED, not found"),
            Err(why) => println!("{name}, {bug:?}: ok, found: {why}"),
        }
        all &= found.is_err();
    }
    all
}
