//! The usual export: of a type whose tensors were on the CPU so far, asked for nothing but the version.
//!
//! `__dlpack_device__` is asked for what `stream` is to be, and on the CPU that is nothing. Such a type is asked for the
//! capsule at once, which tells where the tensor is: one that is elsewhere is let go, and the type is asked in full
//! from then on. It was made for the legacy default stream, so no order that anybody relies on is missing.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyAny, PyCapsule, PyTuple};

use super::is_signature_error;
use crate::abi::*;
use crate::adapters::torch;
use crate::cache::Entry;
use crate::error::type_name;
use crate::managed::Managed;
use crate::method::call_method;
use crate::{capsule, checked};

/// The capsule of `x`; `None` where the type has to be asked in full.
///
/// # Errors
///
/// What `__dlpack__` raises, unless it is missing or has another signature by now.
pub(super) fn capsule_of<'py>(
    x: &Bound<'py, PyAny>,
    entry: &Entry,
) -> PyResult<Option<Bound<'py, PyCapsule>>> {
    if !entry.is_on_cpu() {
        return Ok(None);
    }
    let py = x.py();
    static VERSION: PyOnceLock<(Py<PyTuple>, Py<PyTuple>)> = PyOnceLock::new();
    let (names, version) = VERSION.get_or_try_init(py, || {
        let names = PyTuple::new(py, [intern!(py, "max_version")])?;
        let version = PyTuple::new(py, [DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION])?;
        Ok::<_, PyErr>((names.unbind(), version.unbind()))
    })?;
    let keyword = (names.bind(py), version.bind(py).as_any());
    let keyword = (!entry.is_old()).then_some(keyword);
    match call_method(x, intern!(py, "__dlpack__"), keyword) {
        Ok(answer) => of_answer(x, answer).map(Some),
        Err(error)
            if error.is_instance_of::<PyAttributeError>(py) || is_signature_error(py, &error) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// What `__dlpack__` of `x` answered, if that is a capsule.
pub(super) fn of_answer<'py>(
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

/// The tensor of `x`, on the CPU, as it is or as dlx writes it; `None` where `x` has to be asked in full.
pub(crate) fn usual(
    x: &Bound<'_, PyAny>,
    kind: Option<torch::Kind>,
    entry: &Entry,
) -> PyResult<Option<Managed<DLManagedTensorVersioned>>> {
    if let Some(kind) = kind {
        kind.check_protocol(x)?;
    }
    let Some(capsule) = capsule_of(x, entry)? else {
        return Ok(None);
    };
    let managed = if let Some(managed) = capsule::take(&capsule) {
        match checked::of_managed(&managed)? {
            (_, true) => managed,
            (_, false) => checked::rewritten(managed)?,
        }
    } else if let Some(managed) = capsule::take::<DLManagedTensor>(&capsule) {
        checked::rewritten(managed)?
    } else {
        return Err(capsule::refuse(&capsule));
    };
    let here = managed.read()?.0.device;
    Ok(entry.is_confirmed(here).then_some(managed))
}
