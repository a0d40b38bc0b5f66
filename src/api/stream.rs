//! The methods of `dlx.Stream`.

#![forbid(unsafe_code)]

use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::types::PyInt;

use crate::stream::order::Joined;
use crate::stream::{PyStream, order};
use crate::types::device::Device;
use crate::types::dtype::equality;

#[pymethods]
impl PyStream {
    #[new]
    #[pyo3(signature = (stream, /, *, device=None))]
    fn py_new(stream: &Bound<'_, PyAny>, device: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let device = device.map(Device::of).transpose()?;
        Self::of(stream, device).map(|stream| Self(stream.get().0.clone()))
    }

    /// The handle as DLPack numbers it: 1 is CUDA's legacy default stream, 0 is ROCm's default stream.
    #[getter]
    fn handle(&self) -> i64 {
        self.0.handle()
    }

    /// The device that the stream belongs to.
    #[getter]
    fn device(&self) -> Device {
        Device(self.0.device())
    }

    /// ``(0, handle)``, the protocol by which other libraries accept the stream.
    ///
    /// Source: cuda.core.
    fn __cuda_stream__(&self) -> (i32, i64) {
        (0, self.0.handle())
    }

    fn __int__(&self) -> i64 {
        self.0.handle()
    }

    fn __index__(&self) -> i64 {
        self.0.handle()
    }

    /// Block until all work queued on the stream is done.
    ///
    /// Raises ``BufferError`` while the stream captures a graph, `CudaError` for errors of the driver.
    fn synchronize(&self) -> PyResult<()> {
        Ok(order::synchronize(&self.0)?)
    }

    /// Make this stream wait for all work queued on ``stream`` so far, without blocking the host.
    ///
    /// Raises ``BufferError`` if that would invalidate a graph capture.
    #[pyo3(signature = (stream, /))]
    fn wait(&self, stream: &Bound<'_, PyAny>) -> PyResult<()> {
        // A number is that of a stream beside this one.
        let device = (stream.is_instance_of::<PyInt>()).then(|| self.0.device());
        let other = Self::of(stream, device)?;
        Ok(order::after(&self.0, &other.get().0, Joined::Never)?)
    }

    fn __repr__(&self) -> String {
        self.repr()
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        self.0.handle().into_pyobject(py)?.hash()
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp) -> Py<PyAny> {
        let equal = if let Ok(other) = other.cast::<Self>() {
            Some(self.0.is(&other.get().0))
        } else if other.is_instance_of::<PyInt>() {
            let handle = other.extract::<i64>();
            Some(handle.is_ok_and(|handle| handle == self.0.handle()))
        } else {
            None
        };
        equality(other.py(), equal, op)
    }
}
