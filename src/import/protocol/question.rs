//! The call of `__dlpack__`: its keywords, the order of its tensor, the second call without new keywords for older
//! producers (R32), and its errors.

#![forbid(unsafe_code)]

use std::sync::Arc;

use pyo3::exceptions::{PyBufferError, PyException, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyCapsule, PyDict, PyInt, PyTuple};

use crate::abi::*;
use crate::adapters::{cuda_array_interface, jax, oneapi};
use crate::copy::request::{Request, elsewhere, is_about_builds};
use crate::cpython::call::{Keyword, answer, attribute, call_method};
use crate::cpython::once::{Once, intern};
use crate::driver;
use crate::import::hint::{self, not_a_class};
use crate::stream::usage::{Producer, Ready, StreamUsage};
use crate::stream::{self, Stream, Wanted};
use crate::types::error::{caused, or_false, type_name};

/// The keywords of `__dlpack__` besides `max_version`.
#[derive(Default)]
pub(super) struct Question<'py> {
    /// The handle of a stream, or a oneAPI queue.
    pub(super) stream: Option<Bound<'py, PyAny>>,
    pub(super) device: Option<DLDevice>,
    pub(super) copy: Option<bool>,
}

impl<'py> Question<'py> {
    /// Calls `__dlpack__` of `x` and returns its capsule.
    ///
    /// Whether the producer knows the new keywords is tested at each call: a class that forwards to others may answer
    /// differently for each instance.
    ///
    /// # Errors
    ///
    /// The producer's exception, that of the second call if it got further; see [`failed`].
    pub(super) fn call(&self, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyCapsule>> {
        if self.stream.is_none() && self.device.is_none() && self.copy.is_none() {
            return fast(x);
        }
        match self.ask(x, true) {
            Ok(answer) => of_answer(x, answer),
            Err(error) => self.call_again(x, error),
        }
    }

    /// Calls with `stream`, and with the keywords that older producers lack if it `is_new`.
    fn ask(&self, x: &Bound<'py, PyAny>, is_new: bool) -> PyResult<Bound<'py, PyAny>> {
        let py = x.py();
        let keywords = PyDict::new(py);
        if let Some(stream) = &self.stream {
            keywords.set_item(intern!(py, "stream"), stream)?;
        }
        if is_new {
            keywords.set_item(intern!(py, "max_version"), max_version(py)?.1)?;
            if let Some(device) = self.device {
                // A plain pair of ints, which any producer can compare (R68).
                let device = (device.device_type.0, device.device_id);
                keywords.set_item(intern!(py, "dl_device"), device)?;
            }
            if let Some(copy) = self.copy {
                keywords.set_item(intern!(py, "copy"), copy)?;
            }
        }
        x.getattr(intern!(py, "__dlpack__"))?
            .call((), Some(&keywords))
    }

    /// Retries after the first call raised `error`, if a retry can succeed.
    #[cold]
    fn call_again(&self, x: &Bound<'py, PyAny>, error: PyErr) -> PyResult<Bound<'py, PyCapsule>> {
        let needs_new = self.device.is_some() || self.copy == Some(true);
        // For a keyword that it lacks, CPython raises no subclass.
        let answer = match error.get_type(x.py()).is(x.py().get_type::<PyTypeError>()) {
            true if !needs_new => self.call_old(x, error),
            _ => Err(error),
        };
        answer
            .map_err(|error| failed(x, error))
            .and_then(|answer| of_answer(x, answer))
    }

    /// Calls without the new keywords, after the `TypeError` `first`.
    fn call_old(&self, x: &Bound<'py, PyAny>, first: PyErr) -> PyResult<Bound<'py, PyAny>> {
        let py = x.py();
        self.ask(x, false).map_err(|second| {
            // Without a traceback the second call failed on its arguments; only the first one entered the method.
            let unheard =
                second.is_instance_of::<PyTypeError>(py) && second.traceback(py).is_none();
            if unheard && first.traceback(py).is_some() {
                return first;
            }
            let (context, error) = (first.value(py), second.value(py));
            if !context.is(error) {
                // As in a Python `except` clause. If this fails, the error still says enough.
                let _ = error.setattr(intern!(py, "__context__"), context);
            }
            second
        })
    }

    /// The error of a failed call: the producer's own (R60), unless dlx can say more.
    pub(super) fn explain(&self, py: Python<'_>, error: PyErr, here: DLDevice) -> PyErr {
        let unheard = (self.device.is_some() || self.copy == Some(true))
            && error.is_instance_of::<PyTypeError>(py);
        let refused = error.is_instance_of::<PyBufferError>(py)
            || error.is_instance_of::<PyValueError>(py)
            || (self.device).is_some_and(|there| is_about_builds(py, &error, there));
        let explained = match self.device {
            Some(there) if self.copy == Some(false) && (unheard || refused) => {
                elsewhere(py, here, there)
            }
            // Such arrays may well be on more than one device, so the error names both.
            Some(there)
                if oneapi::is_one(here)
                    && (unheard || refused || error.is_instance_of::<PyRuntimeError>(py)) =>
            {
                PyBufferError::new_err(format!(
                    "the tensor is on {here}, and its producer does not export it to {there}"
                ))
            }
            _ if unheard => PyBufferError::new_err(format!(
                "__dlpack__ raised a TypeError for {}, so its producer can neither move nor copy the tensor",
                self.device.map_or("copy", |_| "dl_device")
            )),
            _ => return error,
        };
        caused(py, explained, error)
    }
}

/// How an export that is about to be made will be ordered.
pub(super) enum Order {
    /// The producer orders it.
    Ready(Option<Arc<StreamUsage>>),
    /// The tensor waits for all work queued on the producer's stream by the end of the export.
    Point(Producer),
}

/// The `stream` argument and the order for an export of `x` from `here` to `there`.
pub(super) fn of_request<'py>(
    x: &Bound<'py, PyAny>,
    request: &Request<'_, '_>,
    here: DLDevice,
    there: DLDevice,
) -> PyResult<(Option<Bound<'py, PyAny>>, Order)> {
    let wanted = request.wanted(there)?;
    let producer = match wanted {
        Wanted::NoOrder => None,
        _ if here == there => cuda_array_interface::producer(x, here)?,
        _ => None,
    };
    let (argument, order) = match (wanted, producer) {
        (Wanted::NoOrder, _) => {
            // JAX takes -1 for a handle (0.11).
            let knows = stream::has_streams(there) && !jax::is_array(x)?;
            let argument = knows.then_some(stream::NO_SYNC);
            // Later uses of it have to wait for each other.
            let usage = stream::has_streams(there).then(Arc::default);
            (argument, Order::Ready(usage))
        }
        (Wanted::Stream(stream), producer) => {
            let is_producers = (producer.as_ref()).is_some_and(|known| known.then.is(&stream));
            let stream = if is_producers {
                stream
            } else {
                stream::check_device(stream, there)?
            };
            let argument = Some(stream.handle());
            let usage = request.usage(Ready::After(stream), producer);
            (argument, Order::Ready(Some(usage)))
        }
        // The producer's stream is known, so no stream need wait yet, least of all the legacy default stream, which
        // would wait for every other.
        (Wanted::Unset, Some(producer)) if driver::of(here).is_ok() => {
            (Some(stream::NO_SYNC), Order::Point(producer))
        }
        // The default stream, explicitly (R83, R84).
        (Wanted::Unset, _) => {
            let argument = stream::default(there);
            let ready = || Ready::After(Stream::default(there));
            let usage = argument.map(|_| request.usage(ready(), None));
            (argument, Order::Ready(usage))
        }
    };
    let argument = argument.map(|handle| PyInt::new(x.py(), handle).into_any());
    Ok((argument, order))
}

/// The capsule of `x`, requested with `max_version` alone.
#[inline(always)]
pub(super) fn fast<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyCapsule>> {
    let keyword = max_version(x.py())?;
    match call_method(x, intern!(x.py(), "__dlpack__"), keyword) {
        Ok(answer) => of_answer(x, answer),
        Err(error) => Question::default().call_again(x, error),
    }
}

/// The keyword `max_version`, and the DLPack version that dlx implements.
#[inline(always)]
fn max_version(py: Python<'_>) -> PyResult<Keyword<'_, '_>> {
    static KEYWORD: Once<(Py<PyTuple>, Py<PyTuple>)> = Once::new();
    let (names, version) = KEYWORD.get_or_try_init(py, || {
        let names = PyTuple::new(py, [intern!(py, "max_version")])?;
        let version = PyTuple::new(py, [DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION])?;
        Ok::<_, PyErr>((names.unbind(), version.unbind()))
    })?;
    Ok((names.bind(py), version.bind(py).as_any()))
}

/// Checks that `__dlpack__` of `x` returned a capsule.
#[inline(always)]
fn of_answer<'py>(
    x: &Bound<'py, PyAny>,
    answer: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyCapsule>> {
    answer.cast_into::<PyCapsule>().map_err(|error| {
        let (class, found) = (x.get_type(), error.into_inner().get_type());
        let (class, found) = (type_name(&class), type_name(&found));
        let message = format!("__dlpack__ of {class} returned {found}, not a capsule");
        hint::nonsense(x, message)
    })
}

/// The error for an exception of a method of `x`: the exception itself (R60), unless `x` reports itself deleted or on
/// several devices, or is a class, whose methods want an instance. A deleted JAX array raises whatever its code meets
/// first.
#[cold]
pub(super) fn failed(x: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = x.py();
    let is_deleted = || {
        let said = answer(x, intern!(py, "is_deleted"))?;
        Ok(said.is_some_and(|said| said.is(&*PyBool::new(py, true))))
    };
    if !error.is_instance_of::<PyException>(py) {
        return error;
    }
    let what = if or_false(is_deleted()) {
        "has been deleted (is_deleted() is True), so it has no elements; import it before it is deleted or donated"
    } else if error.is_instance_of::<PyBufferError>(py) && or_false(is_sharded(x)) {
        "is sharded over several devices; pass numpy.asarray(x), or x.addressable_shards[0].data for a part of it"
    } else {
        let error = not_a_class(x, error);
        // By these, JAX refuses tracers and elements of four bits, which dlx knows more of.
        let is_noted =
            error.is_instance_of::<PyTypeError>(py) || error.is_instance_of::<PyRuntimeError>(py);
        return match is_noted {
            true => hint::noted(x, error),
            false => error,
        };
    };
    let message = format!("the {} {what}", type_name(&x.get_type()));
    caused(py, PyBufferError::new_err(message), error)
}

/// Whether `x` says that it is on more than one device, as JAX's arrays may be.
fn is_sharded(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = x.py();
    let Some(sharding) = attribute(x, intern!(py, "sharding"))? else {
        return Ok(false);
    };
    let devices = attribute(&sharding, intern!(py, "device_set"))?;
    devices.map_or(Ok(false), |devices| Ok(devices.len()? > 1))
}
