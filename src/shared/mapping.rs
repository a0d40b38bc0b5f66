//! Files in the memory of this process: mapped, found by address, and unmapped.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::cpython::fork::Lock;
use crate::shared::file::OpenFile;
use crate::shared::os_error;

/// Where the shared mappings of this process begin, and how many bytes each has.
static SHARED: Lock<BTreeMap<usize, usize>> = Lock::new(BTreeMap::new());

/// Bytes of a file in the memory of this process, unmapped with this object. It holds no descriptor.
///
/// It has the buffer protocol, read-only if the mapping is.
#[pyclass(frozen, subclass, weakref, module = "dlx._core")]
pub(crate) struct MappedFile {
    start: NonNull<c_void>,
    /// How many bytes are mapped.
    #[pyo3(get)]
    size: usize,
    /// Whether one can write to it.
    #[pyo3(get)]
    is_writable: bool,
}

// SAFETY: addresses belong to no thread, and nothing here reads or writes behind them.
unsafe impl Send for MappedFile {}
// SAFETY: as for `Send`.
unsafe impl Sync for MappedFile {}

#[pymethods]
impl MappedFile {
    /// Map ``size`` bytes of a file from byte ``offset`` on, with a protection and flags of `mmap`.
    #[new]
    fn new(
        py: Python<'_>,
        file: &OpenFile,
        size: usize,
        protection: c_int,
        flags: c_int,
        offset: i64,
    ) -> PyResult<Self> {
        if flags & !(libc::MAP_SHARED | libc::MAP_PRIVATE) != 0 {
            return Err(PyBufferError::new_err(
                "flags are MAP_SHARED or MAP_PRIVATE",
            ));
        }
        let is_writable = protection & libc::PROT_WRITE != 0;
        let map = |file: &OwnedFd| {
            let file = file.as_raw_fd();
            // SAFETY: without an address and `MAP_FIXED`, it touches no other mapping.
            let start = unsafe { libc::mmap(null_mut(), size, protection, flags, file, offset) };
            let found = NonNull::new(start).filter(|start| start.as_ptr() != libc::MAP_FAILED);
            let made = found.map(|start| Self {
                start,
                size,
                is_writable,
            });
            made.ok_or_else(io::Error::last_os_error)
        };
        let made = file.with(map)?.map_err(|error| os_error(py, &error))?;
        if flags == libc::MAP_SHARED {
            SHARED.lock().insert(made.start.addr().get(), size);
        }
        Ok(made)
    }

    /// The first address.
    #[getter]
    fn address(&self) -> usize {
        self.start.addr().get()
    }

    /// # Safety
    ///
    /// As `bf_getbuffer`.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let (start, size) = (slf.get().start.as_ptr(), slf.get().size);
        let readonly = c_int::from(!slf.get().is_writable);
        let object = slf.as_ptr();
        // SAFETY: CPython passes a struct to fill. An error leaves it empty, as the buffer protocol requires.
        unsafe { view.write(ffi::Py_buffer::new()) };
        // SAFETY: as above. The view holds the object, which has the pages (S30).
        match unsafe { ffi::PyBuffer_FillInfo(view, object, start, size as isize, readonly, flags) }
        {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // Before the kernel can give the address to another mapping. A private mapping is not among them, nor has any
        // other its address.
        SHARED.lock().remove(&self.start.addr().get());
        // SAFETY: mapped by `new`, unmapped once, and who has an address of it holds the owner (S30).
        unsafe { libc::munmap(self.start.as_ptr(), self.size) };
    }
}

/// Where the shared mapping of dlx begins that holds these bytes, if there is one.
#[pyfunction]
pub(crate) fn covering(address: usize, length: usize) -> Option<usize> {
    let shared = SHARED.lock();
    let (&begin, &size) = shared.range(..=address).next_back()?;
    (address.checked_add(length)? <= begin + size).then_some(begin)
}
