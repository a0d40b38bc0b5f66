//! A shared library of a driver, and what a fork does to it.

use std::env;
use std::error::Error as _;
use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use libloading::Library;

use super::error::Error;
use crate::cpython::boundary::guard;
use crate::cpython::fork::Inside;

/// Loads the library that the environment variable `variable` names, or else the first of `files` that is there.
pub(super) fn load(variable: &str, files: &[&str]) -> Result<&'static Library, Error> {
    let named = env::var(variable).ok().filter(|file| !file.is_empty());
    let files: Vec<&str> = match &named {
        Some(file) => vec![file],
        None => files.to_vec(),
    };
    let mut why = String::new();
    for file in &files {
        // SAFETY: loading runs the initializers of the library, which is the system's driver, or one that the
        // user of this process has named in its place.
        match unsafe { Library::new(*file) } {
            // A driver stays loaded: its threads and its memory outlive every caller.
            Ok(library) => return Ok(Box::leak(Box::new(library))),
            Err(error) => why = error.source().unwrap_or(&error).to_string(),
        }
    }
    Err(Error::NotFound {
        file: files.join(" or "),
        why,
    })
}

/// A function of the library, `None` if it has no such symbol.
///
/// # Safety
///
/// `F` is a function pointer of the type that the symbol has.
pub(super) unsafe fn symbol<F: Copy>(library: &Library, name: &str) -> Option<F> {
    // SAFETY: the caller's promise.
    let symbol = unsafe { library.get::<F>(name.as_bytes()) };
    symbol.ok().map(|symbol| *symbol)
}

/// What `load` gives, by whoever is the first to have it: two threads may load at once, as nobody waits for a thread
/// that a fork may have left behind.
pub(super) fn once<T>(place: &OnceLock<T>, load: impl FnOnce() -> T) -> &T {
    match place.get() {
        Some(loaded) => loaded,
        None => {
            let loaded = load();
            let _inside = Inside::enter();
            place.get_or_init(|| loaded)
        }
    }
}

static INITIALIZED: AtomicBool = AtomicBool::new(false);
static FORKED: AtomicBool = AtomicBool::new(false);

/// Notes that a driver has been initialized, so that a fork of the process leaves it alone.
pub(super) fn initialized() {
    if !INITIALIZED.swap(true, Ordering::AcqRel) {
        at_fork();
    }
}

/// Refuses to go on in a fork of a process that had initialized a driver.
pub(super) fn check_fork() -> Result<(), Error> {
    if FORKED.load(Ordering::Relaxed) {
        Err(Error::Forked)
    } else {
        Ok(())
    }
}

#[cfg(unix)]
fn at_fork() {
    extern "C" fn child() {
        let forked = || FORKED.store(INITIALIZED.load(Ordering::Acquire), Ordering::Release);
        guard(forked, |_| ());
    }
    // SAFETY: the function stores a flag, which a child may do before anything else; it stays as long as this
    // library, which Python does not unload.
    let _: c_int = unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

#[cfg(not(unix))]
fn at_fork() {}

/// Declares a table of functions that return a status, each looked up by name when the library is loaded.
macro_rules! functions {
    ($($name:ident ( $($argument:ty),* $(,)? ) $(as $symbol:literal)?;)*) => {
        /// The functions of the driver, by their names in its header; NULL for those that it does not have.
        #[derive(Clone, Copy)]
        #[allow(non_snake_case, reason = "the names of the header")]
        pub(super) struct Functions {
            $(pub(super) $name: Option<unsafe extern "C" fn($($argument),*) -> std::ffi::c_int>,)*
        }

        impl Functions {
            /// Looks each one up.
            ///
            /// # Safety
            ///
            /// `address` finds the function of a name with the signature that the table gives it, or nothing.
            unsafe fn find(address: impl Fn(&'static str, &'static str) -> *mut std::ffi::c_void) -> Self {
                Self {
                    $($name: {
                        #[allow(unused_mut, unused_assignments, reason = "names without a suffix")]
                        let mut symbol = stringify!($name);
                        $(symbol = $symbol;)?
                        let address = address(stringify!($name), symbol);
                        // SAFETY: NULL or a function with this signature, as the caller promises; an optional
                        // function pointer is NULL for `None`.
                        unsafe {
                            std::mem::transmute::<
                                *mut std::ffi::c_void,
                                Option<unsafe extern "C" fn($($argument),*) -> std::ffi::c_int>,
                            >(address)
                        }
                    },)*
                }
            }
        }
    };
}

/// Calls a function of a driver's table, and turns its status into a result; `code` leaves it as it is.
macro_rules! call {
    ($driver:expr, code $name:ident($($argument:expr),* $(,)?)) => {{
        let function = $driver.functions.$name.ok_or(Error::Missing(stringify!($name)))?;
        // SAFETY: the driver's function of this signature (S19); handles of streams are live (S18), events are those
        // that this driver made, and every place that is written is a variable of the caller.
        unsafe { function($($argument),*) }
    }};
    ($driver:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        match call!($driver, code $name($($argument),*)) {
            0 => Ok(()),
            code => Err($driver.failed(stringify!($name), code)),
        }
    }};
}

pub(super) use call;
pub(super) use functions;
