//! The call of `__dlpack__`: what it is asked for, once more without that for producers of before (R32), and what its
//! failures say.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyBufferError, PyException, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyDict, PyTuple, PyType};

use crate::abi::*;
use crate::adapters::oneapi;
use crate::copy::request::{elsewhere, is_about_builds};
use crate::cpython::call::{Keyword, attribute, call, call_method};
use crate::types::device;
use crate::types::error::type_name;

/// What goes to `__dlpack__` beside `max_version`.
#[derive(Default)]
pub(super) struct Question<'a, 'py> {
    pub(super) stream: Option<i64>,
    /// A queue of oneAPI, which goes in place of a stream.
    pub(super) queue: Option<&'a Bound<'py, PyAny>>,
    pub(super) device: Option<DLDevice>,
    pub(super) copy: Option<bool>,
}

impl<'py> Question<'_, 'py> {
    /// The capsule that `__dlpack__` of `x` answers.
    ///
    /// Whether it knows the new keywords is asked at each call: a class that forwards to others says for each of its
    /// objects something else.
    ///
    /// # Errors
    ///
    /// What it raises, to the second question if that got further; see [`failed`].
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
        call(&x.getattr(intern!(py, "__dlpack__"))?, Some(&keywords))
    }

    /// What comes of it after the first call has raised `error`.
    #[cold]
    fn call_again(&self, x: &Bound<'py, PyAny>, error: PyErr) -> PyResult<Bound<'py, PyCapsule>> {
        let needs_new = self.device.is_some() || self.copy == Some(true);
        let answer = match error.is_instance_of::<PyTypeError>(x.py()) {
            true if !needs_new => self.call_old(x, error),
            _ => Err(error),
        };
        answer
            .map_err(|error| failed(x, error))
            .and_then(|answer| of_answer(x, answer))
    }

    /// The question without the new keywords, after `first`, a `TypeError`.
    fn call_old(&self, x: &Bound<'py, PyAny>, first: PyErr) -> PyResult<Bound<'py, PyAny>> {
        let py = x.py();
        let method = x.getattr(intern!(py, "__dlpack__"))?;
        call(&method, Some(&self.streams(py)?)).map_err(|second| {
            // It was raised at the call, and only the first question was heard.
            let unheard =
                second.is_instance_of::<PyTypeError>(py) && second.traceback(py).is_none();
            if unheard && first.traceback(py).is_some() {
                return first;
            }
            let (context, error) = (first.value(py), second.value(py));
            if !context.is(error) {
                // As after an `except` clause of Python; without it the error says as much.
                let _ = error.setattr(intern!(py, "__context__"), context);
            }
            second
        })
    }

    /// The keywords of before: the stream or queue that is to wait.
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

    /// The error of a call that failed: the producer's own (R60), unless it says what only dlx knows.
    pub(super) fn explain(&self, py: Python<'_>, error: PyErr, here: DLDevice) -> PyErr {
        let is = |class: &Bound<'_, PyType>| error.is_instance(py, class);
        let unheard =
            (self.device.is_some() || self.copy == Some(true)) && is(&py.get_type::<PyTypeError>());
        let refused = is(&py.get_type::<PyBufferError>())
            || is(&py.get_type::<PyValueError>())
            || is_about_builds(py, &error);
        let explained = match self.device {
            Some(there) if self.copy == Some(false) && (unheard || refused) => {
                elsewhere(py, here, there)
            }
            // Of such arrays one can expect more than one device, so the error says which there are.
            Some(there)
                if oneapi::is_one(here)
                    && (unheard || refused || is(&py.get_type::<PyRuntimeError>())) =>
            {
                PyBufferError::new_err(format!(
                    "the tensor is on {}, and its producer does not give it on {}",
                    device::name(here),
                    device::name(there)
                ))
            }
            _ if unheard => PyBufferError::new_err(format!(
                "__dlpack__ answers {} with a TypeError, so the tensor cannot be had on another device or as a copy",
                if self.device.is_some() {
                    "dl_device"
                } else {
                    "copy"
                }
            )),
            _ => return error,
        };
        explained.set_cause(py, Some(error));
        explained
    }
}

/// The capsule of `x`, asked for nothing but the version.
#[inline(always)]
pub(super) fn fast<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyCapsule>> {
    let py = x.py();
    match call_method(x, intern!(py, "__dlpack__"), Some(max_version(py)?)) {
        Ok(answer) => of_answer(x, answer),
        Err(error) => Question::default().call_again(x, error),
    }
}

/// The name of the keyword `max_version`, and the version of DLPack that dlx speaks.
#[inline(always)]
fn max_version(py: Python<'_>) -> PyResult<Keyword<'_, '_>> {
    static KEYWORD: PyOnceLock<(Py<PyTuple>, Py<PyTuple>)> = PyOnceLock::new();
    let (names, version) = KEYWORD.get_or_try_init(py, || {
        let names = PyTuple::new(py, [intern!(py, "max_version")])?;
        let version = PyTuple::new(py, [DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION])?;
        Ok::<_, PyErr>((names.unbind(), version.unbind()))
    })?;
    Ok((names.bind(py), version.bind(py).as_any()))
}

/// What `__dlpack__` of `x` answered, if that is a capsule.
#[inline(always)]
fn of_answer<'py>(
    x: &Bound<'py, PyAny>,
    answer: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyCapsule>> {
    answer.cast_into::<PyCapsule>().map_err(|error| {
        PyTypeError::new_err(format!(
            "__dlpack__ of {} returned {}, not a capsule",
            type_name(&x.get_type()),
            type_name(&error.into_inner().get_type())
        ))
    })
}

/// What a method of `x` raised: it passes unchanged (R60), unless `x` says itself that it has been deleted. JAX fails
/// then wherever its code comes across it first.
#[cold]
pub(super) fn failed(x: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = x.py();
    let is_deleted = || {
        let method = attribute(x, intern!(py, "is_deleted"))?;
        let answer = method.map(|method| call(&method, None)).transpose()?;
        Ok::<_, PyErr>(answer.is_some_and(|answer| answer.is(&*pyo3::types::PyBool::new(py, true))))
    };
    if !error.is_instance_of::<PyException>(py) || !is_deleted().unwrap_or(false) {
        return error;
    }
    let explained = PyBufferError::new_err(format!(
        "the {} has been deleted (is_deleted() is True), so it has no elements; import it before it is deleted or \
         donated",
        type_name(&x.get_type())
    ));
    explained.set_cause(py, Some(error));
    explained
}
