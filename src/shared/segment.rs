//! Segments: sealed files in memory.

use std::ffi::{CString, c_int};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::shared::descriptor::{done, owned};
use crate::shared::os_error;

/// Bytes that are written between two looks for signals, without the GIL.
const AT_ONCE: usize = 64 << 20;

/// Makes a segment of `size` bytes that begins with `data`; nobody has it before it is sealed.
pub(super) fn make(
    py: Python<'_>,
    name: &str,
    size: u64,
    data: Option<&PyBuffer<u8>>,
) -> PyResult<OwnedFd> {
    let name = CString::new(name).map_err(|_| PyValueError::new_err("a null byte in the name"))?;
    let failed = |error: io::Error| os_error(py, &error);
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a name that ends with a null byte.
    let file = owned(unsafe { libc::memfd_create(name.as_ptr(), flags) }).map_err(failed)?;
    // SAFETY: a call with numbers.
    done(unsafe { libc::fchmod(file.as_raw_fd(), 0o600) }).map_err(failed)?;
    let end = i64::try_from(size).map_err(|_| failed(io::Error::from_raw_os_error(libc::EFBIG)))?;
    // SAFETY: a call with numbers.
    done(unsafe { libc::ftruncate(file.as_raw_fd(), end) }).map_err(failed)?;
    if let Some(data) = data {
        write(py, file.as_fd(), data)?;
    }
    let seals: c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
    // SAFETY: `F_ADD_SEALS` takes a number.
    done(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) }).map_err(failed)?;
    Ok(file)
}

/// Writes these bytes.
fn write(py: Python<'_>, file: BorrowedFd<'_>, data: &PyBuffer<u8>) -> PyResult<()> {
    let (start, size) = (data.buf_ptr().addr(), data.len_bytes());
    let mut place = 0;
    while place < size {
        // Faster than through a mapping, which faults once for each page.
        let written = py.detach(|| pwrite(file, start + place, size - place, place));
        match written {
            Ok(count) => place += count,
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(error) => return Err(os_error(py, &error)),
        }
        py.check_signals()?;
    }
    Ok(())
}

/// Writes some of the bytes at an address; how many.
fn pwrite(file: BorrowedFd<'_>, address: usize, size: usize, place: usize) -> io::Result<usize> {
    let data = std::ptr::with_exposed_provenance::<std::ffi::c_void>(address);
    let size = size.min(AT_ONCE);
    // SAFETY: a part of a buffer that the caller holds. Only the kernel reads it, so others may write to it meanwhile.
    let written = unsafe { libc::pwrite(file.as_raw_fd(), data, size, place as libc::off_t) };
    match usize::try_from(written) {
        Ok(0) => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
        Ok(written) => Ok(written),
        Err(_) => Err(io::Error::last_os_error()),
    }
}
