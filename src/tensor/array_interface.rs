//! `__array_interface__` for tensors on the CPU, `__cuda_array_interface__` for those on CUDA devices.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyAttributeError, PyBufferError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::abi::*;
use crate::stream;
use crate::stream::usage::{Producer, Ready};
use crate::tensor::buffer::{byte_strides, describe, format};
use crate::tensor::bytes;
use crate::tensor::checked::Meta;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;

/// The entries that both interfaces share.
fn interface<'py>(py: Python<'py>, snapshot: &Snapshot) -> PyResult<Bound<'py, PyDict>> {
    let meta = snapshot.meta();
    let kind = match meta.dtype.code {
        kDLBool => 'b',
        kDLInt => 'i',
        kDLUInt => 'u',
        kDLFloat => 'f',
        _ => 'c',
    };
    let order = match meta.dtype.bits {
        8 => '|',
        _ if cfg!(target_endian = "little") => '<',
        _ => '>',
    };
    let interface = PyDict::new(py);
    interface.set_item("version", 3)?;
    interface.set_item("shape", PyTuple::new(py, snapshot.shape())?)?;
    interface.set_item("typestr", format!("{order}{kind}{}", meta.dtype.bits / 8))?;
    // Pillow and others take only None as compact.
    let strides = (!snapshot.is_row_major()).then(|| PyTuple::new(py, byte_strides(snapshot)));
    interface.set_item("strides", strides.transpose()?)?;
    interface.set_item("data", (meta.data.addr(), snapshot.is_protected()))?;
    Ok(interface)
}

/// `__array_interface__`, version 3. The reader must keep the object of `snapshot` alive.
///
/// Refuses what the interface cannot describe, so that NumPy goes on to `__array__`, which may.
pub(crate) fn cpu<'py>(py: Python<'py>, snapshot: &Snapshot) -> PyResult<Bound<'py, PyDict>> {
    let refused = |error: PyErr| PyAttributeError::new_err(error.value(py).to_string());
    describe(snapshot).map_err(refused)?;
    interface(py, snapshot)
}

/// ``__array_interface__`` whose ``data`` is a buffer that owns the memory, for an object that does not.
#[pyfunction]
pub(crate) fn array_interface<'py>(tensor: &Bound<'py, Tensor>) -> PyResult<Bound<'py, PyDict>> {
    let py = tensor.py();
    let snapshot = tensor.get().snapshot()?;
    let interface = cpu(py, snapshot)?;
    let bytes = bytes::run(snapshot)?;
    let offset = snapshot.meta().data.addr() - bytes.meta().data.addr();
    interface.set_item("data", Tensor::new(py, bytes)?)?;
    interface.set_item("offset", offset)?;
    Ok(interface)
}

/// `__cuda_array_interface__`, version 3.
pub(crate) fn cuda<'py>(py: Python<'py>, snapshot: &Snapshot) -> PyResult<Bound<'py, PyDict>> {
    let Meta { device, dtype, .. } = snapshot.meta();
    if !matches!(device.device_type, kDLCUDA | kDLCUDAManaged) {
        return Err(PyAttributeError::new_err(format!(
            "a tensor on {device} has no __cuda_array_interface__"
        )));
    }
    if format(dtype).is_none() {
        return Err(PyBufferError::new_err(format!(
            "__cuda_array_interface__ cannot describe {dtype}; use DLPack"
        )));
    }
    let interface = interface(py, snapshot)?;
    interface.set_item("stream", of_interface(py, snapshot)?)?;
    Ok(interface)
}

/// The stream for a tensor's `__cuda_array_interface__`: once it has caught up, the elements are ready (R149). None if
/// there is nothing to wait for (R148).
pub(crate) fn of_interface(py: Python<'_>, snapshot: &Snapshot) -> PyResult<Option<i64>> {
    let Some(usage) = snapshot.usage() else {
        return Ok(None);
    };
    let device = snapshot.meta().device;
    let stream = match (usage.stream(), &usage.ready) {
        (Some(stream), _) => stream.clone(),
        (None, Ready::Now | Ready::After(_)) => return Ok(None),
        // A point has no stream. Its producer's stream takes its place, or else dlx's own, which must live as long as
        // the tensor (R151).
        (None, Ready::Point(_)) => {
            let producer = usage.producer.as_ref();
            let held = producer.filter(|producer| producer.is_held());
            let named = held.and_then(Producer::now);
            let stream = named.map_or_else(|| stream::of_thread(py, device), Ok)?;
            usage.keep(&stream);
            stream
        }
    };
    // In another thread, 2 would name that thread's stream.
    stream.raw()?;
    snapshot.order(&stream)?;
    Ok(Some(stream.handle()))
}
