//! dlx's current stream for each thread and device: the one set by `dlx.stream`, or else that of the library that the
//! thread's tensors come from.

#![forbid(unsafe_code)]

use std::cell::RefCell;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::abi::DLDevice;
use crate::cpython::interpreter::attach_uncounted;
use crate::stream::handle::{Stream, has_streams, needs_order, no_streams};
use crate::stream::object::PyStream;
use crate::stream::work_stream::WorkStream;
use crate::types::device::Device;
use crate::types::error::Error;

/// The libraries that this thread's tensors on a device come from.
#[derive(Clone, Copy)]
enum Producers {
    One(WorkStream),
    Several,
}

thread_local! {
    /// Streams set by `dlx.stream`, innermost last.
    static SET: RefCell<Vec<Stream>> = const { RefCell::new(Vec::new()) };
    static PRODUCERS: RefCell<Vec<(DLDevice, Producers)>> = const { RefCell::new(Vec::new()) };
}

/// Notes that a tensor on `device` came from the library of this table.
pub(crate) fn note_producer(work_stream: WorkStream, device: DLDevice) {
    // Fails only during thread teardown.
    let note = |producers: &RefCell<Vec<(DLDevice, Producers)>>| {
        let mut producers = producers.borrow_mut();
        let known = producers.iter_mut().find(|(of, _)| *of == device);
        match known {
            None => producers.push((device, Producers::One(work_stream))),
            Some((_, Producers::One(known))) if known.is(work_stream) => {}
            Some((_, producer)) => *producer = Producers::Several,
        }
    };
    PRODUCERS.try_with(note).ok();
}

/// The stream that consumers of dlx's tensors run on: the one set, else that of the library that the thread's tensors
/// come from if there is exactly one, else the default stream; 0 on devices without streams (R139 to R141).
///
/// # Errors
///
/// `BufferError` on a device of a later DLPack, where 0 might be the wrong one.
pub(crate) fn current(py: Python<'_>, device: DLDevice) -> PyResult<i64> {
    if !needs_order(device) {
        return Ok(0);
    }
    if !has_streams(device) {
        return Err(no_streams(device));
    }
    if let Some(set) = set(device) {
        return Ok(set.handle());
    }
    let producer = PRODUCERS.try_with(|producers| {
        let producers = producers.borrow();
        let found = producers.iter().find(|(of, _)| *of == device);
        found.map(|&(_, producer)| producer)
    });
    let handle = match producer {
        Ok(Some(Producers::One(work_stream))) => work_stream.get(py, device)?,
        _ => 0,
    };
    Ok(Stream::of_table(handle, device).handle())
}

/// The stream that `dlx.stream` has set for this thread and device, with its owner.
pub(crate) fn set(device: DLDevice) -> Option<Stream> {
    let set = SET.try_with(|set| {
        let set = set.borrow();
        let found = set.iter().rev().find(|stream| stream.serves(device));
        found.cloned()
    });
    set.ok().flatten()
}

/// dlx's current stream, with its owner if it has one, on a device with streams.
pub(crate) fn of_thread(py: Python<'_>, device: DLDevice) -> PyResult<Stream> {
    match set(device) {
        Some(stream) => Ok(stream),
        None => Ok(Stream::of_table(current(py, device)?, device)),
    }
}

/// As [`of_thread`]. The thread need not be attached.
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
/// exchange table of `Tensor` run on it (``current_work_stream`` in dlpack.h, R140).
#[pyclass(frozen, name = "stream", module = "dlx")]
pub(crate) struct CurrentStream(Py<PyStream>);

#[pymethods]
impl CurrentStream {
    #[new]
    #[pyo3(signature = (stream, /, *, device=None))]
    fn new(stream: &Bound<'_, PyAny>, device: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        Ok(Self(PyStream::of(stream, device)?.unbind()))
    }

    /// The stream, which is now the current one.
    fn __enter__<'py>(&self, py: Python<'py>) -> Bound<'py, PyStream> {
        let stream = self.0.bind(py);
        SET.with_borrow_mut(|set| set.push(stream.get().stream().clone()));
        stream.clone()
    }

    /// Makes the stream before it the current one again.
    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        let stream = self.0.bind(py).get().stream();
        let left = SET.with_borrow_mut(|set| {
            let index = set.iter().rposition(|set| set.is(stream))?;
            Some(set.remove(index))
        });
        // Dropping it may run Python code that re-enters this function.
        match left {
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

/// dlx's current stream of ``device`` in this thread: what `stream` has set, else that of the library whose
/// tensors the thread has imported if there is exactly one, else the default stream.
///
/// The handle of a library's stream is alive as long as that stream is; it is not kept.
#[pyfunction]
#[pyo3(signature = (device, /))]
pub(crate) fn current_stream(device: &Bound<'_, PyAny>) -> PyResult<PyStream> {
    let py = device.py();
    let device = Device::of(device)?;
    if !has_streams(device) {
        return Err(no_streams(device));
    }
    of_thread(py, device).map(PyStream::new)
}
