//! `dlx.Tensor`: what Python sees.

use std::ffi::c_int;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

use crate::abi::*;
use crate::api::borrow::Use;
use crate::copy::by_driver;
use crate::copy::request;
use crate::copy::request::Request;
use crate::cpython::interpreter::blocking;
use crate::import::aliases;
use crate::stream::PyStream;
use crate::stream::usage::StreamUsage;
use crate::tensor::numpy::to_numpy;
use crate::tensor::object::Tensor;
use crate::tensor::repr;
use crate::tensor::{array_interface, buffer, capsule};
use crate::types::device::Device;
use crate::types::dtype::DType;
use crate::types::{device, dtype};

#[pymethods]
impl Tensor {
    /// Extents.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.described().shape())
    }

    /// Steps between neighbours of each dimension, in elements; never absent.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.described().strides())
    }

    /// Number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.described().ndim()
    }

    /// Number of elements.
    #[getter]
    fn size(&self) -> i64 {
        self.described().size()
    }

    /// Bytes of the elements alone; packed sub-byte elements are rounded up once over the whole (R110).
    #[getter]
    fn nbytes(&self) -> i64 {
        self.described().nbytes()
    }

    /// Bytes of one element, rounded up where it is smaller than a byte.
    #[getter]
    fn itemsize(&self) -> u32 {
        dtype::bits(self.described().meta().dtype).div_ceil(8)
    }

    /// Type of one element.
    #[getter]
    fn dtype(&self) -> DType {
        DType(self.described().meta().dtype)
    }

    /// Where the memory is.
    #[getter]
    #[pyo3(name = "device")]
    fn py_device(&self) -> Device {
        Device(self.device())
    }

    /// The devices that the memory is on besides `device`, each of which ``device=`` may name.
    ///
    /// Those that the producer says (``__dlpack_device_aliases__``). A tensor that was imported on the CPU without
    /// ``device=`` has none: its producer was not asked.
    #[getter]
    fn device_aliases<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let devices = aliases::of_snapshot(self.described()).iter().copied();
        PyTuple::new(py, devices.map(Device).collect::<Vec<_>>())
    }

    /// Address of the first element, byte offset applied; 0 when there are no elements (R93, R95).
    ///
    /// On devices whose memory is a buffer object (Metal, OpenCL, Vulkan, WebGPU) its handle.
    #[getter]
    fn data_ptr(&self) -> PyResult<usize> {
        Ok(self.snapshot()?.meta().data.addr())
    }

    /// Whether the memory must not be written: its producer says so (READ_ONLY, R39), or cannot say.
    ///
    /// An unversioned capsule has no flags, so a tensor that came in one is handed on in one: each consumer takes its
    /// memory as it would from the producer itself, NumPy as read-only and torch as writable (R43). ``copy=True`` gives
    /// memory that may be written.
    #[getter]
    fn readonly(&self) -> bool {
        self.described().is_protected()
    }

    /// Whether the memory is a copy made for this tensor (IS_COPIED, R37).
    #[getter]
    fn is_copied(&self) -> bool {
        self.described().has(DLPACK_FLAG_BITMASK_IS_COPIED)
    }

    /// Whether the elements lie in row-major order with nothing between them.
    #[getter]
    fn is_contiguous(&self) -> bool {
        self.described().is_row_major()
    }

    /// The stream that the elements are used on or become ready on, or None: no stream, or none known.
    #[getter]
    fn stream(&self) -> Option<PyStream> {
        let stream = self.described().usage().and_then(StreamUsage::stream);
        stream.cloned().map(PyStream::new)
    }

    /// ``with t.use(stream=s) as v:`` uses the tensor on stream ``s``, that of its producer by default.
    ///
    /// ``v`` is a `Tensor` that is valid in the block, and ``v.stream`` the stream to launch on. ``s`` waits for the
    /// tensor's streams at the beginning, and they wait for ``s`` at the end, also when the body raises.
    ///
    /// Raises ``BufferError`` on devices without streams if ``stream`` is given, and for what would end the capture
    /// of a graph.
    #[pyo3(name = "use", signature = (*, stream=None))]
    fn r#use(slf: &Bound<'_, Self>, stream: Option<Py<PyAny>>) -> Use {
        Use::new(slf.clone().unbind(), stream)
    }

    /// Blocks until the elements are ready, and all that their stream was given is done.
    ///
    /// Raises ``BufferError`` while that stream captures a graph, `CudaError` for what the driver reports.
    fn synchronize(&self) -> PyResult<()> {
        match self.described().usage() {
            Some(usage) => Ok(blocking(|| usage.synchronize())?),
            None => Ok(()),
        }
    }

    /// The elements as a NumPy array that shares the memory and keeps its read-only flag.
    ///
    /// bfloat16, fp8 and padded sub-byte types come as the dtypes of ``ml_dtypes``.
    ///
    /// Raises ``BufferError`` for memory not on the CPU, for packed sub-byte and vector types, and for
    /// dtypes that need ``ml_dtypes`` where that is not installed.
    fn numpy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        to_numpy(slf)
    }

    /// The tensor on ``device``, as a copy if ``copy=True``; itself where nothing has to change.
    ///
    /// A copy on a device runs on dlx's current stream; one on the host is complete.
    ///
    /// Raises ``BufferError`` where dlx cannot copy or has no driver, ``CopyRefused`` with ``copy=False``.
    #[pyo3(signature = (*, device=None, copy=None))]
    fn to<'py>(
        slf: &Bound<'py, Self>,
        device: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, Self>> {
        let device = device.map(Device::of).transpose()?;
        let request = Request {
            device,
            copy,
            ..Request::NOTHING
        };
        again(slf, &request)
    }

    /// A capsule with a managed tensor of its own over the same memory.
    ///
    /// ``max_version`` below ``(1, 0)`` or absent gives the unversioned struct (R22, R23), which cannot say
    /// that memory is read-only or padded: ``BufferError`` then (R40). ``copy=True`` copies (R47), and so does a
    /// ``dl_device`` other than the tensor's own and its `device_aliases` (R54): on ``stream`` (R50), which must be None
    /// where the result is on the CPU (R55, R70).
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(i64, i64)>,
        dl_device: Option<(i64, i64)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let snapshot = self.snapshot()?;
        if let Some(snapshot) = aliases::export(py, snapshot, stream, dl_device, copy)? {
            return capsule::of(py, &snapshot, max_version, true);
        }
        let here = snapshot.meta().device;
        let there = match dl_device {
            Some(pair) => device::of_pair(pair, here)?,
            None => here,
        };
        if there == here && copy != Some(true) {
            capsule::order_for_export(stream, snapshot)?;
            return capsule::of(py, snapshot, max_version, false);
        }
        if copy == Some(false) {
            return Err(request::elsewhere(py, here, there));
        }
        let on = by_driver::for_export(stream, there)?;
        let copied = by_driver::copied(py, snapshot, there, on)?;
        capsule::of(py, &copied, max_version, true)
    }

    /// ``(DeviceType, id)`` (R64).
    fn __dlpack_device__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        device::to_tuple(py, self.described().meta().device)
    }

    /// The pairs of `device_aliases`, as dlx and others may ask any producer for them.
    fn __dlpack_device_aliases__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        aliases::to_tuple(py, aliases::of_snapshot(self.described()))
    }

    /// NumPy's array interface, version 3, for memory on the CPU.
    ///
    /// Raises ``BufferError`` for memory elsewhere and for dtypes that it cannot name.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        array_interface::cpu(py, self.snapshot()?)
    }

    /// The CUDA array interface, version 3, for memory on CUDA devices (R148 to R152).
    ///
    /// Raises ``AttributeError`` for memory elsewhere, ``BufferError`` for dtypes that it cannot name.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        array_interface::cuda(py, self.snapshot()?)
    }

    #[allow(
        unsafe_code,
        reason = "PyO3 declares the buffer slots unsafe; `tensor/buffer.rs` argues them"
    )]
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let snapshot = slf.get().snapshot()?;
        // SAFETY: CPython passes a `Py_buffer` to fill.
        unsafe { buffer::fill(slf, snapshot, view, flags) }
    }

    #[allow(
        unsafe_code,
        reason = "PyO3 declares the buffer slots unsafe; `tensor/buffer.rs` argues them"
    )]
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: CPython releases a view that `__getbuffer__` filled.
        unsafe { buffer::release(view) };
    }

    fn __repr__(&self) -> String {
        repr::of(self)
    }
}

/// `slf` itself, or the copy of it that was asked for.
pub(crate) fn again<'py>(
    slf: &Bound<'py, Tensor>,
    request: &Request<'_, '_>,
) -> PyResult<Bound<'py, Tensor>> {
    let snapshot = slf.get().snapshot()?;
    if request.copy != Some(true)
        && request
            .device
            .is_none_or(|there| there == snapshot.meta().device)
    {
        return Ok(slf.clone());
    }
    let snapshot = match aliases::again(slf.py(), snapshot, request)? {
        Some(snapshot) => snapshot,
        None => request::again(slf.py(), snapshot.clone(), request)?,
    };
    Tensor::new(slf.py(), snapshot)
}
