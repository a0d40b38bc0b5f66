//! Functions of CPython that the stable ABI lacks, by their names (invariant S23 of `docs/safety.md`).

/// A function of the process, `None` if it has no such symbol.
///
/// # Safety
///
/// `F` is a function pointer of the type that the symbol has.
#[cfg(unix)]
pub(crate) unsafe fn symbol<F: Copy>(name: &str) -> Option<F> {
    let process = libloading::os::unix::Library::this();
    // SAFETY: the caller's promise.
    let symbol = unsafe { process.get::<F>(name.as_bytes()) };
    symbol.ok().map(|symbol| *symbol)
}

/// # Safety
///
/// None is needed.
#[cfg(not(unix))]
pub(crate) unsafe fn symbol<F: Copy>(_name: &str) -> Option<F> {
    None
}
