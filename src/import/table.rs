//! Rung 1: the exchange table of a type.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyAttributeError, PyBufferError};
use pyo3::prelude::*;

use crate::abi::DLDevice;
use crate::adapters::{oneapi, torch};
use crate::copy::by_driver;
use crate::copy::request::{Request, again, finish, is_refusal, refused_by_both};
use crate::exchange::Table;
use crate::import::aliases;
use crate::import::protocol::{Whose, ask, from_protocol};
use crate::stream::namer::TENSORS;
use crate::stream::streams::Streams;
use crate::stream::usage::{Library, Producer, Release};
use crate::stream::{self, Namer, Stream, Wanted};
use crate::tensor::managed::ManagedVersioned;
use crate::tensor::snapshot::Snapshot;
use crate::types::device;
use crate::types::error::{caused, is_urgent};

/// `from_dlpack(x)` for a type that is known to have a table; all that a plain tensor needs. `request` asks neither for a
/// copy nor for a device other than the CPU, and for nothing unless `ASKED`.
///
/// The thread need not be attached through PyO3.
#[inline(always)]
pub(crate) fn fast<const ASKED: bool>(
    x: &Bound<'_, PyAny>,
    table: &Table,
    guards: Option<&torch::Guards>,
    request: &Request<'_, '_>,
) -> PyResult<Snapshot> {
    match guards {
        Some(guards) => fast_torch::<ASKED>(x, table, guards, request),
        None => match table.export(x, true) {
            Ok(managed)
                if !ASKED
                    && (managed.read()).is_ok_and(|(tensor, _)| tensor.device == device::CPU) =>
            {
                by_rules(x, managed)
            }
            export => slow(x, export, table, guards, request),
        },
    }
}

/// As [`fast`], for a torch tensor.
///
/// Not inlined: it needs few registers, its callers need many.
#[inline(never)]
fn fast_torch<const ASKED: bool>(
    x: &Bound<'_, PyAny>,
    table: &Table,
    guards: &torch::Guards,
    request: &Request<'_, '_>,
) -> PyResult<Snapshot> {
    match (table.export(x, true)).map(|made| Snapshot::import_fast(made, device::CPU)) {
        Ok(Ok((snapshot, last))) => {
            let snapshot = checked(x, snapshot, last, table, guards)?;
            if ASKED && request.device.is_some() {
                aliases::of_torch(x, snapshot, request)
            } else {
                Ok(snapshot)
            }
        }
        Ok(Err(managed)) => slow(x, Ok(managed), table, Some(guards), request),
        Err(error) => slow(x, Err(error), table, Some(guards), request),
    }
}

/// As [`fast`], for a torch tensor on the CPU; `None` if it is elsewhere or has to take the slow path.
#[inline(never)]
pub(crate) fn fast_on_cpu(
    x: &Bound<'_, PyAny>,
    table: &Table,
    guards: &torch::Guards,
) -> PyResult<Option<Snapshot>> {
    let made = match table.export(x, true) {
        Ok(made) => made,
        Err(error) if is_urgent(x.py(), &error) => return Err(error),
        // The slow path is taken.
        Err(_) => return Ok(None),
    };
    let imported = Snapshot::import_fast(made, device::CPU).ok();
    let checked = imported.map(|(snapshot, last)| checked(x, snapshot, last, table, guards));
    checked.transpose()
}

/// As [`fast`], for cases that may run Python code.
#[inline(never)]
fn slow(
    x: &Bound<'_, PyAny>,
    export: PyResult<ManagedVersioned>,
    table: &Table,
    guards: Option<&torch::Guards>,
    request: &Request<'_, '_>,
) -> PyResult<Snapshot> {
    Python::attach(|_| {
        let snapshot = import(x, export, *table, guards.copied(), request)?;
        aliases::named(None, x, snapshot, request)
    })
}

/// Rung 1: the table, which neither moves nor orders. dlx orders by the driver, or asks `__dlpack__` without one; moves
/// are asked of `__dlpack__` first, except for a compact copy to the host.
pub(super) fn import(
    x: &Bound<'_, PyAny>,
    export: PyResult<ManagedVersioned>,
    table: Table,
    guards: Option<torch::Guards>,
    request: &Request<'_, '_>,
) -> PyResult<Snapshot> {
    let managed = match export {
        Ok(managed) => managed,
        Err(error) => return refused(x, guards, request, error),
    };
    let here = managed.read()?.0.device;
    let streams = match stream::has_streams(here) {
        true => order(table, here, request, x.py())?,
        false => Streams::None,
    };
    let snapshot = match &guards {
        None => by_rules(x, managed)?.on_streams(streams),
        Some(guards) => {
            let snapshot = match Snapshot::import_fast(managed, here) {
                Ok((snapshot, _)) => snapshot,
                Err(managed) => by_rules(x, managed)?,
            };
            checked(x, snapshot.on_streams(streams), None, &table, guards)?
        }
    };
    if request.moves(here) {
        moved(x, snapshot, table, guards, request)
    } else {
        stays(x, snapshot, guards, request)
    }
}

