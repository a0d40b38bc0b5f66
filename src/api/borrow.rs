//! Tensors lent for a `with` block: `dlx.borrow` for kernel arguments (N0), `Tensor.use` for a tensor that dlx holds.
//!
//! On entry the block's stream waits for the streams of the tensors; on exit they wait for it (H1, H2). Equal streams
//! need no wait.

#![forbid(unsafe_code)]

use std::mem::take;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::api::accepted::Accepted;
use crate::api::lent::{Lent, lend};
use crate::api::writing;
use crate::stream;
use crate::stream::end::End;
use crate::stream::order;
use crate::stream::order::{Joined, Waits};
use crate::stream::{PyStream, Stream, Wanted};
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;
use crate::types::device;
use crate::types::error::Error;

/// The tensors lent for a block, and the stream that uses them; `None` if nothing has to be ordered.
#[derive(Default)]
struct Loan {
    stream: Option<Stream>,
    lent: Vec<Lent>,
    views: Vec<Py<Tensor>>,
    /// Whether the block's stream has been made to wait, so that others must wait for it at the end.
    is_joined: bool,
}

impl Loan {
    /// Lends `x`, and takes the stream of the first tensor on a device with streams, unless one is `wanted`.
    fn lend(
        &mut self,
        x: &Bound<'_, PyAny>,
        wanted: Option<&Bound<'_, PyAny>>,
        writable: bool,
        check: impl FnOnce(usize, &Snapshot) -> PyResult<()>,
    ) -> PyResult<()> {
        let mut lent = lend(x, self.stream.as_ref(), wanted)?;
        if writable {
            lent.snapshot = writing::writable(x, lent.snapshot)?;
        }
        check(self.lent.len(), &lent.snapshot)?;
        if self.stream.is_none() && stream::has_streams(lent.device()) {
            self.stream = stream_of(&lent, wanted, x.py())?;
        }
        self.lent.push(lent);
        Ok(())
    }

    /// Makes the block's stream wait for the tensors, and returns their views.
    fn join<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<Bound<'py, Tensor>>> {
        if let Some(stream) = &self.stream {
            let mut waits = Waits::default();
            for lent in &mut self.lent {
                lent.collect(py, &mut waits)?;
            }
            let joined = order::all(stream, &waits, Joined::Back);
            // A refusal comes before the first wait, so nothing is joined; an error of the driver may come after one.
            self.is_joined = matches!(joined, Ok(_) | Err(Error::Driver(_)));
            if joined.is_err() {
                self.lent.iter_mut().for_each(Lent::uncover);
            }
            joined?;
        }
        let stream = self.stream.as_ref();
        let ordered = |lent: &Lent| stream.filter(|_| stream::has_streams(lent.device()));
        let snapshot = |lent| match ordered(lent) {
            Some(stream) => lent.view(stream),
            None => Ok(lent.snapshot.clone()),
        };
        let snapshots: Result<Vec<_>, _> = self.lent.iter().map(snapshot).collect();
        let snapshots = snapshots?;
        // Other tensors go now: the garbage collector looks only into those that alone hold their memory.
        self.lent.retain(|lent| ordered(lent).is_some());
        let mut views = Vec::with_capacity(snapshots.len());
        for snapshot in snapshots {
            // The borrower may keep the view.
            let view = Tensor::holding(py, snapshot)?;
            self.views.push(view.clone().unbind());
            views.push(view);
        }
        Ok(views)
    }

    /// Ends the views, and makes the streams of the tensors wait for that of the block.
    fn end(&mut self, py: Python<'_>) -> PyResult<()> {
        for view in take(&mut self.views) {
            view.get().end();
        }
        let lent = take(&mut self.lent);
        match self.stream.take() {
            Some(stream) if self.is_joined => join_back(py, &lent, &stream),
            _ => Ok(()),
        }
    }
}

/// The stream of a block: the one `wanted`, or else that of the first tensor on a device with streams.
fn stream_of(
    first: &Lent,
    wanted: Option<&Bound<'_, PyAny>>,
    py: Python<'_>,
) -> PyResult<Option<Stream>> {
    let device = first.device();
    Ok(match stream::wanted(wanted, device)? {
        Wanted::NoOrder => None,
        // The tensor's own stream belongs to its device, so there is nothing to check.
        Wanted::Stream(stream) if first.stream(py)?.is(&stream) => Some(stream.verified()),
        Wanted::Stream(stream) => Some(stream::check_device(stream, device)?),
        Wanted::Unset => Some(first.stream(py)?),
    })
}

