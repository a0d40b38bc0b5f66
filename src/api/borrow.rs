//! Tensors lent for a `with` block: `dlx.borrow` for kernel arguments (N0), `Tensor.use` for a tensor that dlx holds.
//!
//! On entry the block's stream waits for the streams of the tensors; on exit they wait for it (H1, H2). Equal streams
//! need no wait.

#![forbid(unsafe_code)]

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::api::accepted::Accepted;
use crate::api::loan::Loan;
use crate::api::writing;
use crate::stream::{self, PyStream};
use crate::tensor::object::Tensor;
use crate::types::device;
use crate::types::error::with_note;

/// ``with dlx.borrow(a, b, out=c, stream=None) as (ta, tb, tc, s):`` lends tensors of any library to a kernel.
///
/// ``ta``, ``tb`` and ``tc`` are `Tensor` views that are valid in the block. ``out`` is a writable tensor or a sequence
/// of them. ``s`` is the `Stream` to launch on: ``stream`` if given, else the current stream of the library of the first
/// tensor on a device with streams; None if there is no such tensor, and with ``stream=-1``, which orders nothing. It
/// belongs to that tensor's device; other tensors may be elsewhere. ``s`` waits for the tensors' streams on entry, and
/// they wait for ``s`` on exit, also when the body raises; equal streams need no wait.
///
/// ``dtype``, ``contiguous`` and ``align`` say what the kernel accepts: a dtype for all tensors, or a list of one for each
/// (None for any), ``out`` last; row-major elements without gaps; an address that is a multiple of ``align`` bytes, by
/// default of the element size of a named dtype. All other tensors are refused before the block begins.
///
/// Tensors that require grad are accepted where they are read, because a kernel records no gradients; as ``out`` only
/// under ``torch.no_grad()`` or Paddle's. A library that cannot name its stream (it has neither a table nor
/// ``__cuda_array_interface__``) is asked to make ``s`` wait; its own stream does not wait for ``s``.
///
/// Raises ``BufferError`` for tensors that cannot be lent or are not accepted, for an ``out`` that is read-only, repeats
/// elements or is not known to be writable, and for waits that would invalidate a graph capture. Arrays of JAX, MLX and
/// TensorFlow are immutable; where an unversioned capsule does not tell, the buffer protocol and the array interfaces
/// decide. Source: dlpack.h.
///
///     >>> import numpy as np
///     >>> a, b = np.ones(3), np.zeros(3)
///     >>> with dlx.borrow(a, out=b, dtype="float64") as (ta, tb, stream):
///     ...     print(ta.data_ptr == a.ctypes.data, tb.readonly, stream)
///     True False None
#[pyclass(frozen, name = "borrow", module = "dlx")]
pub(crate) struct Borrow {
    tensors: Py<PyTuple>,
    out: Vec<Py<PyAny>>,
    /// Whether `out` was given as a sequence.
    has_outs: bool,
    /// Whether this is a use of one tensor.
    is_use: bool,
    stream: Option<Py<PyAny>>,
    accepted: Option<Box<Accepted>>,
    /// While the block is entered.
    loan: Mutex<Option<Loan>>,
}

impl Borrow {
    /// What `Tensor.use` returns: its block gets a view of the tensor alone.
    pub(crate) fn of_use(tensor: &Bound<'_, Tensor>, stream: Option<Py<PyAny>>) -> PyResult<Self> {
        Ok(Self {
            tensors: PyTuple::new(tensor.py(), [tensor])?.unbind(),
            out: Vec::new(),
            has_outs: false,
            is_use: true,
            stream,
            accepted: None,
            loan: Mutex::default(),
        })
    }

    /// Lends the tensors, and returns what the block gets.
    #[inline(always)]
    fn begin<'py>(&self, py: Python<'py>, loan: &mut Loan) -> PyResult<Bound<'py, PyAny>> {
        let tensors = self.tensors.bind(py);
        let read = tensors.len();
        let wanted = self.stream.as_ref().map(|stream| stream.bind(py));
        let mut device = device::CPU;
        for index in 0..read + self.out.len() {
            let (x, written) = match index.checked_sub(read) {
                None => (tensors.get_borrowed_item(index)?, None),
                Some(at) => (self.out[at].bind_borrowed(py), Some("out")),
            };
            let accepted = self.accepted.as_deref().map(|accepted| (accepted, index));
            let lent = loan.lend(&x, wanted, written, accepted);
            device = lent.map_err(|error| self.noted(error, index, py))?;
        }
        if loan.needs_no_stream() {
            stream::wanted(wanted, device)?;
        }
        loan.join(py)?;
        if let Some(view) = loan.view(0).filter(|_| self.is_use) {
            return Ok(view.bind(py).clone().into_any());
        }
        let stream = match loan.stream() {
            Some(stream) => Bound::new(py, PyStream(stream.clone()))?.into_any(),
            None => py.None().into_bound(py),
        };
        Ok(loan.views(stream)?.into_any())
    }

    /// `error`, with a note that names the tensor which caused it, if there may be several: by its index in `tensors`, then
    /// in `out`.
    #[cold]
    fn noted(&self, error: PyErr, index: usize, py: Python<'_>) -> PyErr {
        let place = match index.checked_sub(self.tensors.bind(py).len()) {
            None => format!("argument {index} of dlx.borrow"),
            Some(index) if self.has_outs => format!("argument out[{index}] of dlx.borrow"),
            Some(_) => "argument out of dlx.borrow".to_owned(),
        };
        match self.is_use {
            true => error,
            false => with_note(py, error, &place),
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
            tensors: tensors.clone().unbind(),
            out,
            has_outs,
            is_use: false,
            stream,
            accepted: Accepted::of(dtype, contiguous, align, count)?,
            loan: Mutex::default(),
        })
    }

    /// The tensors may refer back to this object. There is no `__clear__`: this object never changes, so another object
    /// closed the cycle, and that one breaks it.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for object in self.out.iter().chain(&self.stream) {
            visit.call(object)?;
        }
        visit.call(&self.tensors)
    }

    /// The views, and the stream to launch on.
    fn __enter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut loan = Loan::of(self.tensors.bind(py).len() + self.out.len());
        let begun = self.begin(py, &mut loan);
        let mut place = self.loan.lock().unwrap_or_else(PoisonError::into_inner);
        if begun.is_ok() && place.is_none() {
            *place = Some(loan);
            return begun;
        }
        drop(place);
        // Streams that have joined a capture must be joined back, or the capture could not end.
        let ended = loan.end(py);
        begun?;
        ended.and(Err(PyRuntimeError::new_err(
            "the block has been entered already",
        )))
    }

    /// Ends the loan: the streams of the tensors wait for that of the block.
    #[pyo3(signature = (_kind=None, _error=None, _traceback=None, /), text_signature = "($self, kind=None, error=None, traceback=None, /)")]
    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: Option<&Bound<'_, PyAny>>,
        _error: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let loan = (self.loan.lock().unwrap_or_else(PoisonError::into_inner)).take();
        let Some(loan) = loan else {
            return Err(PyRuntimeError::new_err("the block has not been entered"));
        };
        let read = self.tensors.bind(py).len();
        let mut told = Ok(());
        for (at, x) in self.out.iter().enumerate() {
            // Tell all of them, even if one fails.
            told = told.and(writing::tell(x.bind(py), loan.lent(read + at)));
        }
        loan.end(py).and(told)
    }
}
