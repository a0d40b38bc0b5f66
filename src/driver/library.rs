//! Loading of a driver's shared library, and detection of forks.

use std::env;
use std::error::Error as _;
use std::ffi::{CStr, c_char};
use std::fs;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use libloading::Library;

use super::error::Error;
use crate::cpython::fork::{Inside, generation};

/// Loads the library named by the environment variable `variable`, or else the one of this `stem` that the process has
/// loaded, or else the first of `files` that exists.
///
/// Frameworks bring a ROCm runtime of their own, under any name; a second one would not know the streams of the first.
/// The file of a library that is loaded may be gone, as after an update; the loader knows it by its name, too.
pub(super) fn load(variable: &str, stem: &str, files: &[&str]) -> Result<&'static Library, Error> {
    let named = env::var(variable).ok().filter(|file| !file.is_empty());
    let found = if named.is_some() { None } else { loaded(stem) };
    let files: Vec<&str> = match &named {
        Some(file) => vec![file],
        None => found
            .iter()
            .map(String::as_str)
            .chain(files.iter().copied())
            .collect(),
    };
    let mut why = String::new();
    for file in &files {
        // SAFETY: loading runs the initializers of the system's driver, or of the library that the user has named in
        // its place (S19).
        match unsafe { Library::new(*file) } {
            // A driver stays loaded: its threads and memory outlive every caller.
            Ok(library) => return Ok(Box::leak(Box::new(library))),
            Err(error) => why = error.source().unwrap_or(&error).to_string(),
        }
    }
    Err(Error::NotFound {
        file: files.join(" or "),
        why,
    })
}

/// The file of a library that is loaded and whose name begins with `stem`.
fn loaded(stem: &str) -> Option<String> {
    // On other systems than Linux there is no such file, and the loader finds what is loaded by its name alone.
    let maps = fs::read("/proc/self/maps").ok()?;
    let mut lines = maps.split(|&byte| byte == b'\n');
    lines.find_map(|line| {
        let path = line.get(line.iter().position(|&byte| byte == b'/')?..)?;
        let path = str::from_utf8(path).ok()?;
        let (_, name) = path.rsplit_once('/')?;
        name.starts_with(stem).then(|| path.to_owned())
    })
}

/// The error of a call that returned `code`, which the library has this `name` for.
///
/// # Safety
///
/// `name` is NULL or a string that stays.
pub(super) unsafe fn failure(call: &'static str, code: i32, name: *const c_char) -> Error {
    let name = NonNull::new(name.cast_mut()).map_or("unknown".into(), |name| {
        // SAFETY: the caller's promise.
        unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy()
    });
    let name = name.into_owned();
    Error::Failed { call, code, name }
}

/// A function of the library, or `None` if it has no such symbol.
///
/// # Safety
///
/// `F` must be a function pointer of the symbol's type.
pub(super) unsafe fn symbol<F: Copy>(library: &Library, name: &str) -> Option<F> {
    // SAFETY: the caller guarantees the type.
    let symbol = unsafe { library.get::<F>(name.as_bytes()) };
    symbol.ok().map(|symbol| *symbol)
}

/// The value in `place`, or else of `load`. Two threads may load at once and the first result is kept: waiting for the
/// other could deadlock in a forked child.
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

/// The process, as [`generation`] counts it, in which a driver was initialized first, plus 1; 0 before.
static INITIALIZED: AtomicUsize = AtomicUsize::new(0);

/// Notes that a driver has been initialized, so that a forked child does not use it.
pub(super) fn initialized() {
    INITIALIZED.store(generation() + 1, Ordering::Release);
}

/// Fails in a process that was forked after a driver had been initialized.
pub(super) fn check_fork() -> Result<(), Error> {
    match INITIALIZED.load(Ordering::Acquire) {
        0 => Ok(()),
        known if known == generation() + 1 => Ok(()),
        _ => Err(Error::Forked),
    }
}
