//! Exports of any object as the functions of a table make them: without synchronization, and without a
//! snapshot where the object's own library can be asked directly.
//!
//! Table functions call this, so nothing here drops an owned `Py<T>` unless it is properly attached.

#![forbid(unsafe_code)]

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use crate::abi::*;
use crate::adapters::{numpy, torch};
use crate::cache::{self, Way};
use crate::exchange::{Table, WorkStream};
use crate::managed::Managed;
use crate::protocol::no_protocol;
use crate::release::Release;
use crate::request::{Request, StreamOf};
use crate::resolve::from_dlpack;
use crate::slot::{innermost, lends_nothing};
use crate::snapshot::Snapshot;
use crate::stream::Stream;
use crate::tensor::Tensor;
use crate::{checked, protocol, stream};

/// A managed tensor, and the stream on which its library works: that of a table, for a device with streams.
pub(crate) type Export = (Managed<DLManagedTensorVersioned>, Option<WorkStream>);

/// A borrowed view, and the stream on which its library works.
pub(crate) type Lent = (DLTensor, Option<WorkStream>);

/// A managed tensor of `x`.
///
/// A table is asked without order, and its library's stream is named with the answer. A producer that has only
/// `__dlpack__` cannot say on which stream it works; it is asked to make the one of `stream` wait.
///
/// # Errors
///
/// As for `from_dlpack`.
pub(crate) fn managed_tensor(x: &Bound<'_, PyAny>, stream: StreamOf<'_>) -> PyResult<Export> {
    let found;
    let way = match cache::known(x) {
        Some(way) => way,
        None => {
            found = find(x)?;
            &found
        }
    };
    by_way(x, way, stream)
}

/// How to export `x`, of a type of which that is not remembered.
#[cold]
#[inline(never)]
fn find(x: &Bound<'_, PyAny>) -> PyResult<Way> {
    // Finding the way runs Python code.
    Python::attach(|_| cache::with(x, |entry| entry.way(x)))
}

/// As [`managed_tensor`], where `x` has a table or a native reader, or for `any_stream` a usual export of `__dlpack__`;
/// `None` where it has not. The caller is properly attached.
pub(crate) fn direct(
    x: &Bound<'_, PyAny>,
    stream: StreamOf<'_>,
    any_stream: bool,
) -> PyResult<Option<Export>> {
    cache::with(x, |entry| {
        let found;
        let way = match entry.known() {
            Some(way) => way,
            // `from_dlpack` comes next, and looks again.
            None if entry.is_undecided() && !entry.is_on_cpu() => return Ok(None),
            None => {
                found = entry.way(x)?;
                &found
            }
        };
        match way {
            Way::Table(..) | Way::Numpy => by_way(x, way, stream).map(Some),
            Way::Protocol(kind) if any_stream => {
                let managed = protocol::usual(x, *kind, entry)?;
                Ok(managed.map(|managed| (managed, None)))
            }
            _ => Ok(None),
        }
    })
}

#[inline(always)]
fn by_way(x: &Bound<'_, PyAny>, way: &Way, stream: StreamOf<'_>) -> PyResult<Export> {
    match way {
        Way::Table(table, kind) => from_table(x, table, kind.as_ref(), stream),
        Way::Numpy => Ok((numpy::export(x)?, None)),
        Way::Tensor => from_tensor(x, stream),
        Way::Mixin => Python::attach(|_| managed_tensor(&innermost(x)?.0, stream)),
        Way::Protocol(_) | Way::Undecided => from_protocol(x, stream),
    }
}

/// What a `dlx.Tensor` shares.
fn from_tensor(x: &Bound<'_, PyAny>, stream: StreamOf<'_>) -> PyResult<Export> {
    Ok((ordered(x, stream)?.export(false)?, None))
}

