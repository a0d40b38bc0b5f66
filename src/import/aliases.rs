//! Device aliases: memory that several devices can address, declared by `__dlpack_device_aliases__`, which is dlx's
//! own proposal (`docs/devices.md`).

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::abi::{DLDevice, DLPACK_FLAG_BITMASK_IS_COPIED};
use crate::adapters::{oneapi, torch};
use crate::copy::request::{self, Request};
use crate::cpython::call::attribute;
use crate::cpython::interpreter::PythonOwner;
use crate::cpython::once::intern;
use crate::exchange::slot::names_devices;
use crate::import::hint::no_protocol;
use crate::import::protocol::{self, Whose, device_of, from_protocol};
use crate::stream;
use crate::stream::usage::Ready;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::{Aliases, Snapshot};
use crate::types::device;
use crate::types::error::type_name;

/// The most devices that a producer may name; guards against an endless iterable.
const MAX_ALIASES: usize = 64;

/// The devices of `snapshot` besides its own.
pub(crate) fn of_snapshot(snapshot: &Snapshot) -> &[DLDevice] {
    snapshot
        .aliases()
        .map_or(&[][..], |aliases| &aliases.devices)
}

/// Whether the requested device is one of the aliases of `snapshot`.
pub(crate) fn is_asked(snapshot: &Snapshot, there: Option<DLDevice>) -> bool {
    there.is_some_and(|there| of_snapshot(snapshot).contains(&there))
}

/// The device aliases that `x` declares; `None` if it declares none. What is on a device that is known to have streams is
/// asked for oneAPI's only if it declares some.
pub(crate) fn of(x: &Bound<'_, PyAny>, has_streams: bool) -> PyResult<Option<Vec<DLDevice>>> {
    let method = attribute(x, intern!(x.py(), "__dlpack_device_aliases__"))?;
    let declared = method.map(|method| answer_of(x, &method)).transpose()?;
    if has_streams && declared.is_none() || oneapi::host_queue(x)?.is_none() {
        return Ok(declared);
    }
    let mut devices = declared.unwrap_or_default();
    devices.push(device::CPU);
    Ok(Some(devices))
}

/// Calls `__dlpack_device_aliases__` and checks its result.
fn answer_of(x: &Bound<'_, PyAny>, method: &Bound<'_, PyAny>) -> PyResult<Vec<DLDevice>> {
    let answer = method.call0()?;
    let Ok(pairs) = answer.try_iter() else {
        return Err(PyTypeError::new_err(format!(
            "__dlpack_device_aliases__ of {} returned {}, not an iterable of pairs (type, id)",
            type_name(&x.get_type()),
            type_name(&answer.get_type())
        )));
    };
    let mut devices = Vec::new();
    for pair in pairs {
        if devices.len() == MAX_ALIASES {
            return Err(PyBufferError::new_err(format!(
                "__dlpack_device_aliases__ of {} names more than {MAX_ALIASES} devices",
                type_name(&x.get_type())
            )));
        }
        devices.push(device_of(x, "__dlpack_device_aliases__", &pair?)?);
    }
    Ok(devices)
}

/// `devices` without `here` and without duplicates.
fn others(devices: &[DLDevice], here: DLDevice) -> Box<[DLDevice]> {
    let mut others = Vec::new();
    for &device in devices {
        if device != here && !others.contains(&device) {
            others.push(device);
        }
    }
    others.into()
}

/// `snapshot`, with its producer's device aliases. `stand_in` is the mixin instance that the caller passed in place of
/// `exporter`; its class may declare the aliases instead.
///
/// Skips CPU memory unless a device is requested, so that plain CPU imports pay nothing.
#[inline(always)]
pub(crate) fn named(
    stand_in: Option<&Bound<'_, PyAny>>,
    exporter: &Bound<'_, PyAny>,
    snapshot: Snapshot,
    request: &Request<'_, '_>,
) -> PyResult<Snapshot> {
    if snapshot.meta().device == device::CPU && request.device.is_none() {
        Ok(snapshot)
    } else {
        looked_at(stand_in, exporter, snapshot, request)
    }
}

/// As [`named`], for a torch tensor on the CPU, with a device requested. What oneAPI says cannot matter for it.
///
/// The thread need not be attached through PyO3.
pub(crate) fn of_torch(
    x: &Bound<'_, PyAny>,
    snapshot: Snapshot,
    request: &Request<'_, '_>,
) -> PyResult<Snapshot> {
    match attribute(x, intern!(x.py(), "__dlpack_device_aliases__")) {
        Ok(None) => Ok(snapshot),
        found => Python::attach(|_| {
            drop(found);
            looked_at(None, x, snapshot, request)
        }),
    }
}