/// Rung 4 in place of a table that refused: it may describe less than the protocol does (R147).
fn refused(
    x: &Bound<'_, PyAny>,
    guards: Option<torch::Guards>,
    request: &Request<'_, '_>,
    error: PyErr,
) -> PyResult<Snapshot> {
    let py = x.py();
    if !error.is_instance_of::<PyBufferError>(py) {
        return Err(torch::explain(x, error));
    }
    let by_protocol = from_protocol(x, &Whose::of_table(guards), request);
    let found = by_protocol.and_then(|found| found.ok_or_else(|| error.clone_ref(py)));
    found.map_err(|other| {
        // Of Paddle's distributed tensors `__dlpack__` asks what they lack.
        match other.is_instance_of::<PyAttributeError>(py) {
            true => caused(py, error, other),
            false => other,
        }
    })
}

/// A tensor that goes to another device or is copied, which its library is asked for before dlx does it.
fn moved(
    x: &Bound<'_, PyAny>,
    snapshot: Snapshot,
    table: Table,
    guards: Option<torch::Guards>,
    request: &Request<'_, '_>,
) -> PyResult<Snapshot> {
    let (py, here) = (x.py(), snapshot.meta().device);
    if snapshot.has_streams()
        && request.copy != Some(false)
        && by_driver::goes_down_in_one_run(&snapshot, request.device)
    {
        // torch 2.11 waits for the device with the GIL held. Other layouts are its own: it has kernels for them.
        return again(py, snapshot, request);
    }
    let there = request.device.unwrap_or(here);
    let can = table.work_stream.is_some() || !stream::needs_order(here);
    match ask(x, &Whose::of_table(guards), request) {
        Err(error) if request.copy == Some(false) || !is_refusal(py, &error, there) || !can => {
            return Err(error);
        }
        Ok(Some(moved)) => return Ok(moved),
        Ok(None) if !can => return Err(cannot(here, "move or copy it in stream order")),
        Ok(None) => {}
        Err(error) => refused_by_both(py, error, here, there)?,
    }
    again(py, snapshot, request)
}

/// A tensor that stays where it is; its library orders it where dlx has not.
fn stays(
    x: &Bound<'_, PyAny>,
    snapshot: Snapshot,
    guards: Option<torch::Guards>,
    request: &Request<'_, '_>,
) -> PyResult<Snapshot> {
    let here = snapshot.meta().device;
    let is_ordered = snapshot.has_streams()
        || oneapi::queue(x, request.argument(), here)?.is_none()
            && match request.wanted(here)? {
                Wanted::NoOrder => !stream::has_streams(here),
                Wanted::Unset | Wanted::Stream(_) => !stream::needs_order(here),
            };
    if is_ordered {
        return finish(x.py(), snapshot, request);
    }
    let what = "order streams without a driver (stream=-1 skips this)";
    let by_protocol = from_protocol(x, &Whose::of_table(guards), request)?;
    by_protocol.ok_or_else(|| cannot(here, what))
}

#[cold]
fn cannot(here: DLDevice, what: &str) -> PyErr {
    PyBufferError::new_err(format!(
        "the tensor is on {here}; its exchange table cannot {what}, and it has no __dlpack__ that could"
    ))
}

/// Imports a table's export, checked by the rules of DLPack; deletes one that these refuse.
fn by_rules(x: &Bound<'_, PyAny>, managed: ManagedVersioned) -> PyResult<Snapshot> {
    Snapshot::of(managed).map_err(|error| torch::explain(x, error.into()))
}

/// Checks a snapshot of a torch tensor on the CPU; reads it again if another thread was changing it.
#[inline(always)]
fn checked(
    x: &Bound<'_, PyAny>,
    snapshot: Snapshot,
    last: Option<u32>,
    table: &Table,
    guards: &torch::Guards,
) -> PyResult<Snapshot> {
    let meta = snapshot.meta();
    guards.check(x, meta.dtype, meta.data)?;
    if guards.holds(x, &snapshot, last) {
        Ok(snapshot)
    } else {
        torch::settled(guards, x, || by_rules(x, table.export(x, true)?))
    }
}

/// Orders a tensor from a table, by one event from its library's stream to the requested one. No streams if there is no
/// driver to do so; the producer's `__dlpack__` may still order.
fn order(
    table: Table,
    here: DLDevice,
    request: &Request<'_, '_>,
    py: Python<'_>,
) -> PyResult<Streams> {
    let wanted = if request.moves(here) {
        // The copy waits for the producer, on whatever stream it runs.
        Wanted::NoOrder
    } else {
        request.wanted(here)?
    };
    let Some(work_stream) = table.work_stream else {
        return Ok(Streams::None);
    };
    stream::warn_if_experimental(py, here)?;
    stream::note(TENSORS, here, Namer::Library(work_stream));
    let producer = Producer {
        library: Library::Table(work_stream),
        then: Stream::of_table(work_stream.get(py, here)?, here),
    };
    let ordered = match wanted {
        // The library vouches for its own.
        Wanted::Stream(stream) if stream.is(&producer.then) && request.release == Release::Auto => {
            return Ok(Streams::ready_after(
                &stream.verified(),
                here,
                Some(work_stream),
            ));
        }
        wanted => request.order(wanted, producer),
    };
    match ordered {
        Ok(usage) => Ok(Streams::Shared(usage)),
        Err(error) if error.is_absent() => Ok(Streams::None),
        Err(error) => Err(error.into()),
    }
}
