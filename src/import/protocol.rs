//! Rung 4: the Python protocol, `__dlpack__` and `__dlpack_device__`.

#![forbid(unsafe_code)]

mod question;

use pyo3::exceptions::{PyAttributeError, PyBufferError, PyException};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyInt;

use self::question::{Order, Question, failed, of_request};
use crate::abi::*;
use crate::adapters::torch::TorchClass;
use crate::adapters::{self, arrow, jax, oneapi, pyarrow, tensorflow, torch};
use crate::copy::by_driver::{self, On};
use crate::copy::host;
use crate::copy::request::{Asked, Request, finish, is_refusal, refused_by_both};
use crate::cpython::call::{answer, attribute, has};
use crate::cpython::once::intern;
use crate::import::hint::{self, no_protocol};
use crate::stream::usage::Release;
use crate::stream::{self, Wanted};
use crate::tensor::capsule;
use crate::tensor::managed::MAYBE_READ_ONLY;
use crate::tensor::snapshot::Snapshot;
use crate::types::device;
use crate::types::error::{Shown, caused, type_name};

/// Imports through `__dlpack__`; dlx moves or copies the tensor if the producer refuses to. `None` if `x` has no such
/// method.
pub(crate) fn from_protocol(
    x: &Bound<'_, PyAny>,
    whose: &Whose,
    request: &Request<'_, '_>,
) -> PyResult<Option<Snapshot>> {
    let py = x.py();
    let may_copy = request.copy.unwrap_or(request.device.is_some());
    let there = request.device.unwrap_or(device::CPU);
    let error = match ask(x, whose, request) {
        Err(error) if may_copy && is_refusal(py, &error, there) => error,
        answer => return answer,
    };
    let Some(here) = device(x)? else {
        return Err(error);
    };
    let there = request.device.unwrap_or(here);
    if !request.moves(here) {
        return Err(error);
    }
    refused_by_both(py, error.clone_ref(py), here, there)?;
    let on = request.on(there)?;
    let stream = match &on {
        _ if !stream::has_streams(here) => None,
        On::Unordered => Some(stream::NO_SYNC),
        On::Stream { stream, .. } if stream.device() == here => Some(stream.handle()),
        _ => Some(stream::current(py, here)?),
    };
    let stream = stream.map(|handle| PyInt::new(py, handle).into_any());
    let asked = stream.as_ref().map(Asked::by_argument);
    let as_it_is = Request {
        stream: asked.as_ref(),
        // The copy holds its own source.
        release: Release::None,
        ..Request::NOTHING
    };
    let Some(source) = ask(x, whose, &as_it_is)? else {
        return Err(error);
    };
    Ok(Some(by_driver::copied(py, &source, there, on)?))
}

/// Calls `__dlpack__` with `max_version=(1, 3)`, and with a device, a copy or a stream where needed.
pub(crate) fn ask(
    x: &Bound<'_, PyAny>,
    whose: &Whose,
    request: &Request<'_, '_>,
) -> PyResult<Option<Snapshot>> {
    let is_tensorflow = whose.check(x)?;
    ask_unexplained(x, whose, is_tensorflow, request).map_err(|error| torch::explain(x, error))
}

