//! The functions that make a `dlx.Tensor`.

#![forbid(unsafe_code)]

use std::sync::Arc;

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::adapters::numpy;
use crate::api::tensor::requested::again;
use crate::copy::request::{Asked, Request};
use crate::cpython::interpreter::PythonOwner;
use crate::cpython::lookup::lacks;
use crate::cpython::modules::python;
use crate::cpython::once::intern;
use crate::exchange::slot::is_mixin;
use crate::import::cache::{self, Way};
use crate::import::{aliases, ladder};
use crate::stream::usage::{Release, StreamUsage};
use crate::stream::{self, Wanted};
use crate::tensor::checked::{Checked, Meta};
use crate::tensor::managed::read_only;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Source;
use crate::tensor::trace;
use crate::types::device::{self, Device};
use crate::types::dtype::DType;
use crate::types::error::{Shown, bad_integers, is_urgent, type_name};
use crate::types::layout::Integers;

/// Import ``x`` as a `Tensor` that shares its memory.
///
/// ``x`` is an object with a C exchange table (``__dlpack_c_exchange_api__`` on its type), a NumPy array, an object
/// with ``__dlpack__`` and ``__dlpack_device__``, or a DLPack capsule, which is consumed. Objects without
/// ``__dlpack__`` may support the Python buffer protocol, ``__array_struct__``, ``__array_interface__``,
/// ``__arrow_c_array__``, ``__arrow_c_stream__`` (of one array) or ``__array__`` for memory on the CPU,
/// ``__cuda_array_interface__``, or ``__arrow_c_device_array__``.
///
/// ``device`` is where the result must be: a name, a pair, a `Device`, or a device of torch, JAX or CuPy. The producer is
/// asked first, except for a compact tensor that goes to the CPU from a device whose table names its stream. If it
/// refuses, dlx copies between the CPU and CUDA or ROCm devices itself, to a device on ``stream`` or else on its current
/// stream.
///
/// ``copy=True`` always copies; dlx's own copies are compact, row-major and aligned to 256 bytes. ``copy=False`` never
/// copies and raises `CopyRefused` if a copy is needed.
///
/// ``stream`` is the stream that will use the elements; it waits for the producer's stream. It is an int as DLPack
/// defines it for the device, which must live as long as the tensor, or a `Stream` or a library's stream object, which
/// is kept alive. -1 requests no order. Without ``stream`` the tensor remembers when its elements are ready, and
/// streams that use them later wait for that. The CPU has no streams; on oneAPI ``stream`` is a queue of the producer's
/// kind (``dpctl.SyclQueue``), passed on to the producer.
///
/// ``release`` says when the memory is released if ``stream``, other than the producer's, may still use it: ``"auto"``
/// once ``stream`` has finished the work queued on it, ``"record_stream"`` through that method of torch's tensors,
/// ``"none"`` at once.
///
/// Raises ``BufferError`` for tensors that DLPack or dlx cannot describe, ``AttributeError`` for an object that
/// supports none of these protocols, ``ValueError`` and ``TypeError`` for bad arguments, and `CudaError` for errors of
/// the driver. The producer's own exceptions pass through. Sources: dlpack.h 1.3, array API ``from_dlpack``.
///
///     >>> import numpy as np
///     >>> a = np.arange(6.0).reshape(2, 3)
///     >>> t = dlx.from_dlpack(a)
///     >>> t
///     dlx.Tensor(float64[2, 3], cpu, [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
///     >>> t.data_ptr == a.ctypes.data
///     True
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
    let asked = stream.map(Asked::by_argument);
    let request = Request {
        stream: asked.as_ref(),
        release: Release::of(release)?,
        ..Request::of(device, copy)
    };
    let made = if let Some(tensor) = Tensor::of(x)
        && stream.is_none()
        && !aliases::is_asked(tensor.get().snapshot()?, device)
    {
        again(tensor, device, copy)?
    } else if request.release == Release::RecordStream {
        recorded(x, &request)?
    } else {
        Tensor::holding(x.py(), ladder::from_dlpack(x, &request)?)?
    };
    if trace::is_on() {
        trace::begun(made.as_any(), c"from_dlpack", Some(x), None);
    }
    Ok(made)
}

/// Imports for ``release="record_stream"``: tells the producer which stream uses the tensor, so that its own allocator
/// keeps the memory.
fn recorded<'py>(
    x: &Bound<'py, PyAny>,
    request: &Request<'_, 'py>,
) -> PyResult<Bound<'py, Tensor>> {
    let py = x.py();
    let Some(record) = x.getattr_opt(intern!(py, "record_stream"))? else {
        return Err(PyBufferError::new_err(format!(
            "release='record_stream' requires a tensor with a method record_stream, such as torch's; {} has none",
            type_name(&x.get_type())
        )));
    };
    let snapshot = ladder::from_dlpack(x, request)?;
    let used = snapshot.usage().and_then(|usage| usage.used().cloned());
    if let (Some(used), Some(given)) = (used, request.argument()) {
        let named = (x, given, used.handle(), used.device().device_id);
        let stream = python(py, "dlx._libraries.torch", "recorded_stream", named)?;
        record.call1((stream,))?;
    }
    Tensor::new(py, snapshot)
}

