//! `dlx.Stream`: what Python sees of a stream.

#![forbid(unsafe_code)]

use pyo3::basic::CompareOp;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyInt;

use super::argument::{check_device, integer, of_object};
use super::{NO_SYNC, Stream, checked, has_streams, no_streams};
use crate::abi::{DLDevice, kDLCUDA};
use crate::cpython::interpreter::PythonOwner;
use crate::driver;
use crate::stream::order;
use crate::stream::order::Joined;
use crate::stream::release::blocking;
use crate::types::device;
use crate::types::device::Device;
use crate::types::dtype::equality;
use crate::types::error::Error;

/// A stream of a device: work that is given to it runs in order.
///
/// Takes an int as DLPack writes it (1 legacy default, 2 the thread's default, or a handle), a `Stream`, or the
/// stream object of a library (``__cuda_stream__``, R154), which is kept alive. ``device`` is that of the handle, as
/// the driver of CUDA tells; for 1 and 2 it is ``cuda:0`` unless it is given. Equal to a stream of the same handle
/// and device, and to the handle.
#[pyclass(frozen, weakref, name = "Stream", module = "dlx")]
pub(crate) struct PyStream(Stream);

impl PyStream {
    /// The object of `stream`.
    pub(crate) fn new(stream: Stream) -> Self {
        Self(stream)
    }

    /// What it is.
    pub(crate) fn stream(&self) -> &Stream {
        &self.0
    }

    /// The stream that an argument names.
    pub(crate) fn of<'py>(
        stream: &Bound<'py, PyAny>,
        device: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Self>> {
        let device = device.map(Device::of).transpose()?;
        if let Ok(known) = stream.cast::<Self>()
            && device.is_none_or(|device| device == known.get().0.device())
        {
            return Ok(known.clone());
        }
        if let Some(device) = device.filter(|&device| !has_streams(device)) {
            return Err(no_streams(device));
        }
        let first = DLDevice {
            device_type: kDLCUDA,
            device_id: 0,
        };
        let guess = device.unwrap_or(first);
        let (handle, owner) = match stream.is_instance_of::<PyInt>() {
            true => (integer(stream)?, None),
            false => {
                let owner = PythonOwner::new(stream.clone().unbind());
                (of_object(stream, guess)?, Some(owner))
            }
        };
        if handle == NO_SYNC {
            let message = "stream is -1, which names no stream but asks for no order";
            return Err(PyValueError::new_err(message));
        }
        let named = Stream::new(checked(handle, guess)?, guess, owner);
        let named = match device {
            None if handle > 2 => named.of_its_device()?,
            _ => check_device(named)?,
        };
        Bound::new(stream.py(), Self(named))
    }

    /// How it prints.
    pub(crate) fn repr(&self) -> String {
        let device = device::name(self.0.device());
        match self.0.handle() {
            handle @ 0..=2 => format!("dlx.Stream({handle}, device='{device}')"),
            handle => format!("dlx.Stream({handle:#x}, device='{device}')"),
        }
    }
}

impl Stream {
    /// The same handle with the device that the driver tells.
    fn of_its_device(self) -> PyResult<Self> {
        let raw = self.raw()?;
        let current = driver::enter(self.device).map_err(Error::from)?;
        let device_id = current.device_of_stream(raw).map_err(Error::from)?;
        let device = DLDevice {
            device_id,
            ..self.device
        };
        Ok(Self { device, ..self }.verified())
    }
}

#[pymethods]
impl PyStream {
    #[new]
    #[pyo3(signature = (stream, /, *, device=None))]
    fn py_new<'py>(
        stream: &Bound<'py, PyAny>,
        device: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        Self::of(stream, device).map(|stream| Self(stream.get().0.clone()))
    }

    /// The handle, as DLPack writes it: 1 is the legacy default stream of CUDA, 0 the default one of ROCm.
    #[getter]
    fn handle(&self) -> i64 {
        self.0.handle()
    }

    /// The device that it belongs to.
    #[getter]
    fn device(&self) -> Device {
        Device(self.0.device())
    }

    /// ``(0, handle)``, by which other libraries read it (R154).
    fn __cuda_stream__(&self) -> (i32, i64) {
        (0, self.0.handle())
    }

    fn __int__(&self) -> i64 {
        self.0.handle()
    }

    fn __index__(&self) -> i64 {
        self.0.handle()
    }

    /// Blocks until all that the stream has been given is done.
    ///
    /// Raises ``BufferError`` while it captures a graph, `CudaError` for what the driver reports.
    fn synchronize(&self) -> PyResult<()> {
        let waited = blocking(|| {
            let raw = self.0.raw()?;
            let current = driver::enter(self.0.device())?;
            match current.capture(raw)? {
                driver::Capture::None => Ok(current.synchronize(raw)?),
                _ => Err(Error::refused(
                    "the stream captures a graph, whose work has no end yet",
                )),
            }
        });
        Ok(waited?)
    }

    /// Makes this stream wait for all that ``stream`` has been given, without blocking the host.
    ///
    /// Raises ``BufferError`` where that would end the capture of a graph.
    #[pyo3(signature = (stream, /))]
    fn wait(&self, stream: &Bound<'_, PyAny>) -> PyResult<()> {
        let other = match stream.is_instance_of::<PyInt>() {
            true => {
                let device = Bound::new(stream.py(), Device(self.0.device()))?;
                Self::of(stream, Some(device.as_any()))?
            }
            false => Self::of(stream, None)?,
        };
        let other = other.get().stream();
        Ok(order::after(&self.0, other, Joined::Never)?)
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
            Some(
                other
                    .extract::<i64>()
                    .is_ok_and(|handle| handle == self.0.handle()),
            )
        } else {
            None
        };
        equality(other.py(), equal, op)
    }
}
