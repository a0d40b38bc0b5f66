//! `dlx.Tensor` and the functions that make one: what Python sees.

#![deny(unsafe_code)]

use std::ffi::c_int;

use pyo3::exceptions::{PyBufferError, PyImportError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

use crate::abi::*;
use crate::boundary::PythonOwner;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Error;
use crate::exchange::{self, Exchange};
use crate::managed::Managed;
use crate::memory::Memory;
use crate::resolve::{self, Request};
use crate::snapshot::{Checked, Memo, Snapshot, Source};
use crate::{buffer, capsule, copy, device, dtype, layout, stream};

/// A strided view of memory that it keeps alive: shape, strides, dtype, device and address, all immutable.
///
/// Made by `from_dlpack` and `from_pointer`. The elements themselves belong to whoever exported them and may
/// change unless ``readonly`` is set there too. Exports by DLPack (``__dlpack__`` and the C exchange table)
/// and, on the CPU, by the buffer protocol and ``__array_interface__``.
#[pyclass(frozen, weakref, module = "dlx")]
pub struct Tensor(Snapshot);

impl Tensor {
    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.0
    }

    fn export(&self, fresh: bool) -> Result<Managed<DLManagedTensorVersioned>, Error> {
        self.0.export(fresh)
    }
}

/// The object as a tensor, or the error of a table that got another type (R127).
fn tensor<'a>(object: &'a Borrowed<'_, '_, PyAny>) -> PyResult<&'a Tensor> {
    match object.cast::<Tensor>() {
        Ok(tensor) => Ok(tensor.get()),
        Err(_) => Err(PyBufferError::new_err(format!(
            "the exchange table of dlx.Tensor was given {}",
            object.get_type().fully_qualified_name()?
        ))),
    }
}

impl Exchange for Tensor {
    fn export(object: Borrowed<'_, '_, PyAny>) -> PyResult<Managed<DLManagedTensorVersioned>> {
        let tensor = tensor(&object)?;
        stream::for_export(None, &tensor.0)?;
        Ok(tensor.export(false)?)
    }

    fn borrow(object: Borrowed<'_, '_, PyAny>) -> PyResult<DLTensor> {
        let tensor = tensor(&object)?;
        stream::for_export(None, &tensor.0)?;
        Ok(tensor.0.dl_tensor())
    }

    fn import(py: Python<'_>, snapshot: Snapshot) -> PyResult<Bound<'_, PyAny>> {
        Ok(Bound::new(py, Self(snapshot))?.into_any())
    }

    fn allocate(
        shape: &[i64],
        dtype: DLDataType,
        device: DLDevice,
    ) -> Result<Managed<DLManagedTensorVersioned>, Error> {
        if device.device_type != kDLCPU {
            let name = device::name(device);
            let message = format!("dlx does not allocate on {name}, only on cpu");
            return Err(Error::refused(message));
        }
        dtype::check(dtype)?;
        let size = layout::size(shape)?;
        layout::check_extent(size, shape, None, dtype)?;
        let memory = Memory::new(layout::nbytes(size, dtype, false))?;
        let memo = Memo {
            data: memory.as_ptr(),
            byte_offset: 0,
            device: device::CPU,
            dtype,
            flags: 0,
            stream: None,
        };
        let snapshot = Checked::new(memo, shape, None)?.over(Source::Memory(memory));
        snapshot.export(true)
    }

    fn current_work_stream(device: DLDevice) -> PyResult<i64> {
        Ok(stream::current_work_stream(device))
    }
}

/// The table of `dlx.Tensor`.
static TABLE: exchange::Published = exchange::Published(exchange::table::<Tensor>());

#[pymethods]
impl Tensor {
    /// The C exchange table of DLPack 1.3, as a capsule named ``dlpack_exchange_api`` (R112 to R114).
    #[classattr]
    fn __dlpack_c_exchange_api__(py: Python<'_>) -> PyResult<Bound<'_, PyCapsule>> {
        exchange::publish(py, &TABLE)
    }

    /// Extents.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape())
    }

