//! Descriptors that the kernel returns, each owned at once.

use std::ffi::{CString, c_int};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The descriptor that a system call has returned, or its error.
pub(crate) fn owned(returned: RawFd) -> io::Result<OwnedFd> {
    done(returned)?;
    // SAFETY: callers pass the result of a call that makes a descriptor, in the expression that makes it, so that nobody
    // else has it (S30).
    Ok(unsafe { OwnedFd::from_raw_fd(returned) })
}

/// The error of a call that returns -1 for one.
pub(crate) fn done(returned: c_int) -> io::Result<()> {
    match returned {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// A path as the kernel takes it.
pub(crate) fn c_path(path: PathBuf) -> PyResult<CString> {
    CString::new(path.into_os_string().into_vec())
        .map_err(|_| PyValueError::new_err("the path has a null byte"))
}

/// Opens a file. `flags` need not have `O_CLOEXEC`.
pub(crate) fn open(path: &CString, flags: i32, mode: u32) -> io::Result<OwnedFd> {
    // SAFETY: a path that ends with a null byte, and a mode, which is an `int` or larger as a variadic argument.
    owned(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, mode) })
}
