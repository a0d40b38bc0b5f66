//! Tensors lent for a `with` block: `dlx.borrow` for kernel arguments (N0), `Tensor.use` for a tensor that dlx holds.
//!
//! On entry the block's stream waits for the streams of the tensors; on exit they wait for it (H1, H2). Equal streams
//! need no wait.

#![forbid(unsafe_code)]

use std::mem::take;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::api::lent::{Lent, lend};
use crate::api::writing;
use crate::stream;
use crate::stream::order::Joined;
use crate::stream::{PyStream, Stream, Wanted};
use crate::tensor::object::Tensor;
use crate::types::device;

/// The tensors lent for a block, and the stream that uses them; `None` if nothing has to be ordered.
#[derive(Default)]
struct Loan {
    stream: Option<Stream>,
    lent: Vec<Lent>,
    views: Vec<Py<Tensor>>,
}

impl Loan {
    /// Lends `x`, ready on the stream of the block, and returns its view.
    fn lend<'py>(
        &mut self,
        x: &Bound<'py, PyAny>,
        wanted: Option<&Bound<'py, PyAny>>,
        writable: bool,
    ) -> PyResult<Bound<'py, Tensor>> {
        let py = x.py();
        let mut lent = lend(x, self.stream.as_ref(), wanted)?;
        let device = lent.snapshot.meta().device;
        if writable {
            lent.snapshot = writing::writable(x, lent.snapshot)?;
        }
        let ordered = stream::has_streams(device)
            && (self.stream.is_some() || self.begin(&lent, wanted, py)?);
        let snapshot = match &self.stream {
            Some(stream) if ordered => {
                lent.order(py, stream, Joined::Back)?;
                let view = lent.view(stream)?;
                self.lent.push(lent);
                view
            }
            _ => lent.snapshot,
        };
        // The borrower may keep the view.
        let view = Tensor::holding(py, snapshot)?;
        self.views.push(view.clone().unbind());
        Ok(view)
    }

    /// Determines the stream of the block from the first tensor on a device with streams; returns whether there is one.
    fn begin(
        &mut self,
        first: &Lent,
        wanted: Option<&Bound<'_, PyAny>>,
        py: Python<'_>,
    ) -> PyResult<bool> {
        let device = first.snapshot.meta().device;
        self.stream = match stream::wanted(wanted, device)? {
            Wanted::NoOrder => None,
            // The tensor's own stream belongs to its device, so there is nothing to check.
            Wanted::Stream(stream) if first.stream(py)?.is(&stream) => Some(stream.verified()),
            Wanted::Stream(stream) => Some(stream::check_device(stream)?),
            Wanted::Unset => Some(first.stream(py)?),
        };
        Ok(self.stream.is_some())
    }

    /// Ends the views, and makes the streams of the tensors wait for that of the block.
    fn end(&mut self, py: Python<'_>) -> PyResult<()> {
        for view in take(&mut self.views) {
            view.get().end();
        }
        let lent = take(&mut self.lent);
        let mut result = Ok(());
        if let Some(stream) = self.stream.take() {
            for lent in &lent {
                // Join every tensor, even if another one fails.
                let joined = lent.join_back(py, &stream);
                result = result.and(joined);
            }
        }
        result
    }
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
        let mut block = Loan::default();
        let entered = body(&mut block);
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entered.is_ok() && place.is_none() {
            *place = Some(block);
            return entered;
        }
        drop(place);
        // Streams that have joined a capture must be joined back, or the capture could not end.
        block.end(py)?;
        entered.and(Err(PyRuntimeError::new_err(
            "the block has been entered already",
        )))
    }

    fn exit(&self, py: Python<'_>) -> PyResult<()> {
        let block = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        match block {
            Some(mut block) => block.end(py),
            None => Err(PyRuntimeError::new_err("the block has not been entered")),
        }
    }
}

/// ``with dlx.borrow(a, b, out=c, stream=None) as (ta, tb, tc, s):`` lends tensors of any library to a kernel.
///
/// ``ta``, ``tb`` and ``tc`` are `Tensor` views that are valid in the block. ``out`` is a writable tensor or a sequence
/// of them. ``s`` is the `Stream` to launch on, None if all tensors are on the CPU: ``stream`` if given, else the
/// current stream of the library of the first tensor on a device. It belongs to that tensor's device; other tensors may
/// be elsewhere. ``s`` waits for the tensors' streams on entry, and they wait for ``s`` on exit, also when the body
/// raises; equal streams need no wait. ``stream=-1`` orders nothing.
///
/// torch tensors that require grad are accepted, because a kernel records no gradients. A library that cannot name its
/// stream (it has neither a table nor ``__cuda_array_interface__``) is asked to make ``s`` wait; its own stream does
/// not wait for ``s``.
///
/// Raises ``BufferError`` for tensors that cannot be lent, for an ``out`` that is read-only, repeats elements or is not
/// known to be writable, and for waits that would invalidate a graph capture. Arrays of JAX, MLX and TensorFlow are
/// immutable; where an unversioned capsule does not tell, the buffer protocol and the array interfaces decide. Sources:
/// dlpack.h (N0), R122, R143, H1, H2.
#[pyclass(frozen, name = "borrow", module = "dlx")]
pub(crate) struct Borrow {
    tensors: Vec<Py<PyAny>>,
    out: Vec<Py<PyAny>>,
    stream: Option<Py<PyAny>>,
    entered: Entered,
}

#[pymethods]
impl Borrow {
    #[new]
    #[pyo3(signature = (*tensors, out=None, stream=None))]
    fn new(
        tensors: &Bound<'_, PyTuple>,
        out: Option<&Bound<'_, PyAny>>,
        stream: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let out = match out {
            None => Vec::new(),
            Some(out) if out.is_instance_of::<PyTuple>() || out.is_instance_of::<PyList>() => {
                out.extract()?
            }
            Some(out) => vec![out.clone().unbind()],
        };
        Ok(Self {
            tensors: tensors.extract()?,
            out,
            stream,
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

    fn __enter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.entered.enter(py, |block| {
            let wanted = self.stream.as_ref().map(|stream| stream.bind(py));
            let mut result = Vec::with_capacity(self.tensors.len() + self.out.len() + 1);
            let writable = (0..).map(|index| index >= self.tensors.len());
            for (x, writable) in self.tensors.iter().chain(&self.out).zip(writable) {
                result.push(block.lend(x.bind(py), wanted, writable)?.into_any());
            }
            let mut views = block.views.iter();
            if !views.any(|view| stream::has_streams(view.get().device())) {
                stream::wanted(wanted, device::CPU)?;
            }
            let stream = block.stream.clone().map(PyStream::new);
            let stream = stream.map(|stream| Bound::new(py, stream)).transpose()?;
            let stream = stream.map_or_else(|| py.None().into_bound(py), Bound::into_any);
            result.push(stream);
            Ok(PyTuple::new(py, result)?.into_any())
        })
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.entered.exit(py)
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

    fn __enter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.entered.enter(py, |block| {
            let wanted = self.stream.as_ref().map(|stream| stream.bind(py));
            let tensor = self.tensor.bind(py);
            let device = tensor.get().snapshot()?.meta().device;
            if !stream::has_streams(device) {
                stream::wanted(wanted, device)?;
            }
            Ok(block.lend(tensor.as_any(), wanted, false)?.into_any())
        })
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.entered.exit(py)
    }
}
