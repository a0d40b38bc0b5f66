//! One tensor lent for a block: its memory, and the streams that use it.

#![forbid(unsafe_code)]

use std::sync::Arc;

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use crate::abi::DLDevice;
use crate::adapters::torch;
use crate::adapters::torch::TorchClass;
use crate::adapters::{cuda_array_interface, numpy};
use crate::copy::request::Request;
use crate::driver::Event;
use crate::exchange::Table;
use crate::exchange::slot::innermost;
use crate::import::cache;
use crate::import::cache::Way;
use crate::import::ladder::from_dlpack;
use crate::import::protocol;
use crate::stream;
use crate::stream::Stream;
use crate::stream::order;
use crate::stream::order::Joined;
use crate::stream::usage::{Library, Ready, StreamUsage};
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;
use crate::types::error::Error;

/// A tensor lent for a `with` block.
pub(crate) struct Lent {
    pub(crate) snapshot: Snapshot,
    /// The library whose current stream uses the tensor; without it, the snapshot's usage tells.
    library: Option<Library>,
    /// The ends of earlier uses that the block has waited for.
    covered: Vec<Arc<Event>>,
}

/// Lends `x`, for use on the block's `stream` if that is known already.
///
/// A library that cannot name its stream is passed the one of the block, else the `wanted` one.
pub(crate) fn lend(
    x: &Bound<'_, PyAny>,
    stream: Option<&Stream>,
    wanted: Option<&Bound<'_, PyAny>>,
) -> PyResult<Lent> {
    match cache::way(x)? {
        Way::Tensor => Ok(Lent {
            snapshot: x.cast::<Tensor>()?.get().snapshot()?.clone(),
            library: None,
            covered: Vec::new(),
        }),
        Way::Numpy => Ok(Lent {
            snapshot: numpy::snapshot(x)?,
            library: None,
            covered: Vec::new(),
        }),
        Way::Mixin => lend(&innermost(x)?.0, stream, wanted),
        Way::Table(table, kind) => match of_table(x, table, kind) {
            Err(error) if error.is_instance_of::<PyBufferError>(x.py()) => {
                of_protocol(x, stream, wanted).map_err(|_| error)
            }
            lent => lent,
        },
        Way::Protocol(_) | Way::Undecided => of_protocol(x, stream, wanted),
    }
}

/// Borrows from the table again, after a first view has been read.
fn lent_again(x: &Bound<'_, PyAny>, table: Table) -> PyResult<Snapshot> {
    let lent = table.lend(x)?;
    lent.ok_or_else(|| PyBufferError::new_err("the table of the tensor lends no view any more"))
}

/// Borrows a view from the table, or exports; orders nothing.
fn of_table(x: &Bound<'_, PyAny>, table: Table, kind: Option<TorchClass>) -> PyResult<Lent> {
    // A view has no flags, so it can replace an export only for torch, which has no read-only tensors.
    let lent = match kind {
        Some(kind) => match table.lend(x) {
            Ok(Some(snapshot)) => {
                kind.check_borrow(x, snapshot.meta().dtype)?;
                if kind.holds(x, &snapshot, None) {
                    Some(snapshot)
                } else {
                    Some(torch::settled(&kind, x, || lent_again(x, table))?)
                }
            }
            Ok(None) => None,
            Err(error) if error.is_instance_of::<PyBufferError>(x.py()) => None,
            Err(error) => return Err(torch::explain(Some(&kind), x, error)),
        },
        None => None,
    };
    let snapshot = match lent {
        Some(snapshot) => snapshot,
        None => {
            let explain = |error| torch::explain(kind.as_ref(), x, error);
            let managed = table.export_to_kernel(x).map_err(explain)?;
            let snapshot =
                Snapshot::import(managed, None).map_err(|(error, _)| explain(error.into()))?;
            if let Some(kind) = kind {
                kind.check_table(x, snapshot.meta().dtype, snapshot.meta().data)?;
            }
            snapshot
        }
    };
    let device = snapshot.meta().device;
    Ok(Lent {
        library: (table.work_stream)
            .filter(|_| stream::has_streams(device))
            .map(Library::Table),
        snapshot,
        covered: Vec::new(),
    })
}

