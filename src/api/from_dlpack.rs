//! The functions that make a `dlx.Tensor`.

#![forbid(unsafe_code)]

use std::sync::Arc;

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyComplex, PyFloat, PyInt, PySlice, PyString, PyTuple};

use crate::abi::DLPACK_FLAG_BITMASK_READ_ONLY;
use crate::adapters::numpy;
use crate::api::tensor::again;
use crate::copy::request::Request;
use crate::cpython::interpreter::PythonOwner;
use crate::cpython::modules::loaded;
use crate::exchange::slot::is_mixin;
use crate::import::cache;
use crate::import::cache::Way;
use crate::import::{aliases, ladder};
use crate::stream;
use crate::stream::Wanted;
use crate::stream::usage::Release;
use crate::stream::usage::StreamUsage;
use crate::tensor::checked::{Checked, Meta};
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Source;
use crate::types::device;
use crate::types::device::Device;
use crate::types::dtype::DType;
use crate::types::error::{bad_integers, type_name};

/// The tensor that ``x`` describes, sharing its memory.
///
/// ``x`` is an object with a C exchange table (``__dlpack_c_exchange_api__`` on its type), a NumPy array, one
/// with ``__dlpack__`` and ``__dlpack_device__``, or a DLPack capsule, which is consumed. Objects without
/// ``__dlpack__`` may have a Python buffer, ``__array_struct__``, ``__array_interface__``,
/// ``__arrow_c_device_array__`` or ``__arrow_c_array__``, of memory on the CPU, or ``__cuda_array_interface__``.
///
/// ``device`` is where the result must be, as a name, a pair or a `Device`; the producer is asked for it there, and if it
/// refuses, dlx copies between the CPU and CUDA or ROCm devices itself, on ``stream`` or else its current stream.
/// ``copy=True`` always copies; copies that dlx makes are compact, row-major and aligned to 256 bytes.
/// ``copy=False`` never copies and raises `CopyRefused` where a copy is needed.
/// ``stream`` is the stream that the elements will be used on: an int as DLPack defines it for the device, which must
/// live as long as the tensor, or a `Stream` or the stream object of a library, which is kept alive; it waits for the
/// producer's stream. -1 asks for no order.
/// Without it the tensor remembers when its elements are ready, and streams that need them later wait for that. On the
/// CPU there is none; on oneAPI it is a queue of the producer's kind (``dpctl.SyclQueue``), which the producer gets as
/// it is.
/// ``release`` says how the memory is given back while ``stream``, where that is not the producer's, may still use it:
/// ``"auto"`` when the stream is done with what it has been given, ``"wait-back"`` at once after the producer's stream
/// was made to wait, ``"record_stream"`` by the method of torch's tensors, ``"sync"`` after the host has waited,
/// ``"none"`` at once.
///
/// Raises ``BufferError`` for what DLPack or dlx cannot describe, ``AttributeError`` for an object without
/// any of these, ``ValueError`` and ``TypeError`` for bad arguments; the producer's own exceptions pass
/// through; `CudaError` is what a driver reports. Sources: dlpack.h 1.3, array API ``from_dlpack``, R28 to R35, R56 to
/// R62, R70 to R87, R148 to R154.
#[pyfunction]
#[pyo3(signature = (x, /, *, device=None, copy=None, stream=None, release="auto"))]
pub(crate) fn from_dlpack<'py>(
    x: &Bound<'py, PyAny>,
    device: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
    stream: Option<&Bound<'py, PyAny>>,
    release: &str,
) -> PyResult<Bound<'py, Tensor>> {
    let device = device.map(Device::of).transpose()?;
    let request = Request {
        device,
        copy,
        stream,
        release: Release::of(release).ok_or_else(|| {
            PyValueError::new_err(format!(
                "release is {release:?}; accepted are {}",
                Release::names()
            ))
        })?,
        ..Request::NOTHING
    };
    if let Some(tensor) = Tensor::of(x)
        && stream.is_none()
        && !aliases::is_asked(tensor.get().snapshot()?, device)
    {
        return again(tensor, &request);
    }
    if request.release == Release::RecordStream {
        return recorded(x, &request);
    }
    Tensor::holding(x.py(), ladder::from_dlpack(x, &request)?)
}

/// A tensor whose producer is told which stream uses it, so that it holds the memory back itself.
fn recorded<'py>(
    x: &Bound<'py, PyAny>,
    request: &Request<'_, 'py>,
) -> PyResult<Bound<'py, Tensor>> {
    let py = x.py();
    let Some(record) = x.getattr_opt(intern!(py, "record_stream"))? else {
        return Err(PyBufferError::new_err(format!(
            "release='record_stream' needs a tensor with the method record_stream, as torch's have; {} has none",
            type_name(&x.get_type())
        )));
    };
    let snapshot = ladder::from_dlpack(x, request)?;
    let used = snapshot.usage().and_then(|usage| usage.used.clone());
    if let (Some(used), Some(given)) = (used, request.stream) {
        let torch = loaded(intern!(py, "torch"))?;
        let external = match torch {
            // torch takes streams of its own only.
            Some(torch) if x.is_instance(&torch.getattr("Tensor")?)? => {
                let cuda = torch.getattr("cuda")?;
                if given.is_instance(&cuda.getattr("Stream")?)? {
                    None
                } else {
                    Some(
                        cuda.getattr("ExternalStream")?
                            .call1((used.handle(), used.device().device_id))?,
                    )
                }
            }
            _ => None,
        };
        record.call1((external.as_ref().unwrap_or(given),))?;
    }
    Tensor::new(py, snapshot)
}

