//! `from_dlpack`: the ladder from an object to a snapshot, each rung left only for the failure named.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyAttributeError, PyBufferError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyDict, PyTuple, PyType};

use crate::abi::*;
use crate::adapters::torch;
use crate::cache::{self, Entry, Way};
use crate::error::copy_refused;
use crate::exchange::Table;
use crate::snapshot::Snapshot;
use crate::{capsule, copy, device, stream};

/// What the caller of `from_dlpack` asked for.
pub(crate) struct Request<'a, 'py> {
    pub(crate) device: Option<DLDevice>,
    pub(crate) copy: Option<bool>,
    pub(crate) stream: Option<&'a Bound<'py, PyAny>>,
}

/// The tensor that `x` describes, as requested.
pub(crate) fn from_dlpack(x: &Bound<'_, PyAny>, request: &Request<'_, '_>) -> PyResult<Snapshot> {
    if let Ok(capsule) = x.cast::<PyCapsule>() {
        return from_capsule(capsule, request);
    }
    cache::with(&x.get_type(), |entry| match entry.way(x)? {
        Way::Table(table, kind) => from_table(x, table, kind, entry, request),
        Way::Protocol(kind) => from_protocol(x, kind, entry, request),
        Way::Undecided => match forwarded(x)? {
            Some(inner) => from_dlpack(&inner, request),
            None => from_protocol(x, None, entry, request),
        },
    })
}

/// Rung 2: the object that `x` names in place of a table, where that object's type has one.
fn forwarded<'py>(x: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(inner) = x.getattr_opt(intern!(x.py(), "__dlpack_c_exchange_api__"))? else {
        return Ok(None);
    };
    let way = cache::with(&inner.get_type(), |entry| entry.way(&inner))?;
    Ok(matches!(way, Way::Table(..)).then_some(inner))
}

/// Rung 1: the table, which moves and orders nothing; what needs more goes to `__dlpack__`.
fn from_table(
    x: &Bound<'_, PyAny>,
    table: Table,
    kind: Option<torch::Kind>,
    entry: &Entry,
    request: &Request<'_, '_>,
) -> PyResult<Snapshot> {
    let py = x.py();
    let managed = match table.export(x) {
        Ok(managed) => managed,
        Err(error) if error.is_instance_of::<PyBufferError>(py) => {
            // The table may describe less than the protocol does (R147).
            return match x.getattr_opt(intern!(py, "__dlpack__"))? {
                Some(_) => from_protocol(x, kind, entry, request),
                None => Err(error),
            };
        }
        Err(error) => return Err(error),
    };
    let snapshot = Snapshot::import(managed, None).map_err(|(error, _)| error)?;
    if let Some(kind) = kind {
        kind.check_table(x, snapshot.memo().dtype)?;
    }
    let here = snapshot.memo().device;
    if request.device.is_some_and(|there| there != here) {
        return from_protocol(x, kind, entry, request);
    }
    let stream = stream::for_import(request.stream, here)?;
    let unordered = stream.is_none_or(|stream| stream == stream::NO_SYNC);
    if !unordered || (request.copy == Some(true) && !copy::can(here)) {
        return from_protocol(x, kind, entry, request);
    }
    finish(py, snapshot, request)
}

