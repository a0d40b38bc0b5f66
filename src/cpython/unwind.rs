//! Threads that end inside Rust: before CPython 3.14, `pthread_exit` unwinds a daemon thread that wants the GIL while the
//! interpreter ends (S5, Python references, in `docs/safety.md`).
//!
//! glibc asks the personality routine of each frame what to do then. Rust's would end the process at the first call that
//! is declared as unable to unwind, as those of CPython are. The one here parks the thread, as CPython 3.14 does; nothing
//! of Rust has been dropped by then.

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::thread;

/// `_Unwind_Personality_Fn` of the Itanium C++ ABI.
type Personality = unsafe extern "C" fn(c_int, c_int, u64, *mut c_void, *mut c_void) -> c_int;

/// `_UA_FORCE_UNWIND`: among the actions that a personality routine is asked for.
const FORCE_UNWIND: c_int = 8;

unsafe extern "C" {
    /// The address of the personality routine, through which the unwind tables of this library name it. The compiler
    /// defines it in writable memory.
    #[link_name = "DW.ref.rust_eh_personality"]
    static PERSONALITY: AtomicPtr<c_void>;
}

/// Rust's own routine.
static OF_RUST: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Parks threads from now on that `pthread_exit` unwinds through this library.
pub(crate) fn park_ending_threads() {
    // SAFETY: defined by the compiler, for as long as the library is loaded.
    let place = unsafe { &PERSONALITY };
    let parking: Personality = personality;
    let before = place.load(Ordering::Acquire);
    if before != parking as *mut c_void {
        OF_RUST.store(before, Ordering::Release);
        place.store(parking as *mut c_void, Ordering::Release);
    }
}

/// # Safety
///
/// Called by the unwinder.
unsafe extern "C" fn personality(
    version: c_int,
    actions: c_int,
    class: u64,
    exception: *mut c_void,
    context: *mut c_void,
) -> c_int {
    if actions & FORCE_UNWIND != 0 {
        loop {
            thread::park();
        }
    }
    let rust = OF_RUST.load(Ordering::Acquire);
    // SAFETY: the routine that the compiler had put there, noted before this one took its place.
    let rust = unsafe { transmute::<*mut c_void, Personality>(rust) };
    // SAFETY: the unwinder's own arguments.
    unsafe { rust(version, actions, class, exception, context) }
}
