//! One file or folder per library that needs special treatment, and per protocol other than DLPack; here, the order of
//! the protocols, and the classes that their libraries call immutable.
//!
//! An adapter knows its library or protocol and the rooms below. It knows no other adapter, unless its library builds
//! on that one, and does not know `import`, which calls it.

mod array_interface;
pub(crate) mod array_method;
pub(crate) mod arrow;
pub(crate) mod buffer;
pub(crate) mod cuda_array_interface;
mod interface;
pub(crate) mod jax;
pub(crate) mod numpy;
pub(crate) mod oneapi;
pub(crate) mod paddle;
pub(crate) mod pyarrow;
pub(crate) mod tensorflow;
pub(crate) mod torch;
mod versions;

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use crate::abi::{DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_READ_ONLY};
use crate::copy::request::{Asked, Request};
use crate::cpython::call::{attribute, has};
use crate::cpython::lookup::{is_in_type, is_static, looks_up_as_usual};
use crate::cpython::once::intern;
use crate::stream;
use crate::stream::usage::Release;
use crate::tensor::snapshot::Snapshot;

use array_method::asked;
pub(crate) use versions::Counter;

type Reader = fn(&Bound<'_, PyAny>) -> PyResult<Option<Snapshot>>;

/// Rung 5: imports `x` through a protocol other than DLPack; `None` if it has none.
///
/// The first protocol that `x` has decides, in NumPy's order: buffer protocol, `__array_struct__`,
/// `__array_interface__`; then CUDA's interface, and Arrow's. Last comes what may copy.
pub(crate) fn snapshot(
    x: &Bound<'_, PyAny>,
    request: &Request<'_, '_>,
) -> PyResult<Option<Snapshot>> {
    const DECIDED: u64 = DLPACK_FLAG_BITMASK_READ_ONLY | DLPACK_FLAG_BITMASK_IS_COPIED;
    match by_protocol(x, request)? {
        Some(snapshot) if !snapshot.has(DECIDED) && immutable(x)?.is_some() => {
            Ok(Some(snapshot.readonly()?))
        }
        snapshot => Ok(snapshot),
    }
}

/// Whether `x` shows its elements by no protocol but `__array__`, which its class has, or a stream of Arrow: its
/// `__getattr__`, which gives what it holds by that name in pandas, is not asked for the others.
#[inline(always)]
pub(crate) fn is_column(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    // A class with a `__getattr__` has another function.
    Ok(!looks_up_as_usual(x.get_type_ptr()) && shows_a_column(x)?)
}

/// [`is_column`], of what has a `__getattr__`.
#[inline(never)]
fn shows_a_column(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let (py, class) = (x.py(), x.get_type_ptr());
    let is_own = |name| is_in_type(class, name) == Some(true);
    if !is_own(intern!(py, "__getattr__")) || !is_own(intern!(py, "__array__")) {
        return Ok(false);
    }
    let others = [
        intern!(py, "__dlpack__"),
        intern!(py, "__dlpack_device__"),
        intern!(py, "__dlpack_c_exchange_api__"),
        intern!(py, "__array_struct__"),
        intern!(py, "__array_interface__"),
        intern!(py, "__cuda_array_interface__"),
        intern!(py, "__arrow_c_device_array__"),
        intern!(py, "__arrow_c_array__"),
    ];
    if !(others.iter()).all(|name| is_in_type(class, name) == Some(false)) {
        return Ok(false);
    }
    let own = attribute(x, intern!(py, "__dict__"))?;
    let Some(Ok(own)) = own.map(|own| own.cast_into_exact::<PyDict>()) else {
        return Ok(false);
    };
    for name in others {
        if own.contains(name)? {
            return Ok(false);
        }
    }
    let look = intern!(py, "__getattribute__");
    let is_usual = (x.get_type().getattr(look)?).is(&py.get_type::<PyAny>().getattr(look)?);
    Ok(is_usual && !buffer::has(x))
}

/// Imports what [`is_column`], or has none of the protocols of arrays but these.
///
/// A Series of polars tells by its stream what it has; its `__array__` makes other numbers of nulls.
pub(crate) fn of_column(
    x: &Bound<'_, PyAny>,
    request: &Request<'_, '_>,
) -> PyResult<Option<Snapshot>> {
    // Without a stream there is no other way, and dask warns of `copy=False`.
    if !arrow::stream::is_first(x)? && has(x, intern!(x.py(), "__arrow_c_stream__"))? {
        match array_method::shared(x)? {
            None if asked(x, "decides")?.is_truthy()? => return array_method::snapshot(x),
            None => {}
            shared => return Ok(shared),
        }
    }
    match arrow::stream::snapshot(x, request)? {
        None => array_method::snapshot(x),
        found => Ok(found),
    }
}

/// Whether `x`, one of whose protocols gave `error`, has numbers and no nulls, of which `__array__` makes an array: it is in
/// pieces, or has Arrow's booleans of one bit each.
#[cold]
pub(crate) fn is_whole(x: &Bound<'_, PyAny>, error: &PyErr) -> PyResult<bool> {
    Ok(error.is_instance_of::<PyBufferError>(x.py()) && asked(x, "is_whole")?.is_truthy()?)
}

/// What NumPy unpacks `x` to, if it is [`buffer::packed`]; else this error. A plain array, whatever the class of `x` makes
/// of a copy: who reads the memory of `x` has asked for its mask.
#[cold]
pub(crate) fn unpacked(x: &Bound<'_, PyAny>, error: PyErr) -> PyResult<Snapshot> {
    let numpy = buffer::packed(x).and_then(|_| x.py().import("numpy").ok());
    let copied = numpy.ok_or(error)?.call_method1("array", (x,))?;
    numpy::snapshot(&copied)
}

fn by_protocol(x: &Bound<'_, PyAny>, request: &Request<'_, '_>) -> PyResult<Option<Snapshot>> {
    // Others say what the elements are by letters, and the buffer of a `numpy.datetime64` is bytes without their meaning.
    if numpy::is_no_number(x)? {
        let array = x.py().import("numpy")?.call_method1("asarray", (x,))?;
        return numpy::snapshot(&array).map(Some);
    }
    let of_numpy: [Reader; 2] = [array_interface::from_struct, array_interface::from_dict];
    for read in [buffer::snapshot as Reader].into_iter().chain(of_numpy) {
        match read(x) {
            Ok(None) => {}
            Err(error) if request.copy == Some(true) => {
                return unpacked(x, error).map(Some);
            }
            found => return found,
        }
    }
    for read in [cuda_array_interface::snapshot, arrow::snapshot, of_column] {
        if let Some(snapshot) = read(x, request)? {
            return Ok(Some(snapshot));
        }
    }
    Ok(None)
}

/// The name of the class of `x` if its library calls that immutable, which its exports may not say. By the names that its
/// bases have, whatever `sys.modules` says.
pub(crate) fn immutable(x: &Bound<'_, PyAny>) -> PyResult<Option<&'static str>> {
    const KNOWN: [(&str, &str, &str); 5] = [
        ("ArrayImpl", "jax", "jax.Array"),
        ("array", "mlx", "mlx.core.array"),
        ("Index", "pandas", "pandas.Index"),
        ("EagerTensor", "tensorflow", "tensorflow.Tensor"),
        ("Variable", "tensorflow", "tensorflow.Variable"),
    ];
    let class = x.get_type();
    if is_static(&class) {
        return Ok(None);
    }
    for base in class.mro() {
        let base = base.cast_into::<PyType>()?;
        let name = base.name()?;
        let name = name.to_str()?;
        for (own, library, known) in KNOWN {
            if own == name && base.module()?.to_str()?.starts_with(library) {
                return Ok(Some(known));
            }
        }
    }
    Ok(None)
}

/// The count by which the library that exported the memory of a snapshot sees that it was written to, if it counts.
///
/// # Errors
///
/// `BufferError` if it counts, and dlx has not found where.
pub(crate) fn counter(py: Python<'_>, snapshot: &Snapshot) -> PyResult<Option<Counter>> {
    let Some(maker) = snapshot.maker() else {
        return Ok(None);
    };
    match torch::COUNTS.counter(py, snapshot, maker)? {
        None => paddle::COUNTS.counter(py, snapshot, maker),
        found => Ok(found),
    }
}

/// Whether `x` has one of these protocols, even one that fails.
pub(crate) fn is_known(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = x.py();
    let no_order = stream::NO_SYNC.into_pyobject(py)?.into_any();
    let asked = Asked::by_argument(&no_order);
    let request = Request {
        stream: Some(&asked),
        release: Release::None,
        ..Request::NOTHING
    };
    Ok(snapshot(x, &request).map_or(true, |snapshot| snapshot.is_some()))
}