    /// Steps between neighbours of each dimension, in elements; never absent.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.strides())
    }

    /// Number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.0.ndim()
    }

    /// Number of elements.
    #[getter]
    fn size(&self) -> i64 {
        self.0.size()
    }

    /// Bytes of the elements alone; packed sub-byte elements are rounded up once over the whole (R110).
    #[getter]
    fn nbytes(&self) -> i64 {
        self.0.nbytes()
    }

    /// Bytes of one element, rounded up where it is smaller than a byte.
    #[getter]
    fn itemsize(&self) -> u32 {
        dtype::bits(self.0.memo().dtype).div_ceil(8)
    }

    /// Type of one element.
    #[getter]
    fn dtype(&self) -> DType {
        DType(self.0.memo().dtype)
    }

    /// Where the memory is.
    #[getter]
    fn device(&self) -> Device {
        Device(self.0.memo().device)
    }

    /// Address of the first element, byte offset applied; 0 when there are no elements (R93, R95).
    ///
    /// On devices whose memory is a buffer object (Metal, OpenCL, Vulkan, WebGPU) its handle.
    #[getter]
    fn data_ptr(&self) -> usize {
        self.0.memo().data.addr()
    }

    /// Whether the memory must not be written (READ_ONLY, R39).
    #[getter]
    fn readonly(&self) -> bool {
        self.0.has(DLPACK_FLAG_BITMASK_READ_ONLY)
    }

    /// Whether the memory is a copy made for this tensor (IS_COPIED, R37).
    #[getter]
    fn is_copied(&self) -> bool {
        self.0.has(DLPACK_FLAG_BITMASK_IS_COPIED)
    }

    /// Whether the elements lie in row-major order with nothing between them.
    #[getter]
    fn is_contiguous(&self) -> bool {
        self.0.is_row_major()
    }

    /// The stream on which the elements become ready, or None: no stream, or none known.
    #[getter]
    fn stream(&self) -> Option<i64> {
        self.0
            .memo()
            .stream
            .filter(|&stream| stream != stream::NO_SYNC)
    }

    /// The elements as a NumPy array that shares the memory and keeps its read-only flag.
    ///
    /// bfloat16, fp8 and padded sub-byte types come as the dtypes of ``ml_dtypes``.
    ///
    /// Raises ``BufferError`` for memory not on the CPU, for packed sub-byte and vector types, and for
    /// dtypes that need ``ml_dtypes`` where that is not installed.
    fn numpy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let numpy = py.import("numpy")?;
        let snapshot = &slf.get().0;
        let Memo { dtype, device, .. } = *snapshot.memo();
        if buffer::is_nameable(dtype) || device.device_type != kDLCPU {
            let view = pyo3::types::PyMemoryView::from(slf.as_any())?;
            return numpy.call_method1("asarray", (view,));
        }
        let name = dtype::name(dtype).to_string();
        let padded = snapshot.has(DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED);
        let unknown =
            |why: &str| PyBufferError::new_err(format!("NumPy cannot show {name}: {why}"));
        if dtype.lanes != 1 || (dtype.bits < 8 && !padded) {
            return Err(unknown("it knows neither vectors nor packed elements"));
        }
        let Some(stand_in) = buffer::stand_in(dtype) else {
            return Err(unknown("it has no dtype of that size"));
        };
        let ml_dtype = match py.import("ml_dtypes") {
            Ok(ml_dtypes) => ml_dtypes.getattr_opt(name.as_str())?,
            Err(error) if error.is_instance_of::<PyImportError>(py) => {
                return Err(unknown(
                    "that takes the package ml_dtypes, which is not installed",
                ));
            }
            Err(error) => return Err(error),
        };
        let ml_dtype = ml_dtype.ok_or_else(|| unknown("ml_dtypes does not have it"))?;
        let raw = Bound::new(py, Self(snapshot.reinterpret(stand_in)?))?;
        Self::numpy(&raw)?.call_method1("view", (ml_dtype,))
    }

    /// The tensor on ``device``, as a copy if ``copy=True``; itself where nothing has to change.
    ///
    /// Raises ``BufferError`` where memory would have to move, ``CopyRefused`` with ``copy=False``.
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
            stream: None,
        };
        again(slf, &request)
    }

    /// A capsule with a managed tensor of its own over the same memory.
    ///
    /// ``max_version`` below ``(1, 0)`` or absent gives the unversioned struct (R22, R23), which cannot say
    /// that memory is read-only or padded: ``BufferError`` then (R40). ``copy=True`` copies (R47);
    /// ``dl_device`` must be the tensor's own (R52); ``stream`` must be None on the CPU (R70).
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let here = self.0.memo().device;
        if let Some((device_type, device_id)) = dl_device
            && (device_type, device_id) != (here.device_type.0, here.device_id)
        {
            return Err(PyBufferError::new_err(format!(
                "dl_device is ({device_type}, {device_id}), but the tensor is on {}, and dlx does not move it",
                device::name(here)
            )));
        }
        stream::for_export(stream, &self.0)?;
        let fresh = copy == Some(true);
        let copied;
        let snapshot = match fresh {
            true => {
                copied = copy::compact(py, &self.0)?;
                &copied
            }
            false => &self.0,
        };
        if max_version.is_some_and(|(major, _)| major >= DLPACK_MAJOR_VERSION) {
            return capsule::export(py, snapshot.export::<DLManagedTensorVersioned>(fresh)?);
        }
        if snapshot.has(DLPACK_FLAG_BITMASK_READ_ONLY | DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED)
        {
            return Err(PyBufferError::new_err(
                "an unversioned capsule cannot say that the tensor is read-only or padded; \
                 ask for max_version=(1, 0) or later, or for copy=True",
            ));
        }
        capsule::export(py, snapshot.export::<DLManagedTensor>(fresh)?)
    }

    /// ``(DeviceType, id)`` (R64).
    fn __dlpack_device__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        device::to_tuple(py, self.0.memo().device)
    }

    /// NumPy's array interface, version 3, for memory on the CPU.
    ///
    /// Raises ``BufferError`` for memory elsewhere and for dtypes that it cannot name.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        buffer::array_interface(py, &self.0)
    }

    #[allow(
        unsafe_code,
        reason = "PyO3 declares the buffer slots unsafe; `buffer.rs` argues them"
    )]
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        // SAFETY: CPython passes a `Py_buffer` to fill.
        unsafe { buffer::fill(slf, view, flags) }
    }

    #[allow(
        unsafe_code,
        reason = "PyO3 declares the buffer slots unsafe; `buffer.rs` argues them"
    )]
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: CPython releases a view that `__getbuffer__` filled.
        unsafe { buffer::release(view) };
    }

    fn __repr__(&self) -> String {
        let Memo { dtype, device, .. } = *self.0.memo();
        let shape: Vec<String> = self.0.shape().iter().map(i64::to_string).collect();
        let mut text = format!(
            "dlx.Tensor({}[{}], {}",
            dtype::name(dtype),
            shape.join(", "),
            device::name(device)
        );
        if !self.0.is_row_major() {
            text += &format!(", strides={:?}", self.0.strides());
        }
        for (flag, name) in [
            (DLPACK_FLAG_BITMASK_READ_ONLY, ", readonly"),
            (DLPACK_FLAG_BITMASK_IS_COPIED, ", copied"),
            (DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, ", padded"),
        ] {
            if self.0.has(flag) {
                text += name;
            }
        }
        text + ")"
    }
}

