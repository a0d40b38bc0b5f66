//! One tensor lent for a block: its memory, and the streams that use it.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyBufferError, PyException};
use pyo3::prelude::*;

use crate::abi::DLDevice;
use crate::adapters::torch;
use crate::adapters::torch::TorchClass;
use crate::adapters::{cuda_array_interface, jax, numpy};
use crate::copy::request::{Asked, Request};
use crate::exchange::Table;
use crate::exchange::slot::innermost;
use crate::import::cache;
use crate::import::cache::Way;
use crate::import::ladder::from_dlpack;
use crate::import::protocol;
use crate::stream::end::End;
use crate::stream::order::Waits;
use crate::stream::usage::{Library, StreamUsage};
use crate::stream::{self, Namer, Stream};
use crate::tensor::checked::Meta;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;
use crate::types::error::{Error, is_urgent};

/// A tensor lent for a `with` block.
pub(crate) struct Lent {
    pub(crate) snapshot: Snapshot,
    /// The library whose current stream uses the tensor; without it, the snapshot's usage tells.
    library: Option<Library>,
    /// The ends of earlier uses that the block has waited for.
    covered: Vec<End>,
    /// The stream that its library worked on when the block was entered.
    then: Option<Stream>,
}

impl Lent {
    pub(super) fn new(snapshot: Snapshot, library: Option<Library>) -> Self {
        Self {
            snapshot,
            library,
            covered: Vec::new(),
            then: None,
        }
    }
}

/// Lends the memory of `x`, for use on the block's `stream` if that is known already; also the library whose current stream
/// uses it, without which the snapshot's usage tells.
///
/// A library that cannot name its stream is passed the one of the block, else the `wanted` one.
pub(crate) fn lend(
    x: &Bound<'_, PyAny>,
    stream: Option<&Stream>,
    wanted: Option<&Bound<'_, PyAny>>,
) -> PyResult<(Snapshot, Option<Library>)> {
    if let Some(snapshot) = numpy::fast_if_array(x) {
        return Ok((snapshot, None));
    }
    match cache::way_in(&mut None, x)? {
        Way::Tensor => {
            let snapshot = x.cast::<Tensor>()?.get().snapshot()?.clone();
            Ok((snapshot, None))
        }
        Way::Numpy => Ok((numpy::snapshot(x)?, None)),
        Way::Mixin => lend(&innermost(x)?.0, stream, wanted),
        Way::Table(table, kind) => match of_table(x, table, kind.as_ref()) {
            Err(error) if error.is_instance_of::<PyBufferError>(x.py()) => {
                let by_protocol = of_protocol(x, stream, wanted);
                by_protocol.map_err(|other| match is_urgent(x.py(), &other) {
                    true => other,
                    false => error,
                })
            }
            lent => lent,
        },
        Way::Jax => match jax::snapshot(x)? {
            Some(snapshot) => Ok((snapshot, None)),
            None => of_protocol(x, stream, wanted),
        },
        Way::Protocol(_) | Way::Undecided => of_protocol(x, stream, wanted),
    }
}

/// As [`lend`], the memory alone, for which no stream waits.
pub(crate) fn lend_unordered(x: &Bound<'_, PyAny>) -> PyResult<Snapshot> {
    let no_order = stream::NO_SYNC.into_pyobject(x.py())?.into_any();
    Ok(lend(x, None, Some(&no_order))?.0)
}

/// What [`lend`] would lend of a plain torch tensor on the CPU with row-major elements, which the caller holds; `None` for
/// all others, and where `lend` might refuse.
#[inline(always)]
pub(super) fn glance(x: &Bound<'_, PyAny>) -> Option<Meta> {
    let Some(Way::Table(table, Some(kind))) = cache::remembered(x) else {
        return None;
    };
    let (meta, last) = table.borrow_row_major(x)?;
    if let Err(error) = kind.check_borrow(x, meta.dtype) {
        // PyO3 may not count the attachment (S20).
        Python::try_attach(|_| drop(error));
        return None;
    }
    kind.holds_view(x, &meta, last).then_some(meta)
}

