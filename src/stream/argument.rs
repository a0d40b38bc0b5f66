//! The `stream=` argument: DLPack's integers, and the stream objects of libraries.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::{PyBufferError, PyRuntimeWarning, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyTuple, PyType};

use crate::abi::{DLDevice, kDLCUDA, kDLCUDAHost, kDLROCM, kDLROCMHost};
use crate::cpython::interpreter::{PythonOwner, blocking};
use crate::cpython::once::intern;
use crate::driver;
use crate::stream::handle::{
    NO_SYNC, Stream, checked, default, elsewhere, has_streams, no_streams,
};
use crate::stream::object::PyStream;
use crate::stream::order;
use crate::types::device;
use crate::types::error::{Error, Shown, type_name};

/// What a `stream=` argument requests.
#[derive(Clone)]
pub(crate) enum Wanted {
    /// Nothing: the argument is absent.
    Unset,
    /// No ordering (R76), or a device without streams.
    NoOrder,
    /// Ordering with this stream.
    Stream(Stream),
}

/// What the argument requests on `device`.
///
/// # Errors
///
/// `TypeError` if it is not a stream, `ValueError` if the number is not valid on the device, `BufferError` if the
/// device has no streams (R70, R71).
pub(crate) fn wanted(stream: Option<&Bound<'_, PyAny>>, device: DLDevice) -> PyResult<Wanted> {
    let Some(stream) = stream else {
        return Ok(Wanted::Unset);
    };
    warn_if_experimental(stream.py(), device)?;
    if let Ok(stream) = stream.cast::<PyStream>() {
        let stream = &stream.get().0;
        checked(stream.handle(), device)?;
        if !stream.serves(device) {
            return Err(elsewhere(stream.handle(), stream.device(), device).into());
        }
        return Ok(Wanted::Stream(stream.clone()));
    }
    let (handle, owner) = of_any(stream, device)?;
    if handle == NO_SYNC && !has_streams(device) {
        return Ok(Wanted::NoOrder);
    }
    match checked(handle, device)? {
        NO_SYNC => Ok(Wanted::NoOrder),
        handle => Ok(Wanted::Stream(Stream::new(handle, device, owner))),
    }
}

/// Warns once, where ROCm's runtime is there, that its streams have been tried on a simulation alone.
pub(crate) fn warn_if_experimental(py: Python<'_>, device: DLDevice) -> PyResult<()> {
    static WARNED: AtomicBool = AtomicBool::new(false);
    let is_rocm = device.device_type == kDLROCM;
    if !is_rocm || WARNED.load(Ordering::Relaxed) || driver::of(device).is_err() {
        return Ok(());
    }
    WARNED.store(true, Ordering::Relaxed);
    let text =
        c"dlx's support of ROCm streams is experimental: it has run on a simulated runtime only";
    PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), text, 1)
}

/// The handle of an argument, and the object that keeps the stream alive.
fn of_any(stream: &Bound<'_, PyAny>, device: DLDevice) -> PyResult<(i64, Option<PythonOwner>)> {
    if is_int(stream) {
        return Ok((integer(stream)?, None));
    }
    let owner = PythonOwner::new(stream.clone().unbind());
    Ok((of_object(stream, device)?, Some(owner)))
}

fn is_int(stream: &Bound<'_, PyAny>) -> bool {
    stream.is_instance_of::<PyInt>() && !stream.is_instance_of::<PyBool>()
}

/// The number of a stream argument that must be an integer.
fn integer(stream: &Bound<'_, PyAny>) -> PyResult<i64> {
    if !is_int(stream) {
        return Err(no_stream(stream));
    }
    stream
        .extract()
        .map_err(|_| PyValueError::new_err("stream is no stream handle, it exceeds 64 bits"))
}

#[cold]
fn no_stream(stream: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!(
        "stream must be an int, a dlx.Stream, an object with __cuda_stream__ or None, not {}",
        type_name(&stream.get_type())
    ))
}

/// The handle of a library's stream object; a default stream gets its DLPack number.
fn of_object(stream: &Bound<'_, PyAny>, device: DLDevice) -> PyResult<i64> {
    let py = stream.py();
    if stream.is_instance_of::<PyBool>() || stream.is_instance_of::<PyType>() {
        return Err(no_stream(stream));
    }
    let handle = match stream.getattr_opt(intern!(py, "__cuda_stream__"))? {
        Some(protocol) => of_protocol(stream, &protocol)?,
        None => of_library(stream)?.ok_or_else(|| no_stream(stream))?,
    };
    match handle {
        0 => Ok(default(device).unwrap_or(0)),
        1.. => Ok(handle),
        // As an integer, -1 would mean no ordering.
        _ => Err(PyValueError::new_err(format!(
            "the handle of {} is {handle}, which names no stream",
            type_name(&stream.get_type())
        ))),
    }
}

