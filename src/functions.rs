//! The functions that make a `dlx.Tensor`.

#![forbid(unsafe_code)]

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString, PyTuple};

use crate::abi::DLPACK_FLAG_BITMASK_READ_ONLY;
use crate::adapters::numpy;
use crate::cache::{self, Way};
use crate::checked::{Checked, Memo};
use crate::device::{self, Device};
use crate::dtype::DType;
use crate::error::bad_integers;
use crate::interpreter::PythonOwner;
use crate::request::Request;
use crate::slot::is_mixin;
use crate::snapshot::Source;
use crate::tensor::{Tensor, again};
use crate::{aliases, resolve, stream};

/// The tensor that ``x`` describes, sharing its memory.
///
/// ``x`` is an object with a C exchange table (``__dlpack_c_exchange_api__`` on its type), a NumPy array, one
/// with ``__dlpack__`` and ``__dlpack_device__``, or a DLPack capsule, which is consumed. Objects without
/// ``__dlpack__`` may have a Python buffer, ``__array_struct__``, ``__array_interface__``,
/// ``__arrow_c_device_array__`` or ``__arrow_c_array__``, of memory on the CPU.
///
/// ``device`` is where the result must be, as a name, a pair or a `Device`; the producer is asked for it there.
/// ``copy=True`` always copies, on the CPU into compact row-major memory aligned to 256 bytes;
/// ``copy=False`` never does and raises `CopyRefused` where one is needed.
/// ``stream`` is the stream that the elements will be used on: an int as DLPack defines it for the device,
/// None for the default stream, -1 for no order; on the CPU there is none. On oneAPI it is a queue of the
/// producer's kind (``dpctl.SyclQueue``), which the producer gets as it is.
///
/// Raises ``BufferError`` for what DLPack or dlx cannot describe, ``AttributeError`` for an object without
/// any of these, ``ValueError`` and ``TypeError`` for bad arguments; the producer's own exceptions pass
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
    if let Ok(tensor) = x.cast_exact::<Tensor>()
        && !aliases::is_asked(tensor.get().snapshot(), device)
    {
        let snapshot = tensor.get().snapshot();
        let wanted = stream::for_import(stream, snapshot.memo().device)?;
        stream::ordered(wanted, snapshot)?;
        return again(tensor, &request);
    }
    Bound::new(x.py(), Tensor::new(resolve::from_dlpack(x, &request)?))
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
    if numpy::is_ndarray(x) || x.is_exact_instance_of::<Tensor>() || is_mixin(&class) {
        return Ok(true);
    }
    if let Some(Way::Table(..) | Way::Numpy) = cache::known(x) {
        return Ok(true);
    }
    if is_plain(x) {
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

/// Whether `x` is of one of the builtin types that most arguments have which are no tensors.
fn is_plain(x: &Bound<'_, PyAny>) -> bool {
    x.is_none()
        || x.is_exact_instance_of::<PyInt>()
        || x.is_exact_instance_of::<PyFloat>()
        || x.is_exact_instance_of::<PyBool>()
        || x.is_exact_instance_of::<PyString>()
        || x.is_exact_instance_of::<PyTuple>()
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
    ptr: &Bound<'_, PyAny>,
    shape: &Bound<'_, PyAny>,
    dtype: &Bound<'_, PyAny>,
    device: Option<&Bound<'_, PyAny>>,
    strides: Option<&Bound<'_, PyAny>>,
    owner: Option<Py<PyAny>>,
    readonly: bool,
    stream: Option<&Bound<'_, PyAny>>,
) -> PyResult<Tensor> {
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
    Ok(Tensor::new(checked.over(source)))
}

/// The integers of an argument.
fn number<'py, T: FromPyObjectOwned<'py>>(value: &Bound<'py, PyAny>, name: &str) -> PyResult<T> {
    let extracted = value.extract().map_err(Into::into);
    extracted.map_err(|error: PyErr| {
        let message = format!("{name} is {value}: integers that an address space has are accepted");
        bad_integers(value.py(), &error, message)
    })
}
