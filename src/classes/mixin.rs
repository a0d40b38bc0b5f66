//! `dlx.ExchangeMixin`: the implementation of its methods, and how a class gets its table.

#![forbid(unsafe_code)]

mod exchange;

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyString, PyTuple, PyType};

use crate::abi::*;
use crate::adapters::oneapi;
use crate::copy::by_driver;
use crate::copy::request::{Asked, Request};
use crate::cpython::once::intern;
use crate::exchange::slot::{Hooks, Origin, SLOTS, Slot, innermost, is_root, nested, root_or};
use crate::exchange::{Exchange, publish};
use crate::import::ladder::{explain, from_dlpack, from_tensor};
use crate::import::{aliases, protocol};
use crate::stream;
use crate::stream::usage::Release;
use crate::tensor::capsule;
use crate::tensor::checked::Prototype;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;
use crate::tensor::trace;
use crate::types::device::{self, Device};
use crate::types::dtype::DType;
use crate::types::error::caused;
use crate::types::layout::Integers;

/// Return the mixin of this process: the first ``class`` passed, also if the defining module runs again.
#[pyfunction]
pub(crate) fn mixin<'py>(class: Bound<'py, PyType>) -> PyResult<Bound<'py, PyType>> {
    let root = root_or(&class).clone();
    if root.is(&class) {
        register(&class)?;
    }
    Ok(root)
}

/// Give the mixin or a subclass its exchange table.
///
/// Once the pool is exhausted, a class shares the table of a base; the first time, the text of a warning is returned.
#[pyfunction]
pub(crate) fn register(class: &Bound<'_, PyType>) -> PyResult<Option<String>> {
    static WARNED: AtomicBool = AtomicBool::new(false);
    let py = class.py();
    let (origin, hooks) = if is_root(class) {
        (Origin::Method, Hooks::default())
    } else {
        (Origin::of(class)?, Hooks::of(class)?)
    };
    let lends = origin.lends();
    let own = Slot::claim(class, origin, hooks)?;
    let shared = match own {
        None => parent(class, lends)?,
        own => own,
    };
    if let Some(slot) = shared {
        // A metaclass may override assignment, so set the attribute through `type`.
        let name = intern!(py, "__dlpack_c_exchange_api__");
        let setattr = py
            .get_type::<PyType>()
            .getattr(intern!(py, "__setattr__"))?;
        setattr.call1((class, name, publish(py, &slot.table)?))?;
    }
    if own.is_some() || WARNED.swap(true, Ordering::Relaxed) {
        return Ok(None);
    }
    Ok(Some(format!(
        "{} shares the exchange table of its base, as all later classes will, because the {SLOTS} tables of dlx are \
         used up: tensors that C code returns are instances of that base, or of dlx.Tensor",
        class.qualname()?
    )))
}

/// The nearest base whose table this class can share: one that lends views only if the class does.
fn parent(class: &Bound<'_, PyType>, lends: bool) -> PyResult<Option<&'static Slot>> {
    for base in class.mro().iter().skip(1) {
        let slot = Slot::of_class(base.cast::<PyType>()?)?;
        if let Some(slot) = slot.filter(|slot| lends || !slot.origin.lends()) {
            return Ok(Some(slot));
        }
    }
    Ok(None)
}

/// ``__dlpack__`` of a mixin class: the capsule of the object that ``x`` exports.
#[pyfunction]
#[pyo3(signature = (x, *, stream, max_version, dl_device, copy))]
pub(crate) fn dlpack<'py>(
    x: &Bound<'py, PyAny>,
    stream: Option<&Bound<'py, PyAny>>,
    max_version: Option<(i64, i64)>,
    dl_device: Option<(i32, i32)>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let py = x.py();
    let device = dl_device.map(|(kind, id)| device::of(DLDeviceType(kind), id));
    device.map_or(Ok(()), device::check)?;
    let asked = stream.map(Asked::by_argument);
    let request = Request {
        stream: asked.as_ref(),
        release: Release::None,
        ..Request::of(device, copy)
    };
    let (inner, last) = innermost(x)?;
    let snapshot = match Tensor::of(&inner) {
        Some(tensor) => from_tensor(tensor, Some(x), &request),
        None => from_dlpack(&inner, &request),
    };
    let snapshot = snapshot.map_err(|error| {
        let error = explain(&last, &inner, error);
        match device {
            Some(device) => elsewhere(&inner, error, device),
            None => error,
        }
    })?;
    if !oneapi::is_queue(stream, snapshot.meta().device) {
        capsule::order_for_export(stream, &snapshot)?;
    }
    // A producer's tensor was made for this export; a dlx.Tensor shares its own (R38).
    let fresh = copy == Some(true) || Tensor::of(&inner).is_none();
    let made = capsule::of(py, &snapshot, capsule::is_versioned(max_version), fresh)?;
    if trace::is_on() {
        trace::made_capsule(&made, x);
    }
    Ok(made)
}

/// Turns a producer's own error for a device that it cannot serve into a `BufferError` (R52).
fn elsewhere(x: &Bound<'_, PyAny>, error: PyErr, there: DLDevice) -> PyErr {
    let py = x.py();
    let refused =
        error.is_instance_of::<PyValueError>(py) || error.is_instance_of::<PyRuntimeError>(py);
    let is_there = protocol::device(x).is_ok_and(|here| here == Some(device::normal(there)));
    if error.is_instance_of::<PyBufferError>(py) || !refused || is_there {
        return error;
    }
    let message = format!("the tensor is not available on {there}");
    caused(py, PyBufferError::new_err(message), error)
}