/// Rung 4: `__dlpack__`, asked for DLPack 1.3, and for a device, a copy or a stream where that is needed.
fn from_protocol(
    x: &Bound<'_, PyAny>,
    kind: Option<torch::Kind>,
    entry: &Entry,
    request: &Request<'_, '_>,
) -> PyResult<Snapshot> {
    let py = x.py();
    if let Some(kind) = kind {
        kind.check_protocol(x)?;
    }
    let Some(method) = x.getattr_opt(intern!(py, "__dlpack__"))? else {
        return Err(no_protocol(x, "__dlpack__"));
    };
    let Some(here) = x.getattr_opt(intern!(py, "__dlpack_device__"))? else {
        return Err(no_protocol(x, "__dlpack_device__"));
    };
    let here = device_of(x, &here.call0()?)?;
    let there = request.device.unwrap_or(here);
    if request.stream.is_some()
        && here.device_type != there.device_type
        && stream::has_streams(here)
    {
        return Err(PyBufferError::new_err(format!(
            "stream= names a stream of {}, but the result is asked for on {}; pass stream=None",
            device::name(here),
            device::name(there)
        )));
    }
    let stream = stream::for_import(request.stream, there)?;
    let asked = Asked {
        stream,
        device: (here != there).then_some(there),
        // Where dlx can copy, the producer need not know how.
        copy: request
            .copy
            .filter(|&copy| !(copy && here == there && copy::can(there))),
    };
    let result = match asked.call(&method, entry) {
        Ok(result) => result,
        Err(error) => return Err(asked.explain(x, error, here, request)),
    };
    let Ok(capsule) = result.cast::<PyCapsule>() else {
        return Err(PyTypeError::new_err(format!(
            "__dlpack__ of {} returned {}, not a capsule",
            x.get_type().fully_qualified_name()?,
            result.get_type().fully_qualified_name()?
        )));
    };
    let snapshot = capsule::import(capsule, stream)?;
    let found = snapshot.memo().device;
    if asked.device.is_some_and(|there| there != found)
        || (found != there && stream::has_streams(found))
    {
        return Err(PyBufferError::new_err(format!(
            "{} was asked for a tensor on {} and gave one on {}",
            x.get_type().fully_qualified_name()?,
            device::name(there),
            device::name(found)
        )));
    }
    match asked.copy {
        Some(true) => Ok(snapshot.copied()?),
        _ => finish(py, snapshot, request),
    }
}

/// Rung 6: a capsule that the user made.
fn from_capsule(capsule: &Bound<'_, PyCapsule>, request: &Request<'_, '_>) -> PyResult<Snapshot> {
    if request.stream.is_some() {
        return Err(PyValueError::new_err(
            "a capsule was ordered when it was made; pass stream= to the __dlpack__ that makes it",
        ));
    }
    again(capsule.py(), capsule::import(capsule, None)?, request)
}

/// A tensor that dlx holds already, as requested; its stream has been looked at.
pub(crate) fn again(
    py: Python<'_>,
    snapshot: Snapshot,
    request: &Request<'_, '_>,
) -> PyResult<Snapshot> {
    let here = snapshot.memo().device;
    if let Some(there) = request.device.filter(|&there| there != here) {
        let message = format!(
            "the tensor is on {}, and dlx does not move it to {}",
            device::name(here),
            device::name(there)
        );
        return Err(match request.copy {
            Some(false) => copy_refused(py, message),
            _ => PyBufferError::new_err(message),
        });
    }
    match request.copy {
        Some(true) => copy::compact(py, &snapshot),
        _ => Ok(snapshot),
    }
}

/// The copy that was asked for, or the refusal of one that nobody asked for (R58, R59).
fn finish(py: Python<'_>, snapshot: Snapshot, request: &Request<'_, '_>) -> PyResult<Snapshot> {
    let copied = snapshot.has(DLPACK_FLAG_BITMASK_IS_COPIED);
    match request.copy {
        None => Ok(snapshot),
        Some(true) => copy::compact(py, &snapshot),
        Some(false) if copied => Err(copy_refused(
            py,
            "copy=False, but the producer made a copy".to_owned(),
        )),
        Some(false) => Ok(snapshot),
    }
}

/// What goes to `__dlpack__` beside `max_version`.
struct Asked {
    stream: Option<i64>,
    device: Option<DLDevice>,
    copy: Option<bool>,
}