/// `slf` itself, or the copy of it that was asked for.
fn again<'py>(slf: &Bound<'py, Tensor>, request: &Request<'_, '_>) -> PyResult<Bound<'py, Tensor>> {
    let snapshot = &slf.get().0;
    if request.copy != Some(true)
        && request
            .device
            .is_none_or(|there| there == snapshot.memo().device)
    {
        return Ok(slf.clone());
    }
    let snapshot = resolve::again(slf.py(), snapshot.clone(), request)?;
    Bound::new(slf.py(), Tensor(snapshot))
}

/// The tensor that ``x`` describes, sharing its memory.
///
/// ``x`` is an object with a C exchange table (``__dlpack_c_exchange_api__`` on its type), one with
/// ``__dlpack__`` and ``__dlpack_device__``, or a DLPack capsule, which is consumed.
///
/// ``device`` is where the result must be, as a name, a pair or a `Device`; the producer is asked to move it.
/// ``copy=True`` always copies, on the CPU into compact row-major memory aligned to 256 bytes;
/// ``copy=False`` never does and raises `CopyRefused` where one is needed.
/// ``stream`` is the stream that the elements will be used on: an int as DLPack defines it for the device,
/// None for the default stream, -1 for no order; on the CPU there is none.
///
/// Raises ``BufferError`` for what DLPack or dlx cannot describe, ``AttributeError`` for an object without
/// the protocol, ``ValueError`` and ``TypeError`` for bad arguments; the producer's own exceptions pass
/// through. Sources: dlpack.h 1.3, array API ``from_dlpack``, R28 to R35, R56 to R62.
#[pyfunction]
#[pyo3(signature = (x, /, *, device=None, copy=None, stream=None))]
pub(crate) fn from_dlpack<'py>(
    x: &Bound<'py, PyAny>,
    device: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
    stream: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, Tensor>> {
    let device = device.map(Device::of).transpose()?;
    let request = Request {
        device,
        copy,
        stream,
    };
    if let Ok(tensor) = x.cast::<Tensor>() {
        let snapshot = &tensor.get().0;
        let wanted = stream::for_import(stream, snapshot.memo().device)?;
        stream::ordered(wanted, snapshot)?;
        return again(tensor, &request);
    }
    Bound::new(x.py(), Tensor(resolve::from_dlpack(x, &request)?))
}