/// Makes the streams of the tensors wait for that of the block, by one event.
fn join_back(py: Python<'_>, lent: &[Lent], stream: &Stream) -> PyResult<()> {
    let mut back = Waits::default();
    let mut result = Ok(());
    let mut has_changed = false;
    for lent in lent {
        // Join every tensor, even if another one fails.
        match lent.collect_back(py, &mut back) {
            Ok(changed) => has_changed |= changed,
            Err(error) => result = result.and(Err(error)),
        }
    }
    let (point, joined) = order::back(&back, stream);
    result = result.and(joined.map_err(PyErr::from));
    // A stream that could not be joined back does not wait for the kernel, so the tensor has to remember it.
    let is_lost = result.is_err();
    let remembers = || lent.iter().filter(|lent| is_lost || lent.remembers());
    if remembers().next().is_some()
        && let Some(end) = point.map(End::Point).or_else(|| End::of(stream))
    {
        remembers().for_each(|lent| lent.add_use(&end));
    }
    if has_changed {
        result = result.and(order::finish(stream).map_err(PyErr::from));
    }
    result
}

/// The loan of a block, while it is entered.
#[derive(Default)]
struct Entered(Mutex<Option<Loan>>);

impl Entered {
    fn enter<'py>(
        &self,
        py: Python<'py>,
        body: impl FnOnce(&mut Loan) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut loan = Loan::default();
        let entered = body(&mut loan);
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entered.is_ok() && place.is_none() {
            *place = Some(loan);
            return entered;
        }
        drop(place);
        // Streams that have joined a capture must be joined back, or the capture could not end.
        let ended = loan.end(py);
        entered?;
        ended.and(Err(PyRuntimeError::new_err(
            "the block has been entered already",
        )))
    }

    fn exit(&self, py: Python<'_>) -> PyResult<()> {
        let loan = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        match loan {
            Some(mut loan) => loan.end(py),
            None => Err(PyRuntimeError::new_err("the block has not been entered")),
        }
    }
}

/// ``with dlx.borrow(a, b, out=c, stream=None) as (ta, tb, tc, s):`` lends tensors of any library to a kernel.
///
/// ``ta``, ``tb`` and ``tc`` are `Tensor` views that are valid in the block. ``out`` is a writable tensor or a sequence
/// of them. ``s`` is the `Stream` to launch on: ``stream`` if given, else the current stream of the library of the first
/// tensor on a device with streams; None if there is no such tensor, and with ``stream=-1``, which orders nothing. It
/// belongs to that tensor's device; other tensors may be elsewhere. ``s`` waits for the tensors' streams on entry, and
/// they wait for ``s`` on exit, also when the body raises; equal streams need no wait.
///
/// ``dtype``, ``contiguous`` and ``align`` say what the kernel accepts: a dtype for all tensors, or a list of one for each
/// (None for any), ``out`` last; row-major elements without gaps; an address that is a multiple of ``align`` bytes. All
/// other tensors are refused before the block begins.
///
/// torch tensors that require grad are accepted, because a kernel records no gradients. A library that cannot name its
/// stream (it has neither a table nor ``__cuda_array_interface__``) is asked to make ``s`` wait; its own stream does
/// not wait for ``s``.
///
/// Raises ``BufferError`` for tensors that cannot be lent or are not accepted, for an ``out`` that is read-only, repeats elements or is not
/// known to be writable, and for waits that would invalidate a graph capture. Arrays of JAX, MLX and TensorFlow are
/// immutable; where an unversioned capsule does not tell, the buffer protocol and the array interfaces decide. Sources:
/// dlpack.h (N0), R122, R143, H1, H2.
#[pyclass(frozen, name = "borrow", module = "dlx")]
pub(crate) struct Borrow {
    tensors: Vec<Py<PyAny>>,
    out: Vec<Py<PyAny>>,
    /// Whether `out` was given as a sequence.
    has_outs: bool,
    stream: Option<Py<PyAny>>,
    accepted: Option<Box<Accepted>>,
    entered: Entered,
}

impl Borrow {
    /// Refuses a tensor that the kernel does not accept.
    #[inline(always)]
    fn check(&self, index: usize, snapshot: &Snapshot) -> PyResult<()> {
        match &self.accepted {
            Some(accepted) => Ok(accepted.check(index, snapshot, index >= self.tensors.len())?),
            None => Ok(()),
        }
    }

