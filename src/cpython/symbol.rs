//! Lookup by name of CPython functions outside the stable ABI (S23, CPython's functions, in `docs/safety.md`).

/// A function of this process, or `None` if it has no such symbol.
///
/// # Safety
///
/// `F` must be a function pointer of the symbol's type.
pub(crate) unsafe fn symbol<F: Copy>(name: &str) -> Option<F> {
    let process = libloading::os::unix::Library::this();
    // SAFETY: the caller guarantees the type.
    let symbol = unsafe { process.get::<F>(name.as_bytes()) };
    symbol.ok().map(|symbol| *symbol)
}
