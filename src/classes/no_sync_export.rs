//! Exports of any object for the functions of a table: without synchronization, and without a snapshot if the object's
//! own library can export directly.
//!
//! Table functions call this, so nothing here drops an owned `Py<T>` unless attached through PyO3 (S2, callers).

#![forbid(unsafe_code)]

use std::cell::Cell;

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use crate::abi::*;
use crate::adapters::{jax, numpy, torch};
use crate::copy::request::{Asked, Consumer, Request};
use crate::exchange::Table;
use crate::exchange::slot::{innermost, lends_nothing};
use crate::import::cache::{self, Way};
use crate::import::hint::no_protocol;
use crate::import::ladder::{forwarded, from_dlpack};
use crate::import::protocol::{self, FastExport, Whose};
use crate::import::table;
use crate::stream::namer::TENSORS;
use crate::stream::usage::Release;
use crate::stream::{self, Stream, WorkStream};
use crate::tensor::checked::{self, Meta};
use crate::tensor::managed::ManagedVersioned;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;

/// A managed tensor, and the work stream of its library: from its table, for devices with streams.
pub(crate) type TableExport = (ManagedVersioned, Option<WorkStream>);

/// A borrowed view, and the work stream of its library.
pub(crate) type TableBorrow = (DLTensor, Option<WorkStream>);

/// Exports `x` as a managed tensor.
///
/// A table exports without order, and its library's stream is returned too. A producer that has only `__dlpack__`
/// cannot name its stream, so it is asked to make that of the `consumer` wait.
///
/// # Errors
///
/// As for `from_dlpack`.
pub(crate) fn managed_tensor(
    x: &Bound<'_, PyAny>,
    consumer: &dyn Consumer,
) -> PyResult<TableExport> {
    by_way(x, way_in(&mut None, x)?, consumer)
}

/// As [`cache::way_in`], for a thread that PyO3 need not count as attached.
#[inline(always)]
fn way_in<'a>(room: &'a mut Option<Way>, x: &Bound<'_, PyAny>) -> PyResult<&'a Way> {
    match cache::remembered(x) {
        Some(way) => Ok(way),
        None => uncached(room, x),
    }
}

#[cold]
#[inline(never)]
fn uncached<'a>(room: &'a mut Option<Way>, x: &Bound<'_, PyAny>) -> PyResult<&'a Way> {
    // This runs Python code.
    Python::attach(|_| cache::way_in(room, x))
}

/// As [`managed_tensor`], if `x` has a table, a native reader or, where that may come `first`, a plain `__dlpack__`, of
/// which the caller may want a snapshot; else `None`. The caller is attached through PyO3.
#[inline(always)]
pub(crate) fn fast_export(
    x: &Bound<'_, PyAny>,
    consumer: &dyn Consumer,
    first: bool,
    as_snapshot: bool,
) -> PyResult<Option<FastExport>> {
    let mut room = None;
    match cache::way_in(&mut room, x)? {
        // Other threads may change it, so its dimensions are copied before they are checked.
        Way::Table(table, Some(kind)) if kind.is_plain() => {
            Ok(table::on_cpu(x, table, kind)?.map(FastExport::Snapshot))
        }
        way => fast_export_by_way(x, way, consumer, first, as_snapshot),
    }
}

/// As [`fast_export`], for all but plain torch tensors.
#[inline(never)]
fn fast_export_by_way(
    x: &Bound<'_, PyAny>,
    way: &Way,
    consumer: &dyn Consumer,
    first: bool,
    as_snapshot: bool,
) -> PyResult<Option<FastExport>> {
    let whose = match way {
        // Checked once, by the snapshot.
        Way::Table(table, None) if as_snapshot => {
            return Ok(match table.export(x) {
                Ok(managed) => Some(Snapshot::of(managed)?)
                    .filter(|snapshot| !stream::needs_order(snapshot.meta().device))
                    .map(FastExport::Snapshot),
                // The table may describe less than the protocol does (R147).
                Err(error) if error.is_instance_of::<PyBufferError>(x.py()) => None,
                Err(error) => return Err(error),
            });
        }
        Way::Table(..) | Way::Numpy => {
            let (managed, _) = by_way(x, way, consumer)?;
            return Ok(Some(FastExport::Managed(managed)));
        }
        Way::Protocol(whose) => whose,
        Way::Jax => match jax::snapshot(x)? {
            Some(snapshot) => return Ok(Some(FastExport::Snapshot(snapshot))),
            None => &Whose::Unknown,
        },
        Way::Undecided => &Whose::Unknown,
        Way::Tensor | Way::Mixin => return Ok(None),
    };
    if !first || (matches!(way, Way::Undecided) && forwarded(x)?.is_some()) {
        return Ok(None);
    }
    protocol::fast_export(x, whose, as_snapshot)
        .map_err(|error| torch::explain(whose.torch(), x, error))
}

/// As [`managed_tensor`], for dlx itself: a snapshot also records what an unversioned tensor cannot say. The caller is
/// attached through PyO3.
pub(crate) fn snapshot(x: &Bound<'_, PyAny>, consumer: &dyn Consumer) -> PyResult<Snapshot> {
    let managed = match cache::way(x)? {
        Way::Mixin => return snapshot(&innermost(x)?.0, consumer),
        Way::Tensor => return ordered(x, consumer).cloned(),
        Way::Protocol(_) | Way::Undecided | Way::Jax => {
            return by_protocol(x, consumer);
        }
        way => by_way(x, &way, consumer)?.0,
    };
    Ok(Snapshot::of(managed)?)
}

