//! Loading of a driver's shared library, and detection of forks.

use std::env;
use std::error::Error as _;
use std::fs;
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
    let files: Vec<String> = match env::var(variable) {
        Ok(file) if !file.is_empty() => vec![file],
        _ => {
            let files = files.iter().map(|&file| file.to_owned());
            loaded(stem).into_iter().chain(files).collect()
        }
    };
    let mut why = String::new();
    for file in &files {
        // SAFETY: loading runs the initializers of the system's driver, or of the library that the user has named in
        // its place (S19).
        match unsafe { Library::new(file) } {
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
    if let Some(loaded) = place.get() {
        return loaded;
    }
    let loaded = load();
    let _inside = Inside::enter();
    place.get_or_init(|| loaded)
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