/// A tensor over memory that somebody else owns.
///
/// ``ptr`` is the address of the first element; ``shape`` and ``strides`` count elements (compact row-major
/// without ``strides``). ``owner`` is kept alive until the tensor and all its exports are gone; without it the
/// caller answers for the memory. An ``owner`` that refers to the tensor makes a cycle that is never freed.
/// ``stream`` is the stream on which the elements become ready, None if they are.
///
/// Raises ``ValueError`` for negative or overflowing extents, NULL with elements, and unknown devices.
#[pyfunction]
#[pyo3(signature = (ptr, shape, dtype, *, device=None, strides=None, owner=None, readonly=false, stream=None))]
#[allow(
    clippy::too_many_arguments,
    reason = "the keywords of the public function"
)]
pub(crate) fn from_pointer(
    ptr: usize,
    shape: Vec<i64>,
    dtype: &Bound<'_, PyAny>,
    device: Option<&Bound<'_, PyAny>>,
    strides: Option<Vec<i64>>,
    owner: Option<Py<PyAny>>,
    readonly: bool,
    stream: Option<&Bound<'_, PyAny>>,
) -> PyResult<Tensor> {
    let device = device.map_or(Ok(device::CPU), Device::of)?;
    if let Some(strides) = strides
        .as_ref()
        .filter(|strides| strides.len() != shape.len())
    {
        return Err(PyValueError::new_err(format!(
            "strides {strides:?} do not go with shape {shape:?}: one per dimension is accepted"
        )));
    }
    let memo = Memo {
        data: std::ptr::with_exposed_provenance_mut(ptr),
        byte_offset: 0,
        device,
        dtype: DType::of(dtype)?,
        flags: if readonly {
            DLPACK_FLAG_BITMASK_READ_ONLY
        } else {
            0
        },
        stream: match stream {
            None => None,
            Some(_) => stream::for_import(stream, device)?,
        },
    };
    let checked = Checked::new(memo, &shape, strides.as_deref())
        .map_err(|error| PyValueError::new_err(error.message()))?;
    let source = owner.map_or(Source::Static, |owner| {
        Source::Python(PythonOwner::new(owner))
    });
    Ok(Tensor(checked.over(source)))
}
