//! dlx's current stream for each thread and device: the one set by `dlx.stream`, or else that of the tensor that the
//! thread passed on last.

#![forbid(unsafe_code)]

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::abi::DLDevice;
use crate::cpython::interpreter::attach_uncounted;
use crate::driver::{self, Capture};
use crate::stream::handle::{Stream, has_streams, needs_order, no_streams};
use crate::stream::namer::{Namer, READY, TENSORS, note, noted};
use crate::stream::object::PyStream;
use crate::stream::order::{self, Joined};
use crate::stream::set::{self, set};
use crate::types::device::Device;
use crate::types::error::Error;

/// The stream that consumers of dlx's tensors run on: the one set, else that of the tensor that the thread passed on last,
/// else the default stream; 0 on devices without streams (R139 to R141).
///
/// # Errors
///
/// `BufferError` on a device of a later DLPack, where 0 might be the wrong one.
pub(crate) fn current(py: Python<'_>, device: DLDevice) -> PyResult<i64> {
    if !needs_order(device) {
        return Ok(0);
    }
    Ok(of_thread(py, device)?.handle())
}

/// Whether streams can be ordered, and so whether it matters which one is named.
fn can_order(device: DLDevice) -> bool {
    !matches!(driver::of(device), Err(error) if error.is_absent())
}

/// Who names that stream.
pub(crate) fn namer(device: DLDevice) -> Namer {
    if set(device).is_some() {
        return Namer::Set;
    }
    let noted = can_order(device).then(|| noted(TENSORS, device)).flatten();
    noted.filter(Namer::is_there).unwrap_or(Namer::Nobody)
}

/// Notes an export that is `ready` on a stream, named by `namer`. A consumer may have asked before, for another argument,
/// and runs on that stream: so that one waits, too.
///
/// # Errors
///
/// As for [`order::after`].
pub(crate) fn exported(
    py: Python<'_>,
    device: DLDevice,
    namer: Namer,
    ready: impl FnOnce() -> PyResult<Stream>,
) -> PyResult<()> {
    if !can_order(device) {
        return Ok(());
    }
    let told = match noted(READY, device) {
        Some(told) if told.is(&namer) => return Ok(()),
        Some(told) => told.stream(py, device)?,
        None => None,
    };
    if let Some(told) = told {
        let ready = ready()?;
        // No kernel outside of a capture can use what is made in it, so the consumer is one that will ask.
        if !told.is(&ready) && (captures(&told)? || !captures(&ready)?) {
            order::after(&told, &ready, Joined::Never)?;
            return Ok(());
        }
    }
    note(READY, device, namer);
    Ok(())
}

/// Whether a stream captures a graph.
fn captures(stream: &Stream) -> Result<bool, Error> {
    Ok(matches!(stream.capture()?, Capture::Active(_)))
}

/// Notes that a consumer is told the stream `named`, by `namer`; that waits for all that was exported before.
///
/// # Errors
///
/// As for [`order::after`].
pub(crate) fn told(py: Python<'_>, device: DLDevice, namer: Namer, named: &Stream) -> PyResult<()> {
    if can_order(device)
        && let Some(ready) = noted(READY, device)
        && !ready.is(&namer)
        && let Some(ready) = ready.stream(py, device)?
    {
        order::after(named, &ready, Joined::Never)?;
    }
    note(READY, device, namer);
    Ok(())
}

/// The stream that dlx works on, with its owner if it has one.
pub(crate) fn of_thread(py: Python<'_>, device: DLDevice) -> PyResult<Stream> {
    if !has_streams(device) {
        return Err(no_streams(device));
    }
    let named = namer(device).stream(py, device)?;
    Ok(named.unwrap_or_else(|| Stream::default(device)))
}

/// The stream that dlx works on, for a thread that need not be attached.
///
/// # Errors
///
/// The library's own, when it is asked for its stream.
pub(crate) fn working(device: DLDevice) -> Result<Stream, Error> {
    let asked =
        attach_uncounted(|py| of_thread(py, device).map_err(|error| Error::passed_on(py, error)));
    asked.unwrap_or_else(|| Ok(set(device).unwrap_or_else(|| Stream::default(device))))
}

/// ``with dlx.stream(s):`` makes ``s`` dlx's current stream of its device, in this thread and this block.
///
/// ``s`` is whatever ``stream=`` takes but -1; ``device`` is needed where ``s`` does not tell it. Consumers of the
/// exchange table of `Tensor` run on it (``current_work_stream`` in dlpack.h).
///
///     >>> with dlx.stream(1, device="cuda:0"):
///     ...     dlx.current_stream("cuda:0")
///     dlx.Stream(1, device='cuda:0')
#[pyclass(frozen, name = "stream", module = "dlx")]
pub(crate) struct CurrentStream(Py<PyStream>);

#[pymethods]
impl CurrentStream {
    #[new]
    #[pyo3(signature = (stream, /, *, device=None))]
    fn new(stream: &Bound<'_, PyAny>, device: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let device = device.map(Device::of).transpose()?;
        Ok(Self(PyStream::of(stream, device)?.unbind()))
    }

    /// The stream, which is now the current one.
    fn __enter__<'py>(&self, py: Python<'py>) -> Bound<'py, PyStream> {
        let stream = self.0.bind(py);
        set::enter(stream.get().0.clone());
        stream.clone()
    }

    /// Makes the stream before it the current one again.
    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        let stream = &self.0.bind(py).get().0;
        match set::leave(stream) {
            Some(_) => Ok(()),
            None => Err(PyRuntimeError::new_err(
                "dlx.stream is left in another thread than it was entered in, or was not entered",
            )),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("dlx.stream({})", self.0.bind(py).get().repr())
    }
}

/// dlx's current stream of ``device`` in this thread: what `stream` has set, else that of the library of the tensor that
/// the thread has imported or exported last, else the default stream.
///
/// The handle of a library's stream is alive as long as that stream is; it is not kept.
///
///     >>> dlx.current_stream("cuda:1")
///     dlx.Stream(1, device='cuda:1')
#[pyfunction]
#[pyo3(signature = (device, /))]
pub(crate) fn current_stream(device: &Bound<'_, PyAny>) -> PyResult<PyStream> {
    let py = device.py();
    of_thread(py, Device::of(device)?).map(PyStream)
}
