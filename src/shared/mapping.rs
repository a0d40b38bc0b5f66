//! Files in the memory of this process: mapped, found by address, and unmapped.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::os::fd::AsFd;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::cpython::fork::Lock;
use crate::shared::file::OpenFile;
use crate::shared::os_error;
use crate::shared::pages::Pages;

/// Where the shared mappings of this process begin, and how many bytes each has.
static SHARED: Lock<BTreeMap<usize, usize>> = Lock::new(BTreeMap::new());

/// Bytes of a file in the memory of this process, unmapped with this object. It holds no descriptor.
///
/// It has the buffer protocol, read-only if the mapping is.
#[pyclass(frozen, subclass, weakref, module = "dlx._core")]
pub(crate) struct MappedFile {
    pages: Pages,
    is_writable: bool,
}

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
        let map = |file: &_| Pages::map(size, protection, flags, Some(AsFd::as_fd(file)), offset);
        let made: Result<Pages, _> = file.with(map)?;
        let pages = made.map_err(|error| os_error(py, &error))?;
        if flags == libc::MAP_SHARED {
            SHARED.lock().insert(pages.start().addr().get(), size);
        }
        let is_writable = protection & libc::PROT_WRITE != 0;
        Ok(Self { pages, is_writable })
    }

    /// The first address.
    #[getter]
    fn address(&self) -> usize {
        self.pages.start().addr().get()
    }

    /// How many bytes are mapped.
    #[getter]
    fn size(&self) -> usize {
        self.pages.size()
    }

    /// Whether one can write to it.
    #[getter]
    fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// # Safety
    ///
    /// As `bf_getbuffer`.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let (start, size) = (slf.get().pages.start().as_ptr(), slf.get().pages.size());
        let readonly = c_int::from(!slf.get().is_writable);
        let object = slf.as_ptr();
        // SAFETY: CPython passes a struct to fill. An error leaves it empty, as the buffer protocol requires.
        unsafe { view.write(ffi::Py_buffer::new()) };
        // SAFETY: as above. The view holds the object, which holds the pages (S30).
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
        SHARED.lock().remove(&self.pages.start().addr().get());
    }
}

/// Where the shared mapping of dlx begins that holds these bytes, if there is one.
#[pyfunction]
pub(crate) fn covering(address: usize, length: usize) -> Option<usize> {
    let shared = SHARED.lock();
    let (&begin, &size) = shared.range(..=address).next_back()?;
    (address.checked_add(length)? <= begin + size).then_some(begin)
}