#[inline(never)]
fn looked_at(
    stand_in: Option<&Bound<'_, PyAny>>,
    exporter: &Bound<'_, PyAny>,
    snapshot: Snapshot,
    request: &Request<'_, '_>,
) -> PyResult<Snapshot> {
    let here = snapshot.meta().device;
    // The request has not been applied yet to a tensor that dlx already holds.
    let own = Tensor::of(exporter).is_some();
    let copied = request.copy == Some(true) || snapshot.has(DLPACK_FLAG_BITMASK_IS_COPIED);
    // A fresh copy has no aliases.
    if copied && !own {
        return Ok(snapshot);
    }
    let speaker = match stand_in {
        Some(stand_in) if names_devices(&stand_in.get_type())? => stand_in,
        _ if own => return Ok(snapshot),
        _ => exporter,
    };
    let Some(declared) = of(speaker, stream::has_streams(here))? else {
        return Ok(snapshot);
    };
    let names = protocol::device(exporter)?.into_iter().chain(declared);
    let names: Vec<DLDevice> = names.collect();
    let devices = others(&names, here);
    // On a device that is not among the names, the producer has made other memory.
    if !names.contains(&here) || *devices == *of_snapshot(&snapshot) {
        return Ok(snapshot);
    }
    let exporter = if own {
        // The object it was imported from, if known.
        exporter_of(exporter.py(), &snapshot)
    } else {
        Some(exporter)
    };
    let exporter = exporter.map(|exporter| PythonOwner::new(exporter.clone().unbind()));
    Ok(snapshot.aliased(Aliases { devices, exporter })?)
}

/// The producer to ask for `snapshot` on one of its aliases.
fn exporter_of<'a, 'py>(py: Python<'py>, snapshot: &'a Snapshot) -> Option<&'a Bound<'py, PyAny>> {
    Some(snapshot.aliases()?.exporter.as_ref()?.bind(py))
}

/// `snapshot` on an alias, if `request` names one; what was copied for it has no aliases.
///
/// # Errors
///
/// `BufferError` if the exporter now returns another tensor; the exporter's own exceptions.
pub(crate) fn again(
    py: Python<'_>,
    snapshot: &Snapshot,
    request: &Request<'_, '_>,
) -> PyResult<Option<Snapshot>> {
    let (Some(aliases), Some(there)) = (snapshot.aliases(), request.device) else {
        return Ok(None);
    };
    if !aliases.devices.contains(&there) {
        return Ok(None);
    }
    let exporter = exporter_of(py, snapshot);
    let found = match exporter {
        Some(exporter) => asked(exporter, snapshot, request)?,
        None => readdressed(py, snapshot, there, request)?,
    };
    // Without an exporter it has the flag of `snapshot`, with which it shares memory unless a copy was asked for.
    let is_copied = exporter.is_some() && found.has(DLPACK_FLAG_BITMASK_IS_COPIED);
    if is_copied || request.copy == Some(true) {
        return Ok(Some(found));
    }
    let here = snapshot.meta().device;
    let devices = others(&[&[here], &*aliases.devices].concat(), there);
    let exporter = exporter.map(|exporter| PythonOwner::new(exporter.clone().unbind()));
    Ok(Some(found.aliased(Aliases { devices, exporter })?))
}

/// Asks `exporter`, which produced `snapshot`, for its tensor on the requested device.
fn asked(
    exporter: &Bound<'_, PyAny>,
    snapshot: &Snapshot,
    request: &Request<'_, '_>,
) -> PyResult<Snapshot> {
    let kind = torch::kind(&exporter.get_type())?;
    let whose = kind.map_or(Whose::Unknown, Whose::Torch);
    let found = from_protocol(exporter, &whose, request)?;
    let found = found.ok_or_else(|| no_protocol(exporter, "__dlpack__"))?;
    let (was, is) = (snapshot.meta(), found.meta());
    let copied = request.copy == Some(true) || found.has(DLPACK_FLAG_BITMASK_IS_COPIED);
    // Handles cannot be compared with addresses.
    let comparable = device::has_addresses(was.device) && device::has_addresses(is.device);
    let moved = (comparable && was.data != is.data) || snapshot.strides() != found.strides();
    if (moved && !copied) || was.dtype != is.dtype || snapshot.shape() != found.shape() {
        return Err(PyBufferError::new_err(format!(
            "{} exports a different tensor on {} than the one imported on {}",
            type_name(&exporter.get_type()),
            is.device,
            was.device
        )));
    }
    Ok(found)
}

/// `snapshot` at the same address on `there`: for mixin classes that declare aliases and export a `dlx.Tensor`.
fn readdressed(
    py: Python<'_>,
    snapshot: &Snapshot,
    there: DLDevice,
    request: &Request<'_, '_>,
) -> PyResult<Snapshot> {
    let here = snapshot.meta().device;
    if !(device::has_addresses(here) && device::has_addresses(there)) {
        return Err(PyBufferError::new_err(format!(
            "the tensor is on {here}, and its address means nothing on {there}: one of the two devices uses handles"
        )));
    }
    if snapshot
        .usage()
        .is_some_and(|usage| !matches!(usage.ready, Ready::Now))
    {
        return Err(PyBufferError::new_err(format!(
            "the tensor becomes ready on a stream of {here}, and dlx cannot make {there} wait for that; \
             import it with stream=-1 once it is ready"
        )));
    }
    request.wanted(there)?;
    request::again(py, snapshot.on(there)?, request)
}

/// The result of `__dlpack_device_aliases__`: pairs like that of `__dlpack_device__`.
pub(crate) fn to_tuple<'py>(
    py: Python<'py>,
    devices: &[DLDevice],
) -> PyResult<Bound<'py, PyTuple>> {
    let pairs = devices.iter().map(|&device| device::to_tuple(py, device));
    PyTuple::new(py, pairs.collect::<PyResult<Vec<_>>>()?)
}