/// Borrows a view from the table, or exports; orders nothing.
#[inline(always)]
fn of_table(
    x: &Bound<'_, PyAny>,
    table: &Table,
    kind: Option<&TorchClass>,
) -> PyResult<(Snapshot, Option<Library>)> {
    // A view has no flags, so it can replace an export only for torch, which has no read-only tensors.
    let lent = match kind {
        Some(kind) if kind.is_plain() => match table.lend_fast(x) {
            Ok(Some((snapshot, last))) => {
                if let Some(last) = last {
                    let meta = snapshot.meta();
                    // First: it may run code that changes the tensor.
                    kind.check_borrow(x, meta.dtype)?;
                    if kind.holds_view(x, &meta, last) {
                        return Ok((snapshot, None));
                    }
                }
                Ok(Some(snapshot))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        },
        Some(_) => table.lend(x),
        None => Ok(None),
    };
    of_unusual(x, table, kind, lent)
}

/// As [`of_table`], for all but plain torch tensors on the CPU, with the view that the table has lent of a torch tensor.
#[inline(never)]
fn of_unusual(
    x: &Bound<'_, PyAny>,
    table: &Table,
    kind: Option<&TorchClass>,
    lent: PyResult<Option<Snapshot>>,
) -> PyResult<(Snapshot, Option<Library>)> {
    let lent = match (kind, lent) {
        (Some(kind), Ok(Some(snapshot))) => {
            kind.check_borrow(x, snapshot.meta().dtype)?;
            if kind.holds(x, &snapshot, None) {
                Some(snapshot)
            } else {
                Some(torch::settled(kind, x, || lent_again(x, table))?)
            }
        }
        (_, Ok(_)) => None,
        (_, Err(error)) if error.is_instance_of::<PyBufferError>(x.py()) => None,
        (_, Err(error)) => return Err(torch::explain(kind, x, error)),
    };
    let snapshot = match lent {
        Some(snapshot) => snapshot,
        None => {
            let explain = |error| torch::explain(kind, x, error);
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
    let work_stream = table.work_stream.filter(|_| stream::has_streams(device));
    Ok((snapshot, work_stream.map(Library::Table)))
}

/// Borrows from the table again, after a first view has been read.
fn lent_again(x: &Bound<'_, PyAny>, table: &Table) -> PyResult<Snapshot> {
    (table.lend(x)?)
        .ok_or_else(|| PyBufferError::new_err("the table of the tensor lends no view any more"))
}

/// Imports without order if `__cuda_array_interface__` names the stream, else for the stream of the block.
fn of_protocol(
    x: &Bound<'_, PyAny>,
    stream: Option<&Stream>,
    wanted: Option<&Bound<'_, PyAny>>,
) -> PyResult<(Snapshot, Option<Library>)> {
    let py = x.py();
    let device = match protocol::device(x) {
        // As for an import that asks for nothing, which does not need the answer.
        Err(error)
            if stream.is_none() && wanted.is_none() && error.is_instance_of::<PyException>(py) =>
        {
            None
        }
        device => device?,
    };
    let library = cuda_array_interface::asked(x, device)?;
    let stream = match (&library, stream) {
        (Some(_), _) => Some(stream::NO_SYNC.into_pyobject(py)?.into_any()),
        (None, Some(stream)) if device.is_none_or(|device| stream.serves(device)) => {
            let stream = stream::PyStream::new(stream.clone());
            Some(Bound::new(py, stream)?.into_any())
        }
        // The producer orders its device's default stream; the block's stream waits for that.
        (None, Some(_)) => None,
        (None, None) => wanted.cloned(),
    };
    let is_ordered = library.is_some() || device.is_some_and(stream::has_streams);
    let stream = stream.as_ref().filter(|_| is_ordered);
    let asked = stream.map(Asked::by_argument);
    let request = Request {
        stream: asked.as_ref(),
        ..Request::NOTHING
    };
    Ok((from_dlpack(x, &request)?, library))
}

impl Lent {
    /// Where the tensor is.
    pub(crate) fn device(&self) -> DLDevice {
        self.snapshot.meta().device
    }

    /// Who names the stream of the tensor, if anybody.
    pub(crate) fn namer(&self) -> Option<Namer> {
        match &self.library {
            Some(library) => Some(Namer::of(library)),
            None => self.snapshot.namer(),
        }
    }

    /// The stream that its library works on now, if the library can tell.
    fn now(&self, py: Python<'_>) -> PyResult<Option<Stream>> {
        match &self.library {
            Some(library) => library.stream(py, self.device()),
            None => Ok(self.snapshot.usage().and_then(StreamUsage::now)),
        }
    }

    /// The stream for work on the tensor, if the block has no stream of its own.
    pub(crate) fn stream(&self, py: Python<'_>) -> PyResult<Stream> {
        let device = self.device();
        if let Some(stream) = self.now(py)? {
            return Ok(stream);
        }
        match self.snapshot.usage().and_then(StreamUsage::stream) {
            Some(stream) => Ok(stream.clone()),
            None => stream::of_thread(py, device),
        }
    }

    /// Adds what the block's stream has to wait for.
    pub(crate) fn collect(&mut self, py: Python<'_>, waits: &mut Waits) -> PyResult<()> {
        let now = self.now(py)?;
        match (&self.library, self.snapshot.usage()) {
            (None, Some(usage)) => {
                self.covered = usage.uses().clone();
                usage.collect(waits, now.as_ref());
            }
            _ => now.iter().for_each(|now| waits.add(now)),
        }
        self.then = now;
        Ok(())
    }

    /// Notes that the block's stream does not wait for earlier uses after all.
    pub(crate) fn uncover(&mut self) {
        self.covered.clear();
    }

    /// The snapshot for the block's view: ready on `stream`.
    pub(crate) fn view(&self, stream: &Stream) -> Result<Snapshot, Error> {
        self.snapshot.used(StreamUsage::ready_after(stream.clone()))
    }

    /// Adds the streams that have to wait for the block's stream; returns whether the library has changed its stream
    /// since the block was entered, so that the earlier one, which may be gone, does not wait.
    pub(crate) fn collect_back(&self, py: Python<'_>, back: &mut Waits) -> PyResult<bool> {
        let now = self.now(py)?;
        now.iter().for_each(|now| back.add(now));
        if let (None, Some(usage)) = (&self.library, self.snapshot.usage())
            && let Some(own) = usage.stream()
        {
            back.add(own);
        }
        let is_same = match (&self.then, &now) {
            (Some(then), Some(now)) => then.is(now),
            (Some(_), None) => false,
            (None, _) => true,
        };
        Ok(!is_same)
    }

    /// Whether the tensor itself has to remember the end of the block: it has no stream of its own that waits for it.
    pub(crate) fn remembers(&self) -> bool {
        let usage = self.snapshot.usage().filter(|_| self.library.is_none());
        usage.is_some_and(|usage| usage.stream().is_none())
    }

    /// Notes the end of the block.
    pub(crate) fn add_use(&self, end: &End) {
        if let Some(usage) = self.snapshot.usage().filter(|_| self.library.is_none()) {
            usage.add_use(end.clone(), &self.covered);
        }
    }
}
