//! Calls that may not return: before CPython 3.14, `pthread_exit` unwinds a daemon thread that wants the GIL while the
//! interpreter ends (S5, Python references, in `docs/safety.md`).
//!
//! Rust ends the process when that reaches a call that is declared as unable to unwind, as PyO3's are. So dlx calls C
//! that may run Python code as able to, and parks the thread there, as CPython 3.14 does.

use std::hint::black_box;
use std::mem::{forget, transmute};
use std::thread;

/// A function of one parameter, as able to unwind.
#[inline(always)]
pub(crate) fn unwinding<A, R>(
    function: unsafe extern "C" fn(A) -> R,
) -> unsafe extern "C-unwind" fn(A) -> R {
    type Of<A, R> = unsafe extern "C" fn(A) -> R;
    // SAFETY: the same function with the same ABI, except for unwinding.
    unsafe { transmute::<Of<A, R>, unsafe extern "C-unwind" fn(A) -> R>(function) }
}

/// As [`unwinding`], with two parameters.
#[inline(always)]
pub(crate) fn unwinding2<A, B, R>(
    function: unsafe extern "C" fn(A, B) -> R,
) -> unsafe extern "C-unwind" fn(A, B) -> R {
    type Of<A, B, R> = unsafe extern "C" fn(A, B) -> R;
    // SAFETY: as in `unwinding`.
    unsafe { transmute::<Of<A, B, R>, unsafe extern "C-unwind" fn(A, B) -> R>(function) }
}

/// As [`unwinding`], with three parameters.
#[inline(always)]
pub(crate) fn unwinding3<A, B, C, R>(
    function: unsafe extern "C" fn(A, B, C) -> R,
) -> unsafe extern "C-unwind" fn(A, B, C) -> R {
    type Of<A, B, C, R> = unsafe extern "C" fn(A, B, C) -> R;
    type Unwinding<A, B, C, R> = unsafe extern "C-unwind" fn(A, B, C) -> R;
    // SAFETY: as in `unwinding`.
    unsafe { transmute::<Of<A, B, C, R>, Unwinding<A, B, C, R>>(function) }
}

/// A function of CPython, as able to unwind. The compiler knows the function, and that PyO3 says otherwise of it:
/// `black_box` keeps it from relying on that.
#[inline(always)]
pub(crate) fn cpython<A, R>(
    function: unsafe extern "C" fn(A) -> R,
) -> unsafe extern "C-unwind" fn(A) -> R {
    unwinding(black_box(function))
}

/// As [`cpython`], with two parameters.
#[inline(always)]
pub(crate) fn cpython2<A, B, R>(
    function: unsafe extern "C" fn(A, B) -> R,
) -> unsafe extern "C-unwind" fn(A, B) -> R {
    unwinding2(black_box(function))
}

/// As [`cpython`], with three parameters.
#[inline(always)]
pub(crate) fn cpython3<A, B, C, R>(
    function: unsafe extern "C" fn(A, B, C) -> R,
) -> unsafe extern "C-unwind" fn(A, B, C) -> R {
    unwinding3(black_box(function))
}

/// Runs a call that may unwind: it does not return then, so the compiler knows that nothing unwinds here.
#[inline(always)]
pub(crate) fn stopping<R>(call: impl FnOnce() -> R) -> R {
    let stop = Stop;
    let made = call();
    forget(stop);
    made
}

/// Parks a thread that is being force-unwound. A panic does not come out of C.
struct Stop;

impl Drop for Stop {
    #[inline(always)]
    fn drop(&mut self) {
        for_ever()
    }
}

#[cold]
#[inline(never)]
fn for_ever() -> ! {
    loop {
        thread::park();
    }
}
