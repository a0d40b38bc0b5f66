//! `from_dlpack`: the ladder from an object to a snapshot, each rung left only for the failure named.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::adapters::{numpy, torch};
use crate::cache::{self, Entry, Way};
use crate::exchange::Table;
use crate::protocol::from_protocol;
use crate::request::{Request, again, finish};
use crate::snapshot::Snapshot;
use crate::{capsule, copy, device, stream};

/// The tensor that `x` describes, as requested.
pub(crate) fn from_dlpack(x: &Bound<'_, PyAny>, request: &Request<'_, '_>) -> PyResult<Snapshot> {
    if let Ok(capsule) = x.cast::<PyCapsule>() {
        return from_capsule(capsule, request);
    }
    if numpy::is_ndarray(x) {
        // The usual array, without a look into the cache.
        return from_numpy(x, request);
    }
    cache::with(&x.get_type(), |entry| match entry.way(x)? {
        Way::Table(table, kind) => from_table(x, table, kind, entry, request),
        Way::Numpy => from_numpy(x, request),
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
        // The table may describe less than the protocol does (R147).
        Err(error) if error.is_instance_of::<PyBufferError>(py) => {
            return instead_of_table(x, kind, entry, request, || error);
        }
        Err(error) => return Err(error),
    };
    let snapshot = Snapshot::import(managed, None).map_err(|(error, _)| error)?;
    if let Some(kind) = kind {
        kind.check_table(x, snapshot.memo().dtype)?;
    }
    let here = snapshot.memo().device;
    let cannot = |what: &str| {
        PyBufferError::new_err(format!(
            "the tensor is on {}; its exchange table cannot {what}, and it has no __dlpack__ that could",
            device::name(here)
        ))
    };
    if let Some(there) = request.device.filter(|&there| there != here) {
        let cannot = || cannot(&format!("move it to {}", device::name(there)));
        return instead_of_table(x, kind, entry, request, cannot);
    }
    if stream::for_import(request.stream, here)?.is_some_and(|stream| stream != stream::NO_SYNC) {
        let cannot = || cannot("order streams (stream=-1 asks for no order)");
        return instead_of_table(x, kind, entry, request, cannot);
    }
    if request.copy == Some(true) && !copy::can(here) {
        return instead_of_table(x, kind, entry, request, || cannot("copy it"));
    }
    finish(py, snapshot, request)
}

/// Rung 4 for an object that has a table; `error` says why the table will not do, if it has nothing else.
fn instead_of_table(
    x: &Bound<'_, PyAny>,
    kind: Option<torch::Kind>,
    entry: &Entry,
    request: &Request<'_, '_>,
    error: impl FnOnce() -> PyErr,
) -> PyResult<Snapshot> {
    match x.getattr_opt(intern!(x.py(), "__dlpack__"))? {
        Some(_) => from_protocol(x, kind, entry, request),
        None => Err(error()),
    }
}

/// Rung 3: a NumPy array from its struct; whether it can be had on another device, its `__dlpack__` says.
fn from_numpy(x: &Bound<'_, PyAny>, request: &Request<'_, '_>) -> PyResult<Snapshot> {
    if request.device.is_some_and(|there| there != device::CPU) {
        return cache::with(&x.get_type(), |entry| {
            from_protocol(x, None, entry, request)
        });
    }
    stream::for_import(request.stream, device::CPU)?;
    finish(x.py(), numpy::snapshot(x)?, request)
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
