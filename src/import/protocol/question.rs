//! The call of `__dlpack__`: its keywords, the second call without them for older producers (R32), and its errors.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyBufferError, PyException, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple, PyType};

use crate::abi::*;
use crate::adapters::oneapi;
use crate::copy::request::{elsewhere, is_about_builds};
use crate::cpython::call::{Keyword, attribute, call_method};
use crate::cpython::once::{Once, intern};
use crate::import::hint;
use crate::import::hint::not_a_class;
use crate::types::device;
use crate::types::error::{caused, type_name};

/// The keywords of `__dlpack__` besides `max_version`.
#[derive(Default)]
pub(super) struct Question<'a, 'py> {
    pub(super) stream: Option<i64>,
    /// A oneAPI queue, passed in place of a stream.
    pub(super) queue: Option<&'a Bound<'py, PyAny>>,
    pub(super) device: Option<DLDevice>,
    pub(super) copy: Option<bool>,
}

impl<'py> Question<'_, 'py> {
    /// Calls `__dlpack__` of `x` and returns its capsule.
    ///
    /// Whether the producer knows the new keywords is tested at each call: a class that forwards to others may answer
    /// differently for each instance.
    ///
    /// # Errors
    ///
    /// The producer's exception, that of the second call if it got further; see [`failed`].
    pub(super) fn call(&self, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyCapsule>> {
        let unordered = self.stream.is_none() && self.queue.is_none();
        if unordered && self.device.is_none() && self.copy.is_none() {
            return fast(x);
        }
        match self.call_new(x) {
            Ok(answer) => of_answer(x, answer),
            Err(error) => self.call_again(x, error),
        }
    }

    fn call_new(&self, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = x.py();
        let keywords = self.streams(py)?;
        let (name, version) = max_version(py)?;
        keywords.set_item(name.get_borrowed_item(0)?, version)?;
        if let Some(device) = self.device {
            // A plain pair of ints, which any producer can compare (R68).
            let device = (device.device_type.0, device.device_id);
            keywords.set_item(intern!(py, "dl_device"), device)?;
        }
        if let Some(copy) = self.copy {
            keywords.set_item(intern!(py, "copy"), copy)?;
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
        let method = x.getattr(intern!(py, "__dlpack__"))?;
        method.call((), Some(&self.streams(py)?)).map_err(|second| {
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

    /// The keywords of older producers: the stream or queue that is to wait.
    fn streams(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let keywords = PyDict::new(py);
        let name = intern!(py, "stream");
        match (self.stream, self.queue) {
            (Some(stream), _) => keywords.set_item(name, stream)?,
            (None, Some(queue)) => keywords.set_item(name, queue)?,
            (None, None) => {}
        }
        Ok(keywords)
    }

    /// The error of a failed call: the producer's own (R60), unless dlx can say more.
    pub(super) fn explain(&self, py: Python<'_>, error: PyErr, here: DLDevice) -> PyErr {
        let is = |class: &Bound<'_, PyType>| error.is_instance(py, class);
        let unheard =
            (self.device.is_some() || self.copy == Some(true)) && is(&py.get_type::<PyTypeError>());
        let refused = is(&py.get_type::<PyBufferError>())
            || is(&py.get_type::<PyValueError>())
            || (self.device).is_some_and(|there| is_about_builds(py, &error, there));
        let explained = match self.device {
            Some(there) if self.copy == Some(false) && (unheard || refused) => {
                elsewhere(py, here, there)
            }
            // Such arrays may well be on more than one device, so the error names both.
            Some(there)
                if oneapi::is_one(here)
                    && (unheard || refused || is(&py.get_type::<PyRuntimeError>())) =>
            {
                PyBufferError::new_err(format!(
                    "the tensor is on {}, and its producer does not export it to {}",
                    device::name(here),
                    device::name(there)
                ))
            }
            _ if unheard => PyBufferError::new_err(format!(
                "__dlpack__ raised a TypeError for {}, so its producer can neither move nor copy the tensor",
                if self.device.is_some() {
                    "dl_device"
                } else {
                    "copy"
                }
            )),
            _ => return error,
        };
        caused(py, explained, error)
    }
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
        hint::nonsense(
            x,
            format!("__dlpack__ of {class} returned {found}, not a capsule"),
        )
    })
}

/// The error for an exception of a method of `x`: the exception itself (R60), unless `x` reports itself deleted or on
/// several devices, or is a class, whose methods want an instance. A deleted JAX array raises whatever its code meets
/// first.
#[cold]
pub(super) fn failed(x: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = x.py();
    let is_deleted = || {
        let method = attribute(x, intern!(py, "is_deleted"))?;
        let answer = method.map(|method| method.call0()).transpose()?;
        Ok::<_, PyErr>(answer.is_some_and(|answer| answer.is(&*pyo3::types::PyBool::new(py, true))))
    };
    if !error.is_instance_of::<PyException>(py) {
        return error;
    }
    let what = if is_deleted().unwrap_or(false) {
        "has been deleted (is_deleted() is True), so it has no elements; import it before it is deleted or donated"
    } else if error.is_instance_of::<PyBufferError>(py) && is_sharded(x).unwrap_or(false) {
        "is sharded over several devices; pass numpy.asarray(x), or x.addressable_shards[0].data for a part of it"
    } else {
        let error = not_a_class(x, error);
        // By these, JAX refuses tracers and elements of four bits, which dlx knows more of.
        let is = |class: Bound<'_, PyType>| error.is_instance(py, &class);
        return match is(py.get_type::<PyTypeError>()) || is(py.get_type::<PyRuntimeError>()) {
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