/// The handle from `__cuda_stream__`, which returns version 0 and the handle (R154).
fn of_protocol(stream: &Bound<'_, PyAny>, protocol: &Bound<'_, PyAny>) -> PyResult<i64> {
    let answer = protocol.call0()?;
    let parts = answer.cast::<PyTuple>().ok();
    let parts = parts.filter(|parts| parts.iter().all(|part| is_int(&part)));
    let pair: Option<(i64, i64)> = parts.and_then(|pair| pair.extract().ok());
    match pair {
        Some((0, handle)) => Ok(handle),
        Some((version, _)) => Err(PyValueError::new_err(format!(
            "__cuda_stream__ of {} has version {version}, dlx reads version 0",
            type_name(&stream.get_type())
        ))),
        None => Err(PyTypeError::new_err(format!(
            "__cuda_stream__ of {} returned {}, not (0, handle)",
            type_name(&stream.get_type()),
            Shown(&answer)
        ))),
    }
}

/// The handle of a stream type older than `__cuda_stream__`, of torch, CuPy, Numba or cuda.bindings. `None` for other
/// objects, including other types of these libraries, which have handles too.
fn of_library(stream: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    let py = stream.py();
    let class = stream.get_type();
    let name = class.name()?.to_string().to_lowercase();
    // `CUstream`, `cudaStream_t`, `ExternalStream`.
    if !name.trim_end_matches("_t").ends_with("stream") {
        return Ok(None);
    }
    let module = class.module()?.to_string();
    let handle = match module.split('.').next().unwrap_or("") {
        "torch" => stream.getattr_opt(intern!(py, "cuda_stream"))?,
        "cupy" | "cupy_backends" => stream.getattr_opt(intern!(py, "ptr"))?,
        "numba" | "numba_cuda" | "cuda" if stream.hasattr(intern!(py, "__int__"))? => {
            Some(py.get_type::<PyInt>().call1((stream,))?)
        }
        _ => None,
    };
    handle.map(|handle| integer(&handle)).transpose()
}

/// Waits on the host for the stream that is named to have last written memory of `device`.
pub(crate) fn synchronize(stream: Option<&Bound<'_, PyAny>>, device: DLDevice) -> PyResult<()> {
    let is_pinned = matches!(device.device_type, kDLCUDAHost | kDLROCMHost);
    let stream = match stream {
        Some(stream) if is_int(stream) && integer(stream)? == NO_SYNC => return Ok(()),
        Some(stream) if is_pinned => Some(PyStream::of(stream, None)?.get().0.clone()),
        None if is_pinned => {
            return Err(PyBufferError::new_err(
                "the tensor is in pinned memory, which has no stream of its own; pass synchronize(stream=) the stream \
                 that last wrote it, or -1 if none did",
            ));
        }
        stream => match wanted(stream, device)? {
            Wanted::Stream(stream) => Some(check_device(stream, device)?),
            Wanted::NoOrder | Wanted::Unset => None,
        },
    };
    Ok(stream.as_ref().map_or(Ok(()), order::synchronize)?)
}

/// Refuses a stream that cannot work on memory of `device`, if the driver can tell; it cannot during a capture (R86).
pub(crate) fn check_device(stream: Stream, device: DLDevice) -> PyResult<Stream> {
    if stream.is_verified() {
        return Ok(stream);
    }
    match order::verified(&stream) {
        Ok(found) if found.serves(device) => Ok(found),
        Ok(found) => Err(elsewhere(found.handle(), found.device(), device).into()),
        Err(error) if error.is_absent() => Ok(stream),
        Err(error) => Err(error.into()),
    }
}

/// The handle returned by a hook of a class, or `None` if it returned no handle.
pub(crate) fn named_handle(named: &Bound<'_, PyAny>, device: DLDevice) -> Option<i64> {
    match named.cast::<PyStream>() {
        Ok(stream) => Some(stream.get().0.handle()),
        Err(_) => integer(named).or_else(|_| of_object(named, device)).ok(),
    }
}

impl PyStream {
    /// The stream of an argument.
    pub(crate) fn of<'py>(
        stream: &Bound<'py, PyAny>,
        device: Option<DLDevice>,
    ) -> PyResult<Bound<'py, Self>> {
        if let Ok(known) = stream.cast::<Self>()
            && device.is_none_or(|device| device == known.get().0.device())
        {
            return Ok(known.clone());
        }
        if let Some(device) = device.filter(|&device| !has_streams(device)) {
            return Err(no_streams(device));
        }
        let guess = device.unwrap_or(device::of(kDLCUDA, 0));
        let (handle, owner) = of_any(stream, guess)?;
        if handle == NO_SYNC {
            let message = "stream is -1, which names no stream but asks for no order";
            return Err(PyValueError::new_err(message));
        }
        let named = Stream::new(checked(handle, guess)?, guess, owner);
        let named = match device {
            None if handle > 2 => {
                // It may be of any device, none of whose contexts is to be made.
                let find = || Ok::<_, Error>(driver::device_of_stream(guess, named.raw()?)?);
                let device = blocking(find)?;
                named.on(device)
            }
            _ => check_device(named, guess)?,
        };
        Bound::new(stream.py(), Self(named))
    }
}