#[inline(always)]
fn by_way(x: &Bound<'_, PyAny>, way: &Way, consumer: &dyn Consumer) -> PyResult<TableExport> {
    match way {
        Way::Table(table, kind) => from_table(x, table, kind.as_ref(), consumer),
        Way::Numpy => Ok((numpy::export(x)?, None)),
        Way::Tensor => Ok((ordered(x, consumer)?.export(false)?, None)),
        Way::Mixin => Python::attach(|_| managed_tensor(&innermost(x)?.0, consumer)),
        Way::Protocol(_) | Way::Undecided | Way::Jax => from_protocol(x, consumer),
    }
}

/// The snapshot of a `dlx.Tensor`, after the consumer's stream was made to wait for its elements.
pub(crate) fn ordered<'a>(
    x: &'a Bound<'_, PyAny>,
    consumer: &dyn Consumer,
) -> PyResult<&'a Snapshot> {
    let tensor = Tensor::of(x).ok_or_else(|| no_protocol(x, "__dlpack__"))?;
    let snapshot = tensor.get().snapshot()?;
    let device = snapshot.meta().device;
    if let Some(namer) = snapshot.namer() {
        stream::note(TENSORS, device, namer);
    }
    if snapshot.usage().is_some() {
        let handle = consumer.stream(device)?;
        snapshot.order(&Stream::of_table(handle, device))?;
        consumer.ready(device, handle)?;
    }
    Ok(snapshot)
}

/// Exports through the table; passes the tensor on as it is if it conforms, else rewritten.
#[inline(always)]
fn from_table(
    x: &Bound<'_, PyAny>,
    table: &Table,
    kind: Option<&torch::TorchClass>,
    consumer: &dyn Consumer,
) -> PyResult<TableExport> {
    let managed = match table.export(x) {
        Ok(managed) => managed,
        // The table may describe less than the protocol does (R147).
        Err(error) => {
            return Python::attach(|py| {
                if error.is_instance_of::<PyBufferError>(py) {
                    from_protocol(x, consumer)
                } else {
                    Err(torch::explain(kind, x, error))
                }
            });
        }
    };
    if let Some(kind) = kind
        && kind.is_plain()
        && let Some((tensor, _)) = Meta::of_fast(&managed)
    {
        kind.check_table(x, tensor.dtype, tensor.data)?;
        return Ok((managed, None));
    }
    let checked = checked::of_managed(&managed);
    let (tensor, exact) = checked.map_err(|error| torch::explain(kind, x, error.into()))?;
    if let Some(kind) = kind {
        kind.check_table(x, tensor.dtype, tensor.data)?;
    }
    let work_stream = work_stream(table, tensor.device);
    let managed = if exact {
        managed
    } else {
        checked::rewritten(managed)?
    };
    Ok((managed, work_stream))
}

/// The work stream of a table's library, for devices with streams.
fn work_stream(table: &Table, device: DLDevice) -> Option<WorkStream> {
    table.work_stream.filter(|_| stream::needs_order(device))
}

/// Exports through `from_dlpack`, all of which may run Python code.
#[cold]
fn from_protocol(x: &Bound<'_, PyAny>, consumer: &dyn Consumer) -> PyResult<TableExport> {
    let asked = Cell::new(None);
    let stream = |device| {
        let handle = consumer.stream(device)?;
        asked.set(Some((device, handle)));
        Ok(handle)
    };
    Python::attach(|_| {
        let managed = by_protocol(x, &stream)?.export(true)?;
        if let Some((device, handle)) = asked.get() {
            consumer.ready(device, handle)?;
        }
        Ok((managed, None))
    })
}

fn by_protocol(x: &Bound<'_, PyAny>, consumer: &dyn Consumer) -> PyResult<Snapshot> {
    let asked = Asked::by_consumer(consumer);
    let request = Request {
        stream: Some(&asked),
        release: Release::None,
        ..Request::NOTHING
    };
    from_dlpack(x, &request)
}

/// A borrowed view of `x`, which owns the dimensions, and the work stream of its library.
///
/// # Errors
///
/// `BufferError` if `x` lends no view; exceptions of its library.
pub(crate) fn dl_tensor(x: &Bound<'_, PyAny>, consumer: &dyn Consumer) -> PyResult<TableBorrow> {
    match way_in(&mut None, x)? {
        Way::Table(table, kind) => from_borrow(x, table, kind.as_ref()),
        Way::Numpy => Ok((numpy::dl_tensor(x)?, None)),
        Way::Tensor => {
            let snapshot = ordered(x, consumer)?;
            checked::whole(snapshot.meta().flags)?;
            Ok((*snapshot.dl_tensor(), None))
        }
        Way::Mixin | Way::Protocol(_) | Way::Undecided | Way::Jax => Err(lends_nothing(x)),
    }
}

/// Borrows through the table.
fn from_borrow(
    x: &Bound<'_, PyAny>,
    table: &Table,
    kind: Option<&torch::TorchClass>,
) -> PyResult<TableBorrow> {
    let may_be_fast = kind.is_some_and(torch::TorchClass::is_plain);
    let lent = table.borrow(x, may_be_fast);
    let Some(tensor) = lent.map_err(|error| torch::explain(kind, x, error))? else {
        return Err(lends_nothing(x));
    };
    if let Some(kind) = kind {
        kind.check_borrow(x, tensor.dtype)?;
        kind.check_address(x, tensor.data)?;
    }
    Ok((tensor, work_stream(table, tensor.device)))
}