/// The snapshot of a `dlx.Tensor`, if its elements are ready for the consumer's stream.
fn ordered<'a>(x: &'a Bound<'_, PyAny>, stream: StreamOf<'_>) -> PyResult<&'a Snapshot> {
    let tensor = Tensor::of(x).ok_or_else(|| no_protocol(x, "__dlpack__"))?;
    let snapshot = tensor.get().snapshot()?;
    let device = snapshot.memo().device;
    if snapshot.work().is_some() {
        snapshot.order(&Stream::of_table(stream(device)?, device))?;
    }
    Ok(snapshot)
}

/// What the table gives, as it is if it is what dlx would write.
#[inline(always)]
fn from_table(
    x: &Bound<'_, PyAny>,
    table: &Table,
    kind: Option<&torch::Kind>,
    stream: StreamOf<'_>,
) -> PyResult<Export> {
    let managed = match table.export(x) {
        Ok(managed) => managed,
        // The table may describe less than the protocol does (R147).
        Err(error) => {
            return Python::attach(|py| match error.is_instance_of::<PyBufferError>(py) {
                true => from_protocol(x, stream),
                false => Err(error),
            });
        }
    };
    let (tensor, exact) = match kind {
        Some(kind) if kind.is_plain() => checked::of_trusted(&managed)?,
        _ => checked::of_managed(&managed)?,
    };
    if let Some(kind) = kind {
        kind.check_table(x, tensor.dtype)?;
    }
    let work_stream = work_stream(table, tensor.device);
    let managed = match exact {
        true => managed,
        false => checked::rewritten(managed)?,
    };
    Ok((managed, work_stream))
}

/// The stream of a table's library, for a device that has streams.
fn work_stream(table: &Table, device: DLDevice) -> Option<WorkStream> {
    table.work_stream.filter(|_| stream::has_streams(device))
}

/// What `from_dlpack` makes of `x`; everything on this way may run Python code.
#[cold]
fn from_protocol(x: &Bound<'_, PyAny>, stream: StreamOf<'_>) -> PyResult<Export> {
    Python::attach(|_| {
        let request = Request {
            stream_of: Some(stream),
            release: Release::None,
            ..Request::NOTHING
        };
        Ok((from_dlpack(x, &request)?.export(true)?, None))
    })
}

/// A view of `x` whose dimensions belong to it, and the stream of its library.
///
/// # Errors
///
/// `BufferError` where `x` lends no view; what its library raises.
pub(crate) fn dl_tensor(x: &Bound<'_, PyAny>, stream: StreamOf<'_>) -> PyResult<Lent> {
    let found;
    let way = match cache::known(x) {
        Some(way) => way,
        None => {
            found = find(x)?;
            &found
        }
    };
    lent_by_way(x, way, stream)?.ok_or_else(|| lends_nothing(x))
}

#[inline(always)]
fn lent_by_way(x: &Bound<'_, PyAny>, way: &Way, stream: StreamOf<'_>) -> PyResult<Option<Lent>> {
    match way {
        Way::Table(table, kind) => from_borrow(x, table, kind.as_ref()),
        Way::Numpy => Ok(Some((numpy::dl_tensor(x)?, None))),
        Way::Tensor => {
            let snapshot = ordered(x, stream)?;
            Ok(Some((snapshot.dl_tensor(), None)))
        }
        Way::Mixin | Way::Protocol(_) | Way::Undecided => Ok(None),
    }
}

/// What the table lends.
fn from_borrow(
    x: &Bound<'_, PyAny>,
    table: &Table,
    kind: Option<&torch::Kind>,
) -> PyResult<Option<Lent>> {
    let is_trusted = kind.is_some_and(torch::Kind::is_plain);
    let Some(tensor) = table.borrow(x, is_trusted)? else {
        return Ok(None);
    };
    if let Some(kind) = kind {
        kind.check_borrow(x, tensor.dtype)?;
    }
    let work_stream = work_stream(table, tensor.device);
    Ok(Some((tensor, work_stream)))
}