/// The tensor that ``x``, an instance of either mixin, exports through ``__dlx_export__``.
#[pyfunction]
pub(crate) fn exported<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Tensor>> {
    let inner = Origin::without_slot(&x.get_type())?.read(x)?;
    Tensor::new(x.py(), imported(x, &inner)?)
}

/// Imports `inner`, which `x` exports.
fn imported(x: &Bound<'_, PyAny>, inner: &Bound<'_, PyAny>) -> PyResult<Snapshot> {
    from_dlpack(inner, &Request::NOTHING).map_err(|error| explain(x, inner, error))
}

/// ``__dlpack_device__`` of a mixin class.
#[pyfunction]
pub(crate) fn dlpack_device<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    let (inner, last) = innermost(x)?;
    let device = match protocol::device(&inner)? {
        Some(device) => device,
        None => imported(&last, &inner)?.meta().device,
    };
    device::to_tuple(x.py(), device)
}

/// ``__dlpack_device_aliases__`` of a mixin class: those of the inner object.
#[pyfunction]
pub(crate) fn dlpack_device_aliases<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    let (inner, _) = innermost(x)?;
    aliases::to_tuple(x.py(), &aliases::of(&inner, false)?.unwrap_or_default())
}

/// Build an instance of ``cls`` over ``tensor``, through ``__dlx_import__``.
#[pyfunction]
pub(crate) fn import_tensor<'py>(
    cls: &Bound<'py, PyType>,
    tensor: &Bound<'py, Tensor>,
) -> PyResult<Bound<'py, PyAny>> {
    make(&Origin::Method, cls, tensor)
}

/// Builds an instance of `class` over `tensor`: like the instance `like`, if there is one.
pub(crate) fn make_like<'py>(
    class: &Bound<'py, PyType>,
    like: Option<&Bound<'py, PyAny>>,
    tensor: &Bound<'py, Tensor>,
) -> PyResult<Bound<'py, PyAny>> {
    let Some(like) = like else {
        return import_tensor(class, tensor);
    };
    let hook = intern!(class.py(), "__dlx_like__");
    let made = nested(class, || like.call_method1(hook, (tensor,)))?;
    instance_of(class, made, hook)
}

/// Builds an instance of `class` over `tensor`.
fn make<'py>(
    origin: &Origin,
    class: &Bound<'py, PyType>,
    tensor: &Bound<'py, Tensor>,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, tensor) = (class.py(), tensor.as_any());
    // For classes that share the mixin's own table, a plain tensor.
    if is_root(class) {
        return Ok(tensor.clone());
    }
    let (own, hook) = (intern!(py, "from_dlpack"), intern!(py, "__dlx_import__"));
    let (made, hook) = match origin {
        Origin::Itself { import: None } => (class.call_method1(own, (tensor,)), own),
        Origin::Itself {
            import: Some(import),
        } => (import.bind(py).call1((tensor,)), own),
        _ => (nested(class, || class.call_method1(hook, (tensor,))), hook),
    };
    instance_of(class, made?, hook)
}

/// What `hook` of `class` made, if it is an instance.
fn instance_of<'py>(
    class: &Bound<'py, PyType>,
    made: Bound<'py, PyAny>,
    hook: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    if made.is_instance(class)? {
        return Ok(made);
    }
    let wanted = format_args!("{}; expected an instance of the class", made.get_type());
    Err(exchange::nonsense(class, hook.to_str()?, wanted))
}

/// The current stream of the library whose tensor instances of ``cls`` exported last, else dlx's current stream.
#[pyfunction]
pub(crate) fn current_work_stream(
    cls: &Bound<'_, PyType>,
    device: &Bound<'_, PyAny>,
) -> PyResult<i64> {
    let device = Device::of(device)?;
    match Slot::of_class(cls)? {
        Some(slot) => slot.inherited(cls.py(), device),
        None => stream::current(cls.py(), device),
    }
}

/// The stream that `class` works on; dlx's current stream if it names none.
pub(crate) fn stream_of(class: &Bound<'_, PyType>, device: DLDevice) -> PyResult<i64> {
    let py = class.py();
    let asked = Slot::of_class(class)?.map(|slot| Exchange::current_work_stream(slot, py, device));
    match asked.transpose()? {
        None | Some(0) => stream::current(py, device),
        Some(named) => Ok(named),
    }
}

/// Builds an instance of `class` over memory from its `__dlx_empty__`: like the instance `like`, if there is one.
pub(crate) fn empty<'py>(
    class: &Bound<'py, PyType>,
    like: Option<&Bound<'py, PyAny>>,
    wanted: Prototype<'_>,
) -> PyResult<Bound<'py, PyAny>> {
    let stream = |device| stream_of(class, device);
    let snapshot = exchange::memory_of(class, &stream, wanted)?;
    make_like(class, like, &Tensor::new(class.py(), snapshot)?)
}

/// Allocate uninitialized memory from dlx; ``shape`` counts elements.
#[pyfunction]
pub(crate) fn allocate<'py>(
    shape: Integers,
    dtype: &Bound<'py, PyAny>,
    device: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, Tensor>> {
    let py = device.py();
    let wanted = Prototype {
        shape: &shape.0,
        dtype: DType::of(dtype)?,
        device: Device::of(device)?,
    };
    Tensor::new(py, by_driver::empty(wanted)?)
}