    /// `error`, with a note that names the tensor which caused it: by its index in `tensors`, then in `out`.
    #[cold]
    fn noted(&self, error: PyErr, index: usize, py: Python<'_>) -> PyErr {
        let place = match index.checked_sub(self.tensors.len()) {
            None => format!("argument {index} of dlx.borrow"),
            Some(index) if self.has_outs => format!("argument out[{index}] of dlx.borrow"),
            Some(_) => "argument out of dlx.borrow".to_owned(),
        };
        match error
            .value(py)
            .call_method1(intern!(py, "add_note"), (place,))
        {
            Ok(_) => error,
            Err(other) => other,
        }
    }
}

#[pymethods]
impl Borrow {
    #[new]
    #[pyo3(signature = (*tensors, out=None, stream=None, dtype=None, contiguous=false, align=None))]
    fn new(
        tensors: &Bound<'_, PyTuple>,
        out: Option<&Bound<'_, PyAny>>,
        stream: Option<Py<PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        contiguous: bool,
        align: Option<i64>,
    ) -> PyResult<Self> {
        let is_sequence = |out: &&Bound<'_, PyAny>| {
            out.is_instance_of::<PyTuple>() || out.is_instance_of::<PyList>()
        };
        let has_outs = out.as_ref().is_some_and(is_sequence);
        let out = match out {
            None => Vec::new(),
            Some(out) if has_outs => out.extract()?,
            Some(out) => vec![out.clone().unbind()],
        };
        let count = tensors.len() + out.len();
        Ok(Self {
            tensors: tensors.extract()?,
            out,
            has_outs,
            stream,
            accepted: Accepted::of(dtype, contiguous, align, count)?,
            entered: Entered::default(),
        })
    }

    /// The tensors may refer back to this object. There is no `__clear__`: this object never changes, so another object
    /// closed the cycle, and that one breaks it.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for object in self.tensors.iter().chain(&self.out).chain(&self.stream) {
            visit.call(object)?;
        }
        Ok(())
    }

    /// The views, and the stream to launch on.
    fn __enter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.entered.enter(py, |block| {
            let wanted = self.stream.as_ref().map(|stream| stream.bind(py));
            let writable = (0..).map(|index| index >= self.tensors.len());
            for (x, writable) in self.tensors.iter().chain(&self.out).zip(writable) {
                if let Err(error) = block.lend(x.bind(py), wanted, writable, |index, snapshot| {
                    self.check(index, snapshot)
                }) {
                    return Err(self.noted(error, block.lent.len(), py));
                }
            }
            let mut devices = block.lent.iter().map(Lent::device);
            if !devices.any(stream::has_streams) {
                stream::wanted(wanted, device::CPU)?;
            }
            let mut result: Vec<_> = block.join(py)?.into_iter().map(Bound::into_any).collect();
            let stream = block.stream.clone().map(PyStream::new);
            let stream = stream.map(|stream| Bound::new(py, stream)).transpose()?;
            let stream = stream.map_or_else(|| py.None().into_bound(py), Bound::into_any);
            result.push(stream);
            Ok(PyTuple::new(py, result)?.into_any())
        })
    }

    /// Ends the loan: the streams of the tensors wait for that of the block.
    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        let exited = self.entered.exit(py);
        let mut written = self.out.iter();
        exited.and(written.try_for_each(|x| writing::increment_version(x.bind(py))))
    }
}

/// ``with t.use(stream=s) as v:`` uses a `Tensor` on another stream; see `Tensor.use`.
#[pyclass(frozen, name = "Use", module = "dlx._core")]
pub(crate) struct Use {
    tensor: Py<Tensor>,
    stream: Option<Py<PyAny>>,
    entered: Entered,
}

impl Use {
    /// A use of `tensor` on `stream`.
    pub(crate) fn new(tensor: Py<Tensor>, stream: Option<Py<PyAny>>) -> Self {
        Self {
            tensor,
            stream,
            entered: Entered::default(),
        }
    }
}

#[pymethods]
impl Use {
    /// As for [`Borrow`].
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.tensor)?;
        visit.call(&self.stream)
    }

    /// The tensor, on the other stream.
    fn __enter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.entered.enter(py, |block| {
            let wanted = self.stream.as_ref().map(|stream| stream.bind(py));
            let tensor = self.tensor.bind(py);
            let device = tensor.get().snapshot()?.meta().device;
            if !stream::has_streams(device) {
                stream::wanted(wanted, device)?;
            }
            block.lend(tensor.as_any(), wanted, false, |_, _| Ok(()))?;
            let view = block.join(py)?.pop();
            Ok(view.map_or_else(|| py.None().into_bound(py), Bound::into_any))
        })
    }

    /// Makes the tensor's own stream wait for the other.
    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.entered.exit(py)
    }
}