/// Imports without order if `__cuda_array_interface__` names the stream, else for the stream of the block.
fn of_protocol(
    x: &Bound<'_, PyAny>,
    stream: Option<&Stream>,
    wanted: Option<&Bound<'_, PyAny>>,
) -> PyResult<Lent> {
    let py = x.py();
    let device = protocol::device(x)?;
    let library = cuda_array_interface::asked(x, device)?;
    let stream = match (&library, stream) {
        (Some(_), _) => Some(stream::NO_SYNC.into_pyobject(py)?.into_any()),
        (None, Some(stream)) => {
            let stream = stream::PyStream::new(stream.clone());
            Some(Bound::new(py, stream)?.into_any())
        }
        (None, None) => wanted.cloned(),
    };
    let is_ordered = library.is_some() || device.is_some_and(stream::has_streams);
    let request = Request {
        stream: stream.as_ref().filter(|_| is_ordered),
        ..Request::NOTHING
    };
    Ok(Lent {
        snapshot: from_dlpack(x, &request)?,
        library,
        covered: Vec::new(),
    })
}

impl Lent {
    fn device(&self) -> DLDevice {
        self.snapshot.meta().device
    }

    /// The current stream of its library, if the library can tell.
    fn now(&self, py: Python<'_>) -> PyResult<Option<Stream>> {
        match &self.library {
            Some(library) => library.stream(py, self.device()),
            None => Ok(None),
        }
    }

    /// The stream for work on the tensor, if the block has no stream of its own.
    pub(crate) fn stream(&self, py: Python<'_>) -> PyResult<Stream> {
        let device = self.device();
        if let Some(stream) = self.now(py)? {
            return Ok(stream);
        }
        let usage = self.snapshot.usage();
        let known = usage.and_then(|usage| {
            let now = usage.producer.as_ref().and_then(|producer| producer.now());
            now.or_else(|| usage.stream().cloned())
        });
        match known {
            Some(stream) => Ok(stream),
            None => Ok(Stream::of_table(stream::current(py, device)?, device)),
        }
    }

    /// Makes `stream` wait for the tensor.
    pub(crate) fn order(
        &mut self,
        py: Python<'_>,
        stream: &Stream,
        joined: Joined,
    ) -> PyResult<()> {
        match (self.now(py)?, self.snapshot.usage()) {
            (Some(now), _) => Ok(order::after(stream, &now, joined)?),
            (None, Some(usage)) => {
                self.covered = usage.uses().clone();
                Ok(usage.order(stream, joined)?)
            }
            (None, None) => Ok(()),
        }
    }

    /// The snapshot for the block's view: ready on `stream`.
    pub(crate) fn view(&self, stream: &Stream) -> Result<Snapshot, Error> {
        self.snapshot.used(StreamUsage::ready_after(stream.clone()))
    }

    /// Makes the tensor's streams wait for `stream`.
    pub(crate) fn join_back(&self, py: Python<'_>, stream: &Stream) -> PyResult<()> {
        if let Some(now) = self.now(py)? {
            return Ok(order::after(&now, stream, Joined::Never)?);
        }
        let Some(usage) = self.snapshot.usage() else {
            return Ok(());
        };
        let now = usage
            .producer
            .as_ref()
            .and_then(|producer| Some((producer.now()?, producer)));
        let mut known = false;
        if let Some((now, producer)) = now {
            order::after(&now, stream, Joined::Never)?;
            known = now.is(&producer.then);
        }
        if let Some(own) = usage.stream() {
            order::after(own, stream, Joined::Never)?;
            known = true;
        }
        // No stream was made to wait, so record the use in the tensor.
        if !known && !matches!(usage.ready, Ready::Now) {
            let end = order::point(stream)?;
            if end.capture().is_none() {
                usage.add_use(Arc::new(end), &self.covered);
            }
        }
        Ok(())
    }
}
