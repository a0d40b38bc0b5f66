//! The Python methods of `dlx.Tensor`.

pub(crate) mod requested;

use std::ffi::c_int;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PyBytes, PyCapsule, PyComplex, PyDict, PyInt, PyMemoryView, PyTuple};

use crate::abi::*;
use crate::adapters::numpy;
use crate::api::borrow::Borrow;
use crate::api::parts::{compared, first_extent, iterator, shown};
use crate::cpython::modules::python;
use crate::import::aliases;
use crate::stream::usage::StreamUsage;
use crate::stream::{self, PyStream};
use crate::tensor::object::Tensor;
use crate::tensor::{array_interface, buffer, bytes, element, indexing, trace};
use crate::types::device::{self, Device};
use crate::types::dtype::{self, DType};

#[pymethods]
impl Tensor {
    /// Extent of each dimension, in elements.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.described().shape())
    }

    /// Stride of each dimension, in elements; never None.
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

    /// Bytes of the elements alone; for packed sub-byte elements the total is rounded up. Source: dlpack.h.
    #[getter]
    fn nbytes(&self) -> i64 {
        self.described().nbytes()
    }

    /// Bytes of one element, rounded up for sub-byte types.
    #[getter]
    fn itemsize(&self) -> u32 {
        dtype::bits(self.described().meta().dtype).div_ceil(8)
    }

    /// Type of one element.
    #[getter]
    fn dtype(&self) -> DType {
        DType(self.described().meta().dtype)
    }

    /// Device that the memory is on.
    #[getter(device)]
    fn py_device(&self) -> Device {
        Device(self.device())
    }

    /// Further devices that can address the memory, as its producer declares, each accepted as ``device=``.
    #[getter]
    fn device_aliases<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let devices = aliases::of_snapshot(self.described()).iter().copied();
        PyTuple::new(py, devices.map(Device).collect::<Vec<_>>())
    }

    /// Address of the first element, byte offset applied; 0 if there are no elements.
    ///
    /// On devices whose memory is a buffer object (Metal, OpenCL, Vulkan, WebGPU), the handle of that object.
    #[getter]
    fn data_ptr(&self) -> PyResult<usize> {
        Ok(self.snapshot()?.meta().data.addr())
    }

    /// Whether the memory must not be written: its producer says so (READ_ONLY), or cannot say.
    ///
    /// An unversioned capsule has no flags, so a tensor imported from one is exported in one: each consumer treats the
    /// memory as if it came from the producer itself, NumPy as read-only and torch as writable. ``copy=True``
    /// gives writable memory. Source: dlpack.h.
    #[getter]
    fn readonly(&self) -> bool {
        self.described().is_protected()
    }

    /// Whether the memory is a copy made for this tensor (IS_COPIED of dlpack.h).
    #[getter]
    fn is_copied(&self) -> bool {
        self.described().has(DLPACK_FLAG_BITMASK_IS_COPIED)
    }

    /// Whether elements of less than a byte take one each (IS_SUBBYTE_TYPE_PADDED of dlpack.h); packed ones do not.
    #[getter]
    fn is_padded(&self) -> bool {
        self.described()
            .has(DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED)
    }

    /// Whether the elements are row-major without gaps.
    #[getter]
    fn is_contiguous(&self) -> bool {
        self.described().is_row_major()
    }

    /// ``(address, bytes)`` of the smallest run of bytes that holds all elements; ``(0, 0)`` if there are none.
    ///
    /// This is what is registered with a network card, locked or shared. It is not `nbytes` if there are gaps between
    /// the elements, or if strides repeat them. Raises ``BufferError`` where `data_ptr` is a handle.
    #[getter]
    fn span(&self) -> PyResult<(usize, i64)> {
        Ok(bytes::span(self.snapshot()?)?)
    }

    /// Return the bytes of `span` as a one-dimensional ``memoryview`` of uint8 that shares the memory, of any dtype.
    ///
    /// Elements that strides repeat are there once. The view keeps the memory alive and is read-only if the tensor is.
    /// Raises ``BufferError`` for gaps, packed elements that do not begin with a byte, and memory on a device.
    fn raw<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyMemoryView>> {
        let snapshot = bytes::raw(slf.get().snapshot()?)?;
        PyMemoryView::from(Self::part(slf, snapshot)?.as_any())
    }

    /// The stream that the elements are used on or become ready on; None if there is none or it is unknown.
    #[getter]
    fn stream(&self) -> Option<PyStream> {
        let stream = self.described().usage().and_then(StreamUsage::stream);
        stream.cloned().map(PyStream)
    }

    /// ``with t.use(stream=s) as v:`` uses the tensor on stream ``s``, by default that of its producer.
    ///
    /// ``v`` is a `Tensor` that is valid in the block, and ``v.stream`` is the stream to launch on. ``s`` waits for the
    /// tensor's streams on entry, and they wait for ``s`` on exit, also when the body raises. Raises ``BufferError`` if
    /// ``stream`` is given on a device without streams, and for waits that would invalidate a graph capture.
    #[pyo3(name = "use", signature = (*, stream=None))]
    fn r#use(slf: &Bound<'_, Self>, stream: Option<Py<PyAny>>) -> PyResult<Borrow> {
        Borrow::of_use(slf, stream)
    }

    /// Block until the elements are ready and all work queued on their stream, and on ``stream`` if given, is done.
    ///
    /// Pinned memory needs ``stream``: the one that last wrote it, or -1 if there is none. Raises ``BufferError``
    /// without it and while a stream captures a graph, `CudaError` for errors of the driver.
    #[pyo3(signature = (*, stream=None))]
    fn synchronize(&self, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        stream::synchronize(stream, self.device())?;
        let usage = self.described().usage();
        Ok(usage.map_or(Ok(()), StreamUsage::synchronize)?)
    }

    /// Return a NumPy array that shares the memory and keeps its read-only flag.
    ///
    /// bfloat16, fp8 and padded sub-byte types get the dtypes of ``ml_dtypes``. Raises ``BufferError`` if that is not
    /// installed, for memory that is not on the CPU, and for packed sub-byte and vector types.
    fn numpy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        numpy::of(slf)
    }

    /// Return the tensor on ``device``, or a copy if ``copy=True``; the tensor itself if nothing has to change.
    ///
    /// A copy to a device runs on dlx's current stream; one to the host is complete on return. Raises ``BufferError`` if
    /// dlx cannot copy or finds no driver, `CopyRefused` if ``copy=False`` rules out the copy.
    #[pyo3(signature = (*, device=None, copy=None))]
    fn to<'py>(
        slf: &Bound<'py, Self>,
        device: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, Self>> {
        requested::again(slf, device.map(Device::of).transpose()?, copy)
    }

    /// Export a capsule with its own managed tensor over the same memory.
    ///
    /// Without ``max_version``, or below ``(1, 0)``, the capsule holds the unversioned struct, which cannot
    /// express read-only memory or padding; such tensors raise ``BufferError``. ``copy=True`` copies, as
    /// does a ``dl_device`` other than `device` and `device_aliases`: on ``stream``, which must be None if
    /// the result is on the CPU.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(i64, i64)>,
        dl_device: Option<(i64, i64)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let made = requested::capsule(slf, stream, max_version, dl_device, copy)?;
        if trace::is_on() {
            trace::made_capsule(&made, slf);
        }
        Ok(made)
    }

    /// ``(DeviceType, id)``, as in the array API.
    fn __dlpack_device__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        device::to_tuple(py, self.described().meta().device)
    }

    /// `device_aliases` as pairs ``(DeviceType, id)``.
    fn __dlpack_device_aliases__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        aliases::to_tuple(py, aliases::of_snapshot(self.described()))
    }

    /// As that of `dtype`, for ``np.result_type(t)``.
    #[getter]
    fn __numpy_dtype__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        dtype::numpy_dtype(py, self.described().meta().dtype)
    }

    /// NumPy's array interface, version 3; ``AttributeError`` for memory elsewhere and dtypes that it cannot name.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        array_interface::cpu(py, self.snapshot()?)
    }

    /// The CUDA Array Interface, version 3, for memory on CUDA devices.
    ///
    /// Raises ``AttributeError`` for memory elsewhere, ``BufferError`` for dtypes that the interface cannot name.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        array_interface::cuda(py, self.snapshot()?)
    }

    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let snapshot = slf.get().snapshot()?;
        // SAFETY: CPython calls this slot attached, with a `Py_buffer` to fill.
        unsafe { buffer::fill(slf, snapshot, view, flags) }
    }

    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: CPython calls this slot once for each view that `__getbuffer__` filled.
        unsafe { buffer::release(view) };
    }

    /// Return a NumPy array that shares the memory, or a copy if ``copy=True`` or of another ``dtype``.
    ///
    /// For libraries such as pandas. Raises ``ValueError`` if ``copy=False`` rules out the copy, and as `numpy` does.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        python(slf.py(), "dlx._mixin", "as_array", (slf, dtype, copy))
    }

    /// Return the elements as nested lists of Python numbers; the number itself for a tensor without dimensions.
    ///
    /// Raises ``BufferError`` for memory that is not on the CPU, and for dtypes that Python has no number for.
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        element::list(py, self.snapshot()?)
    }

    /// Return the bytes of the elements in row-major order; ``BufferError`` for memory that is not on the CPU.
    fn tobytes<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let rows = requested::again(slf, None, Some(true))?;
        slf.py().get_type::<PyBytes>().call1((Self::raw(&rows)?,))
    }

    /// Extent of the first dimension.
    fn __len__(&self) -> PyResult<usize> {
        first_extent(self.described()).map(|extent| extent as usize)
    }

    /// The elements chosen by ints, slices, ``None`` and ``...``, as a `Tensor` over the same memory.
    ///
    /// An int removes its dimension, also the last. The part keeps the memory alive, and shares the streams of the
    /// tensor. That of a lent tensor is for the block, too, although nothing ends it. Raises ``IndexError`` for an index
    /// out of bounds, ``TypeError`` for other objects, ``BufferError`` for packed elements within a byte.
    fn __getitem__(slf: &Bound<'_, Self>, index: &Bound<'_, PyAny>) -> PyResult<Py<Self>> {
        let snapshot = indexing::part(slf.get().snapshot()?, index)?;
        Self::part(slf, snapshot).map(Bound::unbind)
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        iterator(slf)
    }

    fn __contains__(slf: &Bound<'_, Self>, _x: Py<PyAny>) -> PyResult<bool> {
        compared(slf, PyInt::new(slf.py(), 0).as_any()).map(|_| false)
    }

    fn __richcmp__(slf: &Bound<'_, Self>, x: Py<PyAny>, _op: CompareOp) -> PyResult<Py<PyAny>> {
        compared(slf, x.bind(slf.py()))
    }

    fn __hash__(slf: &Bound<'_, Self>) -> usize {
        slf.as_ptr().addr() >> 4
    }

    /// For ``pickle``: `dlx.pickling` says what becomes of the tensor.
    fn __reduce_ex__(slf: &Bound<'_, Self>, protocol: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        python(slf.py(), "dlx.pickling", "_leave", (slf, protocol)).map(Bound::unbind)
    }

    /// The tensor itself, which is immutable.
    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// A tensor with memory of its own, as ``dlx.from_dlpack(t, copy=True)``.
    fn __deepcopy__(slf: &Bound<'_, Self>, _memo: &Bound<'_, PyAny>) -> PyResult<Py<Self>> {
        requested::again(slf, None, Some(true)).map(Bound::unbind)
    }

    fn __repr__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        shown(slf)
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        element::number(py, self.snapshot()?)?.is_truthy()
    }

    fn __index__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        element::integer(py, self.snapshot()?)
    }

    fn __int__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        element::real(py, "an int", self.snapshot()?)?.call_method0("__int__")
    }

    fn __float__(&self, py: Python<'_>) -> PyResult<f64> {
        element::real(py, "a float", self.snapshot()?)?.extract()
    }

    /// The value of a tensor of one element.
    fn __complex__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let number = element::number(py, self.snapshot()?)?;
        py.get_type::<PyComplex>().call1((number,))
    }
}
