//! File descriptors that Python code works with, each with an owner.

#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use crate::cpython::fork::Lock;
use crate::shared::descriptor::{c_path, open};
use crate::shared::{message, os_error, segment};

/// A file descriptor, closed with this object at the latest. No program that is executed inherits it.
///
/// ``fileno`` lends its number, as `fcntl` and `os` take it.
#[pyclass(frozen, module = "dlx._core")]
pub(crate) struct OpenFile(Lock<Option<OwnedFd>>);

impl OpenFile {
    /// The owner of a descriptor.
    pub(crate) const fn new(file: OwnedFd) -> Self {
        Self(Lock::new(Some(file)))
    }

    /// The descriptor, while it is open.
    pub(crate) fn with<R>(&self, body: impl FnOnce(&OwnedFd) -> R) -> PyResult<R> {
        match &*self.0.lock() {
            Some(file) => Ok(body(file)),
            None => Err(PyBufferError::new_err("the descriptor is closed")),
        }
    }
}

#[pymethods]
impl OpenFile {
    /// Make a segment: a file in memory with a name for the kernel's lists, of mode 0600, that nobody can shrink or grow.
    ///
    /// It holds ``data``, or zeros. A signal handler that raises ends it.
    #[staticmethod]
    #[pyo3(signature = (name, size, data=None))]
    fn segment(
        py: Python<'_>,
        name: &str,
        size: u64,
        data: Option<PyBuffer<u8>>,
    ) -> PyResult<Self> {
        if data.as_ref().is_some_and(|data| !data.is_c_contiguous()) {
            return Err(PyBufferError::new_err("the bytes have gaps"));
        }
        segment::make(py, name, size, data.as_ref()).map(Self::new)
    }

    /// Open a file by its path.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, flags: i32) -> PyResult<Self> {
        let path = c_path(path)?;
        loop {
            match open(&path, flags, 0) {
                Ok(file) => return Ok(Self::new(file)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => py.check_signals()?,
                Err(error) => return Err(os_error(py, &error)),
            }
        }
    }

    /// Receive at most ``length`` bytes, at least one, and the descriptors beside them from a Unix socket.
    ///
    /// It does not wait. Returns the bytes, the descriptors, and whether there were more of these than were received.
    #[staticmethod]
    fn received(
        py: Python<'_>,
        socket: RawFd,
        length: usize,
    ) -> PyResult<(Vec<u8>, Vec<Self>, bool)> {
        let (bytes, files, truncated) =
            message::received(socket, length).map_err(|error| os_error(py, &error))?;
        Ok((bytes, files.into_iter().map(Self::new).collect(), truncated))
    }

    /// Return another descriptor of the same open file.
    fn duplicate(&self, py: Python<'_>) -> PyResult<Self> {
        let made = self.with(|file| file.as_fd().try_clone_to_owned())?;
        made.map(Self::new).map_err(|error| os_error(py, &error))
    }

    /// The number of the descriptor. Raises ``BufferError`` if it is closed.
    fn fileno(&self) -> PyResult<RawFd> {
        self.with(AsRawFd::as_raw_fd)
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.0.lock().is_none()
    }

    /// Close the descriptor, once.
    fn close(&self, py: Python<'_>) {
        let file = self.0.lock().take();
        // The last one of a segment frees its pages.
        py.detach(|| drop(file));
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyAny>) {
        self.close(py);
    }
}
