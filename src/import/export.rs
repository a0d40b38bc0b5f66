//! Exports of any object as a managed tensor, without synchronization, and without a snapshot where the object's own
//! library can export directly.
//!
//! Table functions call this, so nothing here drops an owned `Py<T>` unless attached through PyO3 (S2, callers).

#![forbid(unsafe_code)]

use std::cell::Cell;

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use crate::abi::*;
use crate::adapters::{numpy, torch};
use crate::copy::request::{Asked, Consumer, Request};
use crate::exchange::Table;
use crate::exchange::slot::innermost;
use crate::import::cache::{self, Way};
use crate::import::hint::no_protocol;
use crate::import::ladder::from_dlpack;
use crate::stream::namer::TENSORS;
use crate::stream::usage::Release;
use crate::stream::{self, Stream, WorkStream};
use crate::tensor::checked::Meta;
use crate::tensor::managed::ManagedVersioned;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;

/// Exports `x` as a managed tensor, with the work stream of its library, from its table, for devices with streams.
///
/// A table exports without order. A producer that has only `__dlpack__` cannot name its stream, so it is asked to make
/// that of the `consumer` wait.
///
/// # Errors
///
/// As for `from_dlpack`.
pub(crate) fn managed_tensor(
    x: &Bound<'_, PyAny>,
    consumer: &dyn Consumer,
) -> PyResult<(ManagedVersioned, Option<WorkStream>)> {
    match cache::way_uncounted(&mut None, x)? {
        Way::Table(table, guards) => from_table(x, table, guards.as_ref(), consumer),
        Way::Numpy => Ok((numpy::export(x)?, None)),
        Way::Tensor => Ok((ordered(x, consumer)?.export(false)?, None)),
        Way::Mixin => Python::attach(|_| managed_tensor(&innermost(x)?.0, consumer)),
        Way::Protocol(_) | Way::Column | Way::Undecided | Way::Jax => from_protocol(x, consumer),
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
    if snapshot.has_streams() {
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
    guards: Option<&torch::Guards>,
    consumer: &dyn Consumer,
) -> PyResult<(ManagedVersioned, Option<WorkStream>)> {
    let managed = match table.export(x, true) {
        Ok(managed) => managed,
        // The table may describe less than the protocol does (R147).
        Err(error) => {
            return Python::attach(|py| {
                if error.is_instance_of::<PyBufferError>(py) {
                    from_protocol(x, consumer)
                } else {
                    Err(torch::explain(x, error))
                }
            });
        }
    };
    if let Some(guards) = guards
        && let Ok((tensor, flags)) = managed.read()
        && let Some(meta) = Meta::usual(tensor, flags)
    {
        guards.check(x, meta.dtype, meta.data)?;
        return Ok((managed, work_stream(table, meta.device)));
    }
    let managed = Snapshot::conforming(managed).map_err(|error| torch::explain(x, error.into()))?;
    let tensor = managed.read()?.0;
    if let Some(guards) = guards {
        guards.check(x, tensor.dtype, tensor.data)?;
    }
    let work_stream = work_stream(table, tensor.device);
    Ok((managed, work_stream))
}

/// The work stream of a table's library, for devices with streams.
pub(super) fn work_stream(table: &Table, device: DLDevice) -> Option<WorkStream> {
    table.work_stream.filter(|_| stream::needs_order(device))
}

/// Exports through `from_dlpack`, all of which may run Python code.
#[cold]
fn from_protocol(
    x: &Bound<'_, PyAny>,
    consumer: &dyn Consumer,
) -> PyResult<(ManagedVersioned, Option<WorkStream>)> {
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

/// Imports `x` for the stream of the `consumer`. The caller is attached through PyO3.
pub(crate) fn by_protocol(x: &Bound<'_, PyAny>, consumer: &dyn Consumer) -> PyResult<Snapshot> {
    let asked = Asked::by_consumer(consumer);
    let request = Request {
        stream: Some(&asked),
        release: Release::None,
        ..Request::NOTHING
    };
    from_dlpack(x, &request)
}