/// As [`ask`], but with torch's own errors.
#[inline(always)]
fn ask_unexplained(
    x: &Bound<'_, PyAny>,
    whose: &Whose,
    is_tensorflow: bool,
    request: &Request<'_, '_>,
) -> PyResult<Option<Snapshot>> {
    let py = x.py();
    if !has(x, intern!(py, "__dlpack__"))? {
        return Ok(None);
    }
    let here = match asked_device(x) {
        Ok(Some(here)) => here,
        // The type has the method, but the object may hide it.
        Ok(None) if attribute(x, intern!(py, "__dlpack__"))?.is_none() => return Ok(None),
        Ok(None) => return Err(no_protocol(x, "__dlpack_device__")),
        // Whoever asks for nothing need not know the device.
        Err(error)
            if request.is_nothing()
                && request.stream.is_none()
                && error.is_instance_of::<PyException>(py) =>
        {
            let snapshot = on_cpu(x, is_tensorflow)?.ok_or(error)?;
            whose.check_export(x, &snapshot)?;
            return Ok(Some(snapshot));
        }
        Err(error) => return Err(error),
    };
    let there = request.device.unwrap_or(here);
    let (stream, order) = match oneapi::queue(x, request.argument(), there)? {
        Some(queue) => (Some(queue.clone()), Order::Ready(None)),
        None => of_request(x, request, here, there)?,
    };
    // Memory that both sides can read is not moved; waiting for it suffices.
    let on_host = if oneapi::is_one(here) && there == device::CPU {
        oneapi::host_queue(x)?
    } else {
        None
    };
    let wanted = if on_host.is_some() { here } else { there };
    let asked = Question {
        stream,
        device: (here != wanted).then_some(wanted),
        // Where dlx can copy itself, it does not ask the producer to.
        copy: request
            .copy
            .filter(|&copy| !(copy && here == wanted && host::can(there))),
    };
    let capsule = match asked.call(x) {
        Ok(capsule) => capsule,
        Err(error) => return unless_absent(x, asked.explain(py, error, here)),
    };
    // Only now: the export itself may have queued work on the stream.
    let usage = match order {
        Order::Ready(usage) => usage,
        Order::Point(producer) => Some(request.order(Wanted::Unset, producer)?),
    };
    let mut snapshot = protected(x, is_tensorflow, capsule::import(&capsule, usage)?)?;
    if asked.copy != Some(true) && asked.device.is_none() {
        whose.check_export(x, &snapshot)?;
    }
    let found = snapshot.meta().device;
    if found != wanted && (request.device.is_some() || stream::has_streams(found)) {
        return Err(PyBufferError::new_err(format!(
            "{} was asked for a tensor on {wanted} and returned one on {found}",
            type_name(&x.get_type())
        )));
    }
    if let Some(queue) = on_host {
        queue.call_method0(intern!(py, "wait"))?;
        snapshot = snapshot.on(there)?;
    }
    // torch's own class copies without setting IS_COPIED (R37); only pinned memory is the host's, too, without a copy. A
    // subclass may share memory between devices.
    let is_moved = asked.device.is_some()
        && stream::has_streams(here) != stream::has_streams(there)
        && matches!(whose, Whose::Torch(TorchClass::Plain(_)));
    let is_copied = matches!(whose, Whose::Torch(_)) && asked.copy == Some(true);
    if is_moved || is_copied {
        snapshot = snapshot.copied()?;
    }
    match asked.copy {
        Some(true) => Ok(Some(snapshot)),
        _ => finish(py, snapshot, request).map(Some),
    }
}

/// Exports `x`, which cannot say where it is; `None` if that fails or the tensor is not on the CPU.
///
/// # Errors
///
/// Exceptions that do not derive from `Exception`, such as `KeyboardInterrupt`.
fn on_cpu(x: &Bound<'_, PyAny>, is_tensorflow: bool) -> PyResult<Option<Snapshot>> {
    match question::fast(x).and_then(|capsule| capsule::import(&capsule, None)) {
        Ok(snapshot) if snapshot.meta().device == device::CPU => {
            protected(x, is_tensorflow, snapshot).map(Some)
        }
        Err(error) if !error.is_instance_of::<PyException>(x.py()) => Err(error),
        _ => Ok(None),
    }
}

/// Exports `x`, which is not torch's, without asking where it is; `None` if that is not the CPU, or if `x` has no
/// `__dlpack__`.
pub(super) fn at_once(x: &Bound<'_, PyAny>, whose: &Whose) -> PyResult<Option<Snapshot>> {
    let is_tensorflow = whose.check(x)?;
    if matches!(whose, Whose::Torch(_)) || !has(x, intern!(x.py(), "__dlpack__"))? {
        return Ok(None);
    }
    let capsule = match question::fast(x) {
        Ok(capsule) => capsule,
        Err(error) => return unless_absent(x, error),
    };
    let snapshot = protected(x, is_tensorflow, capsule::import(&capsule, None)?)?;
    Ok(Some(snapshot).filter(|snapshot| snapshot.meta().device == device::CPU))
}

/// The library of an object, which decides what dlx checks before it calls `__dlpack__`.
#[derive(Clone, Copy)]
pub(crate) enum Whose {
    Torch(TorchClass),
    /// Of a library whose objects need no check.
    Other,
    /// Not torch's; the checks ask for the library.
    Unknown,
}

impl Whose {
    /// Of an object whose type has a table: torch's if it has these guards.
    pub(super) fn of_table(guards: Option<torch::Guards>) -> Self {
        guards.map_or(Self::Unknown, |guards| {
            Self::Torch(TorchClass::Plain(guards))
        })
    }

