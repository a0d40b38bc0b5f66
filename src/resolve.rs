//! `from_dlpack`: the ladder from an object to a snapshot, each rung left only for the failure named.

#![forbid(unsafe_code)]

use pyo3::exceptions::{PyAttributeError, PyBufferError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::abi::{DLDevice, DLManagedTensorVersioned};
use crate::adapters::{self, numpy, oneapi, torch};
use crate::cache::{self, Entry, Way};
use crate::error::type_name;
use crate::exchange::Table;
use crate::managed::Managed;
use crate::method::attribute;
use crate::protocol::{ask, from_protocol, no_protocol};
use crate::relocate::{self, is_refusal};
use crate::request::{Request, again, finish};
use crate::slot::{MAX_HOPS, Origin, Slot, endless, innermost, is_mixin};
use crate::snapshot::Snapshot;
use crate::stream::{Stream, Wanted};
use crate::tensor::Tensor;
use crate::work::{Library, Producer, Ready, Work};
use crate::{aliases, capsule, device, release, stream};

/// The tensor that `x` describes, as requested.
pub(crate) fn from_dlpack(x: &Bound<'_, PyAny>, request: &Request<'_, '_>) -> PyResult<Snapshot> {
    if let Ok(capsule) = x.cast::<PyCapsule>() {
        return from_capsule(capsule, request);
    }
    if numpy::is_ndarray(x) {
        // The usual array, without a look into the cache.
        return from_numpy(x, request);
    }
    let given = x;
    let mut x = x.clone();
    let mut outer = None;
    for _ in 0..MAX_HOPS {
        let stand_in = outer.as_ref().map(|_| given);
        let step = cache::with(&x, |entry| step(&x, entry, stand_in, request));
        match (step, &outer) {
            (Ok(Step::There(snapshot)), _) => return Ok(snapshot),
            (Ok(Step::Next(inner, last)), _) => (x, outer) = (inner, last),
            (Err(error), Some(outer)) => return Err(explain(outer, &x, error)),
            (Err(error), None) => return Err(error),
        }
    }
    Err(endless(&x.get_type()))
}

/// What a rung leads to.
enum Step<'py> {
    There(Snapshot),
    /// Another object that stands for this one, and the instance of a mixin class that says so, if it is one.
    Next(Bound<'py, PyAny>, Option<Bound<'py, PyAny>>),
}

fn step<'py>(
    x: &Bound<'py, PyAny>,
    entry: &Entry,
    stand_in: Option<&Bound<'py, PyAny>>,
    request: &Request<'_, '_>,
) -> PyResult<Step<'py>> {
    let snapshot = match entry.way(x)? {
        Way::Tensor => return from_tensor(x.cast()?, stand_in, entry, request).map(Step::There),
        Way::Numpy => from_numpy(x, request),
        Way::Table(table, kind) => from_table(x, table, kind, entry, request),
        Way::Protocol(kind) => without_table(x, kind, entry, request),
        Way::Mixin => {
            let (inner, last) = innermost(x)?;
            return Ok(Step::Next(inner, Some(last)));
        }
        Way::Undecided => match forwarded(x)? {
            Some(inner) => {
                entry.forwards();
                return Ok(Step::Next(inner, None));
            }
            None => {
                entry.missed();
                without_table(x, None, entry, request)
            }
        },
    };
    aliases::named(stand_in, x, entry, snapshot?, request).map(Step::There)
}

/// A tensor of dlx's own, for which `stand_in` may have been given.
pub(crate) fn from_tensor(
    x: &Bound<'_, Tensor>,
    stand_in: Option<&Bound<'_, PyAny>>,
    entry: &Entry,
    request: &Request<'_, '_>,
) -> PyResult<Snapshot> {
    let snapshot = x.get().snapshot()?.clone();
    let snapshot = aliases::named(stand_in, x, entry, snapshot, request)?;
    if let Some(snapshot) = aliases::again(x.py(), &snapshot, request)? {
        return Ok(snapshot);
    }
    match request.moves(snapshot.memo().device) {
        true => again(x.py(), snapshot, request),
        false => again(x.py(), used(&snapshot, request)?, request),
    }
}

/// A snapshot that dlx holds, for use on the stream that was asked for.
pub(crate) fn used(snapshot: &Snapshot, request: &Request<'_, '_>) -> PyResult<Snapshot> {
    let here = snapshot.memo().device;
    let Wanted::Stream(stream) = request.wanted(here)? else {
        return Ok(snapshot.clone());
    };
    snapshot.order(&stream)?;
    let work = snapshot.work();
    if work
        .and_then(Work::stream)
        .is_some_and(|known| known.is(&stream))
    {
        return Ok(snapshot.clone());
    }
    let producer = work.and_then(|work| work.producer.clone());
    Ok(snapshot.used(request.ready_on(stream, producer))?)
}