/// Whether ``x`` is a tensor of some library: a `dlx.Tensor`, a NumPy array, or an instance of a class with an exchange
/// table or ``__dlpack__``.
///
/// Numbers, strings, buffers such as ``bytes``, and classes are not, nor are NumPy arrays of strings, dates, objects or
/// fields. Else only the class is inspected, so no code of the instance runs.
#[pyfunction]
#[pyo3(signature = (x, /))]
pub(crate) fn is_tensor(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(!numpy::lacks_numbers(x) && is_of_tensors(x)?)
}

/// Whether `x`, which was refused by this error, is a tensor in no library.
#[cold]
pub(crate) fn is_no_tensor(x: &Bound<'_, PyAny>, error: &PyErr) -> PyResult<bool> {
    let ask = || python(x.py(), "dlx._containers.tree", "has_no_numbers", (x,));
    Ok(!is_urgent(x.py(), error) && ask()?.is_truthy()?)
}

/// As [`is_tensor`], by the class alone: also for arrays of strings, which a kernel is not given.
pub(crate) fn is_of_tensors(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    if let Some(Way::Table(..) | Way::Numpy | Way::Jax) = cache::noted(x) {
        return Ok(true);
    }
    let class = x.get_type();
    if numpy::is_ndarray(x) || Tensor::of(x).is_some() || is_mixin(&class) {
        return Ok(true);
    }
    if ladder::is_plain(x) || x.is_exact_instance_of::<PyTuple>() {
        return Ok(false);
    }
    let names = [
        intern!(x.py(), "__dlpack__"),
        intern!(x.py(), "__dlpack_c_exchange_api__"),
        intern!(x.py(), "__c_dlpack_exchange_api__"),
    ];
    // Asking the class by `getattr` would make an exception for each.
    if lacks(&class, &names) {
        return Ok(false);
    }
    for name in names {
        if (class.getattr_opt(name)?).is_some_and(|found| !found.is_none()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Make a `Tensor` over memory that dlx does not own.
///
/// ``ptr`` is the address of the first element; ``shape`` and ``strides`` count elements (compact and row-major
/// without ``strides``). ``device`` is that of the memory, by default the CPU. ``owner`` is kept alive until the tensor
/// and all its exports are gone; without an owner, the caller must keep the memory valid. An ``owner`` may refer to the
/// tensor: the garbage collector then tracks the tensor. ``stream`` is the stream on which the elements become ready,
/// None if they are ready.
///
/// Raises ``ValueError`` for negative extents, extents that overflow the address space from ``ptr`` on, a NULL ``ptr``
/// with elements, and unknown devices.
///
///     >>> from ctypes import addressof, c_int32
///     >>> numbers = (c_int32 * 3)(1, 2, 3)
///     >>> dlx.from_pointer(addressof(numbers), (3,), "int32", owner=numbers).tolist()
///     [1, 2, 3]
#[pyfunction]
#[pyo3(signature = (ptr, shape, dtype, *, device=None, strides=None, owner=None, readonly=false, stream=None))]
#[allow(clippy::too_many_arguments, reason = "the public keywords")]
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
    let ptr: usize = number(ptr, "ptr", "an address as an int")?;
    let (shape, strides) = dimensions(shape, strides)?;
    let data = std::ptr::with_exposed_provenance_mut(ptr);
    let meta = Meta {
        device,
        ..Meta::on_cpu(data, DType::of(dtype)?, read_only(readonly))
    };
    let usage = match stream::wanted(stream, device)? {
        Wanted::Stream(stream) => Some(StreamUsage::ready_after(stream, None)),
        // Later uses of it have to wait for each other.
        Wanted::NoOrder | Wanted::Unset => stream::has_streams(device).then(Arc::default),
    };
    let checked = Checked::new(meta, &shape, strides.as_deref())
        .and_then(Checked::addressable)
        .map_err(|error| PyValueError::new_err(error.message()))?;
    let owner = owner.map(PythonOwner::new);
    let source = owner.map_or(Source::Static, Source::Python);
    let made = Tensor::holding(py, checked.with_usage(source, usage))?;
    if trace::is_on() {
        trace::begun(made.as_any(), c"from_pointer", None, None);
    }
    Ok(made)
}

/// Extracts a shape, and strides if given.
#[inline(never)]
pub(super) fn dimensions(
    shape: &Bound<'_, PyAny>,
    strides: Option<&Bound<'_, PyAny>>,
) -> PyResult<(Vec<i64>, Option<Vec<i64>>)> {
    let Integers(shape) = number(shape, "shape", "a sequence of ints, such as (2,)")?;
    let strides = strides.map(|strides| number(strides, "strides", "a sequence of ints"));
    let strides = strides.transpose()?.map(|Integers(strides)| strides);
    if let Some(strides) = &strides
        && strides.len() != shape.len()
    {
        return Err(PyValueError::new_err(format!(
            "strides {strides:?} do not match shape {shape:?}; expected one per dimension"
        )));
    }
    Ok((shape, strides))
}

/// Extracts the integers of an argument.
pub(super) fn number<'py, T: FromPyObjectOwned<'py>>(
    value: &Bound<'py, PyAny>,
    name: &str,
    accepted: &str,
) -> PyResult<T> {
    let extracted = value.extract().map_err(Into::into);
    extracted.map_err(|error: PyErr| {
        let message = format!("{name} is {}; expected {accepted}", Shown(value));
        bad_integers(value.py(), &error, message)
    })
}
