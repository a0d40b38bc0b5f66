//! `from_dlpack`: the ladder from an object to a snapshot. Each rung falls through only for the failure it names.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyAttributeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyCapsule, PyComplex, PyFloat, PyInt, PyString};

use crate::abi::DLPACK_FLAG_BITMASK_IS_COPIED;
use crate::adapters::{self, array_method, jax, numpy};
use crate::copy::request::{Request, again, finish};
use crate::cpython::call::attribute;
use crate::cpython::once::intern;
use crate::exchange::slot::{MAX_HOPS, Origin, Slot, endless, innermost, is_mixin};
use crate::import::cache::{self, Way};
use crate::import::hint::{no_protocol, not_a_class};
use crate::import::protocol::{Whose, at_once, from_protocol};
use crate::import::{aliases, hint, table};
use crate::stream::Wanted;
use crate::stream::usage::{Ready, StreamUsage};
use crate::tensor::capsule;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;
use crate::types::device;
use crate::types::error::{caused, type_name, unless_urgent};

/// Imports the tensor that `x` describes, as requested.
#[inline(always)]
pub(crate) fn from_dlpack(x: &Bound<'_, PyAny>, request: &Request<'_, '_>) -> PyResult<Snapshot> {
    match x.cast::<PyCapsule>() {
        Ok(capsule) => from_capsule(capsule, request),
        Err(_) => climb(x, (x, None), 1, request),
    }
}

/// Imports `x`, one of the objects that `given` led to, and that the mixin instance `outer` named, if one did.
fn climb(
    given: &Bound<'_, PyAny>,
    (x, outer): (&Bound<'_, PyAny>, Option<&Bound<'_, PyAny>>),
    objects: usize,
    request: &Request<'_, '_>,
) -> PyResult<Snapshot> {
    match (step(x, outer.map(|_| given), request), outer) {
        (Ok(Rung::There(snapshot)), _) => Ok(snapshot),
        (Ok(Rung::Next(..)), _) if objects == MAX_HOPS => Err(endless(&x.get_type())),
        (Ok(Rung::Next(x, outer)), _) => climb(given, (&x, outer.as_ref()), objects + 1, request),
        (Err(error), Some(outer)) => Err(explain(outer, x, error)),
        (Err(error), None) => Err(not_a_class(x, error)),
    }
}

/// The outcome of one step.
enum Rung<'py> {
    There(Snapshot),
    /// Another object to import instead, and the mixin instance that named it, if one did.
    Next(Bound<'py, PyAny>, Option<Bound<'py, PyAny>>),
}

#[inline(always)]
fn step<'py>(
    x: &Bound<'py, PyAny>,
    stand_in: Option<&Bound<'py, PyAny>>,
    request: &Request<'_, '_>,
) -> PyResult<Rung<'py>> {
    let mut room = None;
    let snapshot = match cache::way_in(&mut room, x)? {
        Way::Tensor => return from_tensor(x.cast()?, stand_in, request).map(Rung::There),
        Way::Numpy => from_numpy(x, request),
        Way::Table(table, kind) => table::import(x, table.export(x, true), *table, *kind, request),
        Way::Protocol(whose) => without_table(x, whose, stand_in, request),
        Way::Mixin => {
            let (inner, last) = innermost(x)?;
            return Ok(Rung::Next(inner, Some(last)));
        }
        Way::Column => by_another(x, request, adapters::of_column(x, request)),
        Way::Undecided => match forwarded(x)? {
            Some(inner) => return Ok(Rung::Next(inner, None)),
            None => without_table(x, &Whose::Unknown, stand_in, request),
        },
        // What the buffer of a JAX array does not say, `__dlpack__` knows.
        Way::Jax if request.at_once || request.is_nothing() => match jax::snapshot(x)? {
            Some(snapshot) => return Ok(Rung::There(snapshot)),
            None => without_table(x, &Whose::Unknown, stand_in, request),
        },
        Way::Jax => without_table(x, &Whose::Unknown, stand_in, request),
    };
    aliases::named(stand_in, x, snapshot?, request).map(Rung::There)
}

/// Imports a `dlx.Tensor`; `stand_in` is the mixin instance that the caller passed in its place, if any.
pub(crate) fn from_tensor(
    x: &Bound<'_, Tensor>,
    stand_in: Option<&Bound<'_, PyAny>>,
    request: &Request<'_, '_>,
) -> PyResult<Snapshot> {
    let snapshot = x.get().snapshot()?.shared()?;
    let snapshot = aliases::named(stand_in, x, snapshot, request)?;
    if let Some(snapshot) = aliases::again(x.py(), &snapshot, request)? {
        return Ok(snapshot);
    }
    if request.moves(snapshot.meta().device) {
        again(x.py(), snapshot, request)
    } else {
        again(x.py(), used(&snapshot, request)?, request)
    }
}

