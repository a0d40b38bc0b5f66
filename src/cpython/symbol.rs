//! Lookup by name of CPython functions outside the stable ABI (S23, CPython's functions, in `docs/safety.md`).

/// A function of this process, or `None` if it has no such symbol.
///
/// # Safety
///
/// `F` must be a function pointer of the symbol's type.
pub(crate) unsafe fn symbol<F: Copy>(name: &str) -> Option<F> {
    #[cfg(unix)]
    let library = libloading::os::unix::Library::this();
    #[cfg(windows)]
    let library = python()?;
    // SAFETY: the caller guarantees the type.
    let symbol = unsafe { library.get::<F>(name.as_bytes()) };
    symbol.ok().map(|symbol| *symbol)
}

/// The DLL of this version, since python3.dll has the stable ABI alone.
#[cfg(windows)]
fn python() -> Option<libloading::os::windows::Library> {
    use std::ffi::CStr;

    // SAFETY: returns a static string, in every state of the interpreter.
    let version = unsafe { pyo3::ffi::Py_GetVersion() };
    // SAFETY: as above.
    let version = unsafe { CStr::from_ptr(version) }.to_str().ok()?;
    let kind = if version.contains("free-threading") {
        "t"
    } else {
        ""
    };
    let mut numbers = version.split('.');
    let name = format!("python{}{}{kind}.dll", numbers.next()?, numbers.next()?);
    libloading::os::windows::Library::open_already_loaded(name).ok()
}