    /// Checks `x` as its library needs it; whether `x` is a tensor of TensorFlow's.
    #[inline(always)]
    fn check(&self, x: &Bound<'_, PyAny>) -> PyResult<bool> {
        match self {
            Self::Unknown => Ok(tensorflow::check(x)? || pyarrow::check(x).map(|()| false)?),
            Self::Other => Ok(false),
            Self::Torch(kind) => kind.check_protocol(x).map(|()| false),
        }
    }

    /// Checks what `x` has exported.
    fn check_export(&self, x: &Bound<'_, PyAny>, made: &Snapshot) -> PyResult<()> {
        match self {
            Self::Torch(kind) => kind.check_export(x, made),
            Self::Other | Self::Unknown => Ok(()),
        }
    }
}

/// Whether `x` may be of a library that calls its arrays immutable and has no flag: MLX, as the type is of another class
/// than `type`, as those are that nanobind makes; JAX.
#[inline(always)]
fn may_be_immutable(x: &Bound<'_, PyAny>) -> bool {
    let class = x.get_type();
    class.get_type_ptr() != &raw mut ffi::PyType_Type || jax::may_be_array_class(&class)
}

/// The export of `x`, read-only if it cannot say so but its library calls its arrays immutable, or it is Arrow's (S12).
///
/// TensorFlow's tensors are not asked: their `__getattr__` makes two exceptions for a name that they lack, which takes
/// longer than the export.
#[inline(always)]
fn protected(x: &Bound<'_, PyAny>, is_tensorflow: bool, snapshot: Snapshot) -> PyResult<Snapshot> {
    if snapshot.has(MAYBE_READ_ONLY)
        && (is_tensorflow
            || (may_be_immutable(x) && adapters::immutable(x)?.is_some())
            || arrow::is_array(x)?)
    {
        Ok(snapshot.readonly()?)
    } else {
        Ok(snapshot)
    }
}

/// Passes on the failure of `__dlpack__`; `None` if the object hides its type's method, or is for another rung. Python's
/// None is no method.
#[cold]
fn unless_absent<T>(x: &Bound<'_, PyAny>, error: PyErr) -> PyResult<Option<T>> {
    let py = x.py();
    match attribute(x, intern!(py, "__dlpack__"))? {
        None if error.is_instance_of::<PyAttributeError>(py) => Ok(None),
        Some(method) if method.is_none() => Err(caused(py, no_protocol(x, "__dlpack__"), error)),
        _ if adapters::is_whole(x, &error)? => Ok(None),
        _ => Err(error),
    }
}

/// The device that `x` reports; `None` if it reports none.
pub(crate) fn device(x: &Bound<'_, PyAny>) -> PyResult<Option<DLDevice>> {
    if torch::is_lazy_on_cpu(x)? {
        return Ok(Some(device::CPU));
    }
    asked_device(x)
}

/// As [`fn@device`], for an object that has passed the checks.
fn asked_device(x: &Bound<'_, PyAny>) -> PyResult<Option<DLDevice>> {
    let name = intern!(x.py(), "__dlpack_device__");
    let answer = answer(x, name).map_err(|error| torch::explain(x, failed(x, error)))?;
    answer
        .map(|answer| device_of(x, "__dlpack_device__", &answer))
        .transpose()
}

/// The device in the `answer` of the method `name` of `x`.
pub(crate) fn device_of(
    x: &Bound<'_, PyAny>,
    name: &str,
    answer: &Bound<'_, PyAny>,
) -> PyResult<DLDevice> {
    let pair: Option<(i32, Option<i32>)> = answer.extract().ok();
    let numbered = pair.and_then(|(device_type, device_id)| {
        // Paddle reports its CPU with the id None.
        let only = (device_type == kDLCPU.0).then_some(0);
        Some((device_type, device_id.or(only)?))
    });
    let (device_type, device_id) = numbered.ok_or_else(|| {
        let (class, answer) = (type_name(&x.get_type()), Shown(answer));
        let message = format!("{name} of {class} returned {answer}, not a pair of ints");
        hint::nonsense(x, message)
    })?;
    let device = device::of(DLDeviceType(device_type), device_id);
    device::check(device)?;
    Ok(device::normal(device))
}