/// Orders a snapshot that dlx already holds for use on the requested stream.
pub(crate) fn used(snapshot: &Snapshot, request: &Request<'_, '_>) -> PyResult<Snapshot> {
    let here = snapshot.meta().device;
    let Wanted::Stream(stream) = request.wanted(here)? else {
        return Ok(snapshot.clone());
    };
    snapshot.order(&stream)?;
    let usage = snapshot.usage();
    if usage
        .and_then(StreamUsage::stream)
        .is_some_and(|known| known.is(&stream))
    {
        return Ok(snapshot.clone());
    }
    let producer = usage.and_then(|usage| usage.producer.clone());
    Ok(snapshot.used(request.usage(Ready::After(stream), producer))?)
}

/// Rungs 4 and 5: `__dlpack__`, else a protocol other than DLPack.
fn without_table(
    x: &Bound<'_, PyAny>,
    whose: &Whose,
    stand_in: Option<&Bound<'_, PyAny>>,
    request: &Request<'_, '_>,
) -> PyResult<Snapshot> {
    if request.at_once
        && stand_in.is_none()
        && let Some(snapshot) = at_once(x, whose)?
        && (request.copy.is_none() || !snapshot.has(DLPACK_FLAG_BITMASK_IS_COPIED))
    {
        return Ok(snapshot);
    }
    if let Some(snapshot) = from_protocol(x, whose, request)? {
        return Ok(snapshot);
    }
    by_another(x, request, adapters::snapshot(x, request))
}

/// Rung 5: what a protocol other than DLPack has `found`.
fn by_another(
    x: &Bound<'_, PyAny>,
    request: &Request<'_, '_>,
    found: PyResult<Option<Snapshot>>,
) -> PyResult<Snapshot> {
    let found = match found {
        Err(error) if adapters::is_whole(x, &error)? => array_method::snapshot(x),
        found => found,
    };
    let Some(snapshot) = found.map_err(|error| hint::noted(x, error))? else {
        return Err(no_protocol(x, "__dlpack__"));
    };
    request.wanted(request.device.unwrap_or(snapshot.meta().device))?;
    finish(x.py(), snapshot, request)
}

/// Rung 2: the object that `x` names in place of a table, if the type of that object has a table.
#[inline(always)]
pub(crate) fn forwarded<'py>(x: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(inner) = attribute(x, intern!(x.py(), "__dlpack_c_exchange_api__"))? else {
        return Ok(None);
    };
    Ok(cache::way_in(&mut None, &inner)?.leads().then_some(inner))
}

/// Rung 3: reads a NumPy array from its struct, and moves it if another device is requested.
#[inline(never)]
fn from_numpy(x: &Bound<'_, PyAny>, request: &Request<'_, '_>) -> PyResult<Snapshot> {
    request.wanted(request.device.unwrap_or(device::CPU))?;
    let snapshot = match numpy::snapshot(x) {
        Err(error) if request.copy == Some(true) => adapters::unpacked(x, error)?,
        found => found?,
    };
    finish(x.py(), snapshot, request)
}

/// Rung 6: consumes a capsule that the caller passed.
fn from_capsule(capsule: &Bound<'_, PyCapsule>, request: &Request<'_, '_>) -> PyResult<Snapshot> {
    if request.argument().is_some() {
        return Err(PyValueError::new_err(
            "stream= does not apply to a capsule, which was ordered when it was made; pass it to __dlpack__",
        ));
    }
    again(capsule.py(), capsule::import(capsule, None)?, request)
}

/// Whether `from_dlpack` accepts objects like `x`; the import itself may still fail.
pub(crate) fn is_accepted(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(cache::way_in(&mut None, x)?.leads()
        || x.is_instance_of::<PyCapsule>()
        || x.hasattr(intern!(x.py(), "__dlpack__"))?
        // Even of a protocol that fails.
        || adapters::unordered(x, None).map_or(true, |snapshot| snapshot.is_some()))
}

/// Whether `x` is of a common non-tensor argument type.
pub(crate) fn is_plain(x: &Bound<'_, PyAny>) -> bool {
    x.is_none()
        || x.is_exact_instance_of::<PyInt>()
        || x.is_exact_instance_of::<PyFloat>()
        || x.is_exact_instance_of::<PyBool>()
        || x.is_exact_instance_of::<PyString>()
        || x.is_exact_instance_of::<PyBytes>()
        || x.is_exact_instance_of::<PyComplex>()
}

/// Rewrites an `AttributeError` to name the class and hook whose result `from_dlpack` does not take.
pub(crate) fn explain(object: &Bound<'_, PyAny>, inner: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = object.py();
    if !error.is_instance_of::<PyAttributeError>(py) {
        return error;
    }
    let found = || {
        let (inner, last) = match is_mixin(&inner.get_type()) {
            true => innermost(inner)?,
            false => (inner.clone(), object.clone()),
        };
        if is_accepted(&inner)? {
            return Ok(None);
        }
        let class = last.get_type();
        let how = match Slot::of_class(&class)? {
            Some(slot) => slot.origin.describe(py),
            None => Origin::of(&class)?.describe(py),
        };
        let (class, kind) = (type_name(&class), type_name(&inner.get_type()));
        Ok::<_, PyErr>(Some(format!(
            "{class}{how} {kind}; expected an object that dlx.from_dlpack accepts"
        )))
    };
    match found() {
        Ok(Some(message)) => caused(py, PyTypeError::new_err(message), error),
        Ok(None) => error,
        Err(other) => unless_urgent(py, other, error),
    }
}