impl Asked {
    /// Calls `__dlpack__`, and once more without the new keywords if it does not know them (R32).
    fn call<'py>(&self, method: &Bound<'py, PyAny>, entry: &Entry) -> PyResult<Bound<'py, PyAny>> {
        let py = method.py();
        let needs_new = self.device.is_some() || self.copy == Some(true);
        if needs_new || !entry.is_old() {
            match method.call((), Some(&self.keywords(py)?)) {
                Err(error) if !needs_new && is_signature_error(py, &error) => {}
                other => return other,
            }
        }
        let result = match self.stream {
            None => method.call0(),
            Some(stream) => {
                let keywords = PyDict::new(py);
                keywords.set_item(intern!(py, "stream"), stream)?;
                method.call((), Some(&keywords))
            }
        };
        if result.is_ok() {
            entry.set_old();
        }
        result
    }

    /// The keywords of a call; the usual ones are made once.
    fn keywords<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        static USUAL: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
        let usual = USUAL.get_or_try_init(py, || {
            let keywords = PyDict::new(py);
            let version = (DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION);
            keywords.set_item(intern!(py, "max_version"), version)?;
            Ok::<_, PyErr>(keywords.unbind())
        })?;
        let usual = usual.bind(py);
        if self.stream.is_none() && self.device.is_none() && self.copy.is_none() {
            return Ok(usual.clone());
        }
        let keywords = usual.copy()?;
        if let Some(stream) = self.stream {
            keywords.set_item(intern!(py, "stream"), stream)?;
        }
        if let Some(device) = self.device {
            // A plain pair of ints, which any producer can compare (R68).
            let device = (device.device_type.0, device.device_id);
            keywords.set_item(intern!(py, "dl_device"), device)?;
        }
        if let Some(copy) = self.copy {
            keywords.set_item(intern!(py, "copy"), copy)?;
        }
        Ok(keywords)
    }

    /// The error of a call that failed: the producer's own (R60), unless it says what only dlx knows.
    fn explain(
        &self,
        x: &Bound<'_, PyAny>,
        error: PyErr,
        here: DLDevice,
        request: &Request<'_, '_>,
    ) -> PyErr {
        let py = x.py();
        let refused =
            |class: &Bound<'_, PyType>| error.get_type(py).is_subclass(class).unwrap_or(false);
        let explained = if is_signature_error(py, &error) {
            PyBufferError::new_err(format!(
                "__dlpack__ takes no {}, so the tensor cannot be had on another device or as a copy",
                if self.device.is_some() {
                    "dl_device"
                } else {
                    "copy"
                }
            ))
        } else if request.copy == Some(false)
            && self.device.is_some()
            && (refused(&py.get_type::<PyBufferError>()) || refused(&py.get_type::<PyValueError>()))
        {
            let there = request.device.unwrap_or(here);
            copy_refused(
                py,
                format!(
                    "copy=False, but {} is not {}",
                    device::name(here),
                    device::name(there)
                ),
            )
        } else {
            return error;
        };
        explained.set_cause(py, Some(error));
        explained
    }
}

/// Whether a `TypeError` says that a keyword is unknown, not that something failed inside (R32).
fn is_signature_error(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyTypeError>(py)
        && (error.traceback(py).is_none()
            || error.value(py).str().is_ok_and(|message| {
                message.to_cow().is_ok_and(|message| {
                    message.contains("keyword argument") || message.contains("no keyword")
                })
            }))
}

/// The device that `__dlpack_device__` answered.
fn device_of(x: &Bound<'_, PyAny>, answer: &Bound<'_, PyAny>) -> PyResult<DLDevice> {
    let pair: PyResult<(i32, i32)> = answer
        .cast::<PyTuple>()
        .map_err(PyErr::from)
        .and_then(|pair| pair.extract());
    let (device_type, device_id) = pair.map_err(|_| {
        PyTypeError::new_err(format!(
            "__dlpack_device__ of {} returned {answer}, not a pair of ints",
            x.get_type()
        ))
    })?;
    let device = DLDevice {
        device_type: DLDeviceType(device_type),
        device_id,
    };
    device::check(device)?;
    Ok(device)
}

/// The error for an object without the protocol (R61).
#[cold]
fn no_protocol(x: &Bound<'_, PyAny>, missing: &str) -> PyErr {
    match x.get_type().fully_qualified_name() {
        Ok(name) => PyAttributeError::new_err(format!(
            "{name} has no {missing}; from_dlpack takes objects with an exchange table, objects with \
             __dlpack__ and __dlpack_device__, and DLPack capsules"
        )),
        Err(error) => error,
    }
}