/// Rungs 4 and 5: `__dlpack__`, or else a protocol that is not DLPack's.
fn without_table(
    x: &Bound<'_, PyAny>,
    kind: Option<torch::Kind>,
    entry: &Entry,
    request: &Request<'_, '_>,
) -> PyResult<Snapshot> {
    if let Some(snapshot) = from_protocol(x, kind, entry, request)? {
        return Ok(snapshot);
    }
    let Some(snapshot) = adapters::snapshot(x, request)? else {
        return Err(no_protocol(x, "__dlpack__"));
    };
    request.wanted(request.device.unwrap_or(snapshot.memo().device))?;
    again(x.py(), snapshot, request)
}

/// Rung 2: the object that `x` names in place of a table, where that object's type has one.
fn forwarded<'py>(x: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(inner) = attribute(x, intern!(x.py(), "__dlpack_c_exchange_api__"))? else {
        return Ok(None);
    };
    let way = cache::with(&inner, |entry| entry.way(&inner))?;
    let leads = !matches!(way, Way::Protocol(_) | Way::Undecided | Way::Numpy);
    Ok(leads.then_some(inner))
}

/// Rung 1: the table, which moves and orders nothing; what needs more goes to `__dlpack__`.
fn from_table(
    x: &Bound<'_, PyAny>,
    table: Table,
    kind: Option<torch::Kind>,
    entry: &Entry,
    request: &Request<'_, '_>,
) -> PyResult<Snapshot> {
    exported(x, table.export(x), table, kind, entry, request)
}

/// `from_dlpack(x)` where the type of `x` is known to have a table: the usual tensor takes no more than that.
///
/// PyO3 need not know of the attachment.
#[inline(always)]
pub(crate) fn of_known(
    x: &Bound<'_, PyAny>,
    table: &Table,
    kind: Option<&torch::Kind>,
) -> PyResult<Snapshot> {
    match table.export(x) {
        Ok(managed) if is_on_cpu(&managed) => on_cpu(x, managed, kind),
        export => of_unusual(x, export, table, kind),
    }
}

#[inline(always)]
fn is_on_cpu(managed: &Managed<DLManagedTensorVersioned>) -> bool {
    (managed.read()).is_ok_and(|(tensor, _)| tensor.device == device::CPU)
}

/// As [`of_known`], of what may run Python code.
#[inline(never)]
fn of_unusual(
    x: &Bound<'_, PyAny>,
    export: PyResult<Managed<DLManagedTensorVersioned>>,
    table: &Table,
    kind: Option<&torch::Kind>,
) -> PyResult<Snapshot> {
    Python::attach(|_| {
        cache::with(x, |entry| {
            let kind = kind.copied();
            let snapshot = exported(x, export, *table, kind, entry, &Request::NOTHING)?;
            aliases::named(None, x, entry, snapshot, &Request::NOTHING)
        })
    })
}

/// What a table has exported, or what the protocol says instead.
fn exported(
    x: &Bound<'_, PyAny>,
    export: PyResult<Managed<DLManagedTensorVersioned>>,
    table: Table,
    kind: Option<torch::Kind>,
    entry: &Entry,
    request: &Request<'_, '_>,
) -> PyResult<Snapshot> {
    let py = x.py();
    let managed = match export {
        Ok(managed) => managed,
        // The table may describe less than the protocol does (R147).
        Err(error) if error.is_instance_of::<PyBufferError>(py) => {
            return instead_of_table(x, kind, entry, request, || error);
        }
        Err(error) => return Err(error),
    };
    let here = managed.read()?.0.device;
    if here == device::CPU && request.is_nothing() {
        return on_cpu(x, managed, kind.as_ref());
    }
    let moves = request.moves(here);
    let has_streams = stream::has_streams(here);
    let work = match has_streams {
        // The copy is ordered, on whatever stream it runs.
        true if moves => in_no_order(table, here, request, py)?,
        true => order(table, here, request, py)?,
        false => None,
    };
    let unordered = has_streams && !moves && work.is_none();
    let snapshot = Snapshot::import(managed, work).map_err(|(error, _)| error)?;
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
    if moves {
        let can = table.work_stream.is_some() || !stream::has_streams(here);
        return match ask(x, kind, entry, request) {
            Err(error)
                if request.copy == Some(false)
                    || !is_refusal(py, &error, kind.is_some())
                    || !can =>
            {
                Err(error)
            }
            Ok(Some(moved)) => Ok(moved),
            Ok(None) if !can => Err(cannot("move or copy it in order")),
            Ok(None) => again(py, snapshot, request),
            Err(error) => {
                // The producer's own error, where dlx has no way either (R60).
                let there = request.device.unwrap_or(here);
                match relocate::check(here, there) {
                    Ok(()) => again(py, snapshot, request),
                    Err(_) => Err(error),
                }
            }
        };
    }
    let queued = oneapi::queue(x, request.stream, here)?.is_some();
    if !queued {
        request.wanted(here)?;
    }
    if unordered || queued {
        let cannot = || {
            cannot("order streams (stream=-1 asks for no order), and there is no driver to do it")
        };
        return instead_of_table(x, kind, entry, request, cannot);
    }
    finish(py, snapshot, request)
}

