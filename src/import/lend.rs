//! What an object lends of its memory, for a use that whoever borrows it orders where its library does not.

#![forbid(unsafe_code)]

use std::mem::MaybeUninit;

use pyo3::exceptions::{PyBufferError, PyException};
use pyo3::prelude::*;

use crate::adapters::torch::{self, Guards};
use crate::adapters::{cuda_array_interface, jax, numpy};
use crate::copy::request::{Asked, Request};
use crate::exchange::Table;
use crate::exchange::slot::{innermost, lends_nothing};
use crate::import::cache::{self, Way};
use crate::import::ladder::{explain, from_dlpack};
use crate::import::protocol;
use crate::stream::usage::Library;
use crate::stream::{self, Stream};
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;
use crate::types::error::unless_urgent;

/// What [`lend`] lends: the memory; the library whose current stream uses it, without which the snapshot's usage tells; that
/// stream, where it has been asked for already, which is rare.
pub(crate) type Lending = (Snapshot, Option<Library>, Option<Box<Stream>>);

/// Lends the memory of `x`, for use on the block's `stream` if that is known already.
///
/// A library that cannot name its stream is passed the one of the block, else the `wanted` one.
pub(crate) fn lend(
    x: &Bound<'_, PyAny>,
    stream: Option<&Stream>,
    wanted: Option<&Bound<'_, PyAny>>,
) -> PyResult<Lending> {
    if let Some(snapshot) = numpy::fast_if_array(x) {
        return Ok((snapshot, None, None));
    }
    let found = match cache::way_in(&mut None, x)? {
        Way::Table(table, guards) => {
            return match of_table(x, table, guards.as_ref()) {
                Err(error) if error.is_instance_of::<PyBufferError>(x.py()) => {
                    let by_protocol = of_protocol(x, stream, wanted);
                    by_protocol.map_err(|other| unless_urgent(x.py(), other, error))
                }
                lent => lent.map(|(snapshot, library)| (snapshot, library, None)),
            };
        }
        Way::Mixin => {
            let (inner, last) = innermost(x)?;
            let lent = lend(&inner, stream, wanted);
            return lent.map_err(|error| explain(&last, &inner, error));
        }
        Way::Tensor => Some(x.cast::<Tensor>()?.get().snapshot()?.clone()),
        Way::Numpy => Some(numpy::snapshot(x)?),
        Way::Jax => jax::snapshot(x)?,
        Way::Protocol(_) | Way::Column | Way::Undecided => None,
    };
    match found {
        Some(snapshot) => Ok((snapshot, None, None)),
        None => of_protocol(x, stream, wanted),
    }
}

/// As [`lend`], the memory alone, for which no stream waits.
pub(crate) fn lend_unordered(x: &Bound<'_, PyAny>) -> PyResult<Snapshot> {
    let no_order = stream::NO_SYNC.into_pyobject(x.py())?.into_any();
    Ok(lend(x, None, Some(&no_order))?.0)
}

/// Borrows a view from the table, or exports; orders nothing.
#[inline(always)]
fn of_table(
    x: &Bound<'_, PyAny>,
    table: &Table,
    guards: Option<&Guards>,
) -> PyResult<(Snapshot, Option<Library>)> {
    // A view has no flags, so it can replace an export only for torch, which has no read-only tensors.
    let lent = match guards {
        Some(guards) => of_torch(x, table, guards)?,
        None => None,
    };
    let snapshot = match lent {
        Some(snapshot) => snapshot,
        None => exported(x, table, guards)?,
    };
    let device = snapshot.meta().device;
    let named = (table.work_stream).filter(|_| stream::needs_order(device));
    Ok((snapshot, named.map(Library::Table)))
}

/// What the table of torch lends; `None` if it does not.
#[inline(always)]
fn of_torch(x: &Bound<'_, PyAny>, table: &Table, guards: &Guards) -> PyResult<Option<Snapshot>> {
    let mut room = MaybeUninit::uninit();
    let lent = match table.view(x, &mut room) {
        Ok(Some(view)) => view.fast_snapshot(),
        Ok(None) => return Ok(None),
        Err(error) => Err(error),
    };
    let (snapshot, last) = match lent {
        Ok(lent) => lent,
        Err(error) if error.is_instance_of::<PyBufferError>(x.py()) => return Ok(None),
        Err(error) => return Err(torch::explain(x, error)),
    };
    let meta = snapshot.meta();
    // First: it may run code that changes the tensor.
    guards.check_values(x, meta.dtype)?;
    if guards.holds(x, &snapshot, last) {
        return Ok(Some(snapshot));
    }
    let again = || {
        let mut room = MaybeUninit::uninit();
        let view = table.view(x, &mut room)?;
        view.ok_or_else(|| lends_nothing(x))?.snapshot()
    };
    torch::settled(guards, x, again).map(Some)
}

/// What the table exports for a kernel.
#[inline(never)]
fn exported(x: &Bound<'_, PyAny>, table: &Table, guards: Option<&Guards>) -> PyResult<Snapshot> {
    let explain = |error| torch::explain(x, error);
    let managed = table.export(x, false).map_err(explain)?;
    let snapshot = Snapshot::of(managed).map_err(|error| explain(error.into()))?;
    if let Some(guards) = guards {
        guards.check(x, snapshot.meta().dtype, snapshot.meta().data)?;
    }
    Ok(snapshot)
}

/// Imports without order if `__cuda_array_interface__` names the stream, else for the stream of the block.
fn of_protocol(
    x: &Bound<'_, PyAny>,
    stream: Option<&Stream>,
    wanted: Option<&Bound<'_, PyAny>>,
) -> PyResult<Lending> {
    let py = x.py();
    let no_order = |wanted: &Bound<'_, PyAny>| wanted.eq(stream::NO_SYNC).unwrap_or(false);
    let is_asked = stream.is_some() || !wanted.is_none_or(no_order);
    let device = match protocol::device(x) {
        // As for an import that asks for nothing, which does not need the answer.
        Err(error) if !is_asked && error.is_instance_of::<PyException>(py) => None,
        device => device?,
    };
    let named = cuda_array_interface::asked(x, device)?;
    let stream = match (&named, stream) {
        (Some(_), _) => Some(stream::NO_SYNC.into_pyobject(py)?.into_any()),
        (None, Some(stream)) if device.is_none_or(|device| stream.serves(device)) => {
            let stream = stream::PyStream(stream.clone());
            Some(Bound::new(py, stream)?.into_any())
        }
        // The producer orders its device's default stream; the block's stream waits for that.
        (None, Some(_)) => None,
        (None, None) => wanted.cloned(),
    };
    let is_ordered = named.is_some() || device.is_some_and(stream::has_streams);
    let stream = stream.as_ref().filter(|_| is_ordered);
    let asked = stream.map(Asked::by_argument);
    let request = Request {
        stream: asked.as_ref(),
        ..Request::NOTHING
    };
    let snapshot = from_dlpack(x, &request)?;
    let there = snapshot.meta().device;
    let on = |(library, handle)| (library, Box::new(Stream::new(handle, there, None)));
    let (library, stream) = named.map(on).unzip();
    Ok((snapshot, library, stream))
}