/// Whether ``x`` is a tensor of some library: a `dlx.Tensor`, an array of NumPy, or an instance of a class with an
/// exchange table or ``__dlpack__``.
///
/// Numbers, strings, buffers such as ``bytes``, and classes are none. Only the class is asked, so nothing runs
/// that an instance could bring along.
#[pyfunction]
#[pyo3(signature = (x, /))]
pub(crate) fn is_tensor(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let class = x.get_type();
    if numpy::is_ndarray(x) || Tensor::of(x).is_some() || is_mixin(&class) {
        return Ok(true);
    }
    if let Some(Way::Table(..) | Way::Numpy) = cache::remembered(x) {
        return Ok(true);
    }
    if is_plain(x) || x.is_exact_instance_of::<PyTuple>() {
        return Ok(false);
    }
    for name in [
        intern!(x.py(), "__dlpack__"),
        intern!(x.py(), "__dlpack_c_exchange_api__"),
        intern!(x.py(), "__c_dlpack_exchange_api__"),
    ] {
        if class
            .getattr_opt(name)?
            .is_some_and(|found| !found.is_none())
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A tensor over memory that somebody else owns.
///
/// ``ptr`` is the address of the first element; ``shape`` and ``strides`` count elements (compact row-major
/// without ``strides``). ``owner`` is kept alive until the tensor and all its exports are gone; without it the
/// caller answers for the memory. An ``owner`` may refer to the tensor: the garbage collector knows the tensor then.
/// ``stream`` is the stream on which the elements become ready, None if they are.
///
/// Raises ``ValueError`` for extents that are negative or more than the address space has from ``ptr`` on, NULL with
/// elements, and unknown devices.
#[pyfunction]
#[pyo3(signature = (ptr, shape, dtype, *, device=None, strides=None, owner=None, readonly=false, stream=None))]
#[allow(
    clippy::too_many_arguments,
    reason = "the keywords of the public function"
)]
pub(crate) fn from_pointer<'py>(
    ptr: &Bound<'py, PyAny>,
    shape: &Bound<'_, PyAny>,
    dtype: &Bound<'_, PyAny>,
    device: Option<&Bound<'_, PyAny>>,
    strides: Option<&Bound<'_, PyAny>>,
    owner: Option<Py<PyAny>>,
    readonly: bool,
    stream: Option<&Bound<'_, PyAny>>,
) -> PyResult<Bound<'py, Tensor>> {
    let py = ptr.py();
    let device = device.map_or(Ok(device::CPU), Device::of)?;
    let ptr: usize = number(ptr, "ptr")?;
    let shape: Vec<i64> = number(shape, "shape")?;
    let strides: Option<Vec<i64>> = strides
        .map(|strides| number(strides, "strides"))
        .transpose()?;
    if let Some(strides) = strides
        .as_ref()
        .filter(|strides| strides.len() != shape.len())
    {
        return Err(PyValueError::new_err(format!(
            "strides {strides:?} do not go with shape {shape:?}: one per dimension is accepted"
        )));
    }
    let meta = Meta {
        data: std::ptr::with_exposed_provenance_mut(ptr),
        byte_offset: 0,
        device,
        dtype: DType::of(dtype)?,
        flags: if readonly {
            DLPACK_FLAG_BITMASK_READ_ONLY
        } else {
            0
        },
    };
    let usage = match stream::wanted(stream, device)? {
        Wanted::Stream(stream) => Some(Arc::new(StreamUsage::ready_after(stream))),
        Wanted::NoOrder | Wanted::Unset => None,
    };
    let checked = Checked::new(meta, &shape, strides.as_deref())
        .and_then(Checked::addressable)
        .map_err(|error| PyValueError::new_err(error.message()))?;
    let source = owner.map_or(Source::Static, |owner| {
        Source::Python(PythonOwner::new(owner))
    });
    Tensor::holding(py, checked.with_usage(source, usage))
}

/// The integers of an argument.
fn number<'py, T: FromPyObjectOwned<'py>>(value: &Bound<'py, PyAny>, name: &str) -> PyResult<T> {
    let extracted = value.extract().map_err(Into::into);
    extracted.map_err(|error: PyErr| {
        let message = format!("{name} is {value}: integers that an address space has are accepted");
        bad_integers(value.py(), &error, message)
    })
}

/// Whether `x` is of a type that most arguments have that are no tensors.
pub(crate) fn is_plain(x: &Bound<'_, PyAny>) -> bool {
    x.is_none()
        || x.is_exact_instance_of::<PyInt>()
        || x.is_exact_instance_of::<PyFloat>()
        || x.is_exact_instance_of::<PyBool>()
        || x.is_exact_instance_of::<PyString>()
        || x.is_exact_instance_of::<PySlice>()
        || x.is_exact_instance_of::<PyBytes>()
        || x.is_exact_instance_of::<PyComplex>()
}