/// The usual export of a table: there is nothing to order, to move or to copy.
#[inline(always)]
fn on_cpu(
    x: &Bound<'_, PyAny>,
    managed: Managed<DLManagedTensorVersioned>,
    kind: Option<&torch::Kind>,
) -> PyResult<Snapshot> {
    let Some(kind) = kind else {
        return Ok(Snapshot::import(managed, None).map_err(|(error, _)| error)?);
    };
    let snapshot = match kind.is_plain() {
        true => Snapshot::import_trusted(managed),
        false => Snapshot::import(managed, None),
    };
    let snapshot = snapshot.map_err(|(error, _)| error)?;
    kind.check_table(x, snapshot.memo().dtype)?;
    Ok(snapshot)
}

/// What is known of a tensor from a table that is waited for when it is copied.
fn in_no_order(
    table: Table,
    here: DLDevice,
    request: &Request<'_, '_>,
    py: Python<'_>,
) -> PyResult<Option<Work>> {
    let Some(work_stream) = table.work_stream else {
        return Ok(None);
    };
    stream::note_producer(work_stream, here);
    release::sweep();
    Ok(Some(Work {
        ready: Ready::Now,
        used: None,
        release: request.release,
        producer: Some(Producer {
            library: Library::Table(work_stream),
            then: Stream::of_table(work_stream.get(py, here)?, here),
        }),
        ..Work::default()
    }))
}

/// The order of a tensor that comes from a table, by one event from the stream that its library works on to
/// the one that was asked for; `None` if dlx cannot, for want of a driver, though its producer may.
fn order(
    table: Table,
    here: DLDevice,
    request: &Request<'_, '_>,
    py: Python<'_>,
) -> PyResult<Option<Work>> {
    let wanted = request.wanted(here)?;
    let Some(work_stream) = table.work_stream else {
        return Ok(None);
    };
    stream::note_producer(work_stream, here);
    let producer = Producer {
        library: Library::Table(work_stream),
        then: Stream::of_table(work_stream.get(py, here)?, here),
    };
    match request.order(wanted, producer) {
        Ok(work) => Ok(Some(work)),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Rung 4 for an object that has a table; `error` says why the table will not do, if it has nothing else.
fn instead_of_table(
    x: &Bound<'_, PyAny>,
    kind: Option<torch::Kind>,
    entry: &Entry,
    request: &Request<'_, '_>,
    error: impl FnOnce() -> PyErr,
) -> PyResult<Snapshot> {
    from_protocol(x, kind, entry, request)?.ok_or_else(error)
}

/// Rung 3: a NumPy array from its struct, which dlx moves where it is wanted on another device.
fn from_numpy(x: &Bound<'_, PyAny>, request: &Request<'_, '_>) -> PyResult<Snapshot> {
    request.wanted(request.device.unwrap_or(device::CPU))?;
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

/// Whether `from_dlpack` has a way for objects like `x`, though it may fail.
pub(crate) fn is_accepted(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let way = cache::with(x, |entry| entry.way(x))?;
    Ok(!matches!(way, Way::Protocol(_) | Way::Undecided)
        || x.is_instance_of::<PyCapsule>()
        || x.hasattr(intern!(x.py(), "__dlpack__"))?
        || adapters::is_known(x)?)
}

/// Names the class and the hook where what it gave is nothing that `from_dlpack` takes.
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
        let how = match Slot::of_class(&class)?.and_then(Slot::holder) {
            Some(holder) => holder.origin.describe(py),
            None => Origin::of(&class)?.describe(py),
        };
        let (class, kind) = (type_name(&class), type_name(&inner.get_type()));
        Ok::<_, PyErr>(Some(format!(
            "{class}{how} {kind}; what dlx.from_dlpack takes is accepted"
        )))
    };
    match found() {
        Ok(Some(message)) => {
            let explained = PyTypeError::new_err(message);
            explained.set_cause(py, Some(error));
            explained
        }
        _ => error,
    }
}
