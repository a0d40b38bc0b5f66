//! Tensors lent for a `with` block: `dlx.borrow` for kernel arguments (N0), `Tensor.use` for a tensor that dlx holds.
//!
//! On entry the block's stream waits for the streams of the tensors; on exit they wait for it (H1, H2). Equal streams
//! need no wait.

#![forbid(unsafe_code)]

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::api::accepted::Accepted;
use crate::api::loan::Entered;
use crate::api::writing;
use crate::cpython::once::intern;
use crate::stream;
use crate::stream::PyStream;
use crate::tensor::object::Tensor;
use crate::types::device;

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
    stream: Option<Py<PyAny>>,
    accepted: Option<Box<Accepted>>,
    entered: Entered,
}

impl Borrow {
    /// `error`, with a note that names the tensor which caused it: by its index in `tensors`, then in `out`.
    #[cold]
    fn noted(&self, error: PyErr, index: usize, py: Python<'_>) -> PyErr {
        let place = match index.checked_sub(self.tensors.bind(py).len()) {
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
            tensors: tensors.clone().unbind(),
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
        for object in self.out.iter().chain(&self.stream) {
            visit.call(object)?;
        }
        visit.call(&self.tensors)
    }

    /// The views, and the stream to launch on.
    fn __enter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let tensors = self.tensors.bind(py);
        let count = tensors.len();
        self.entered.enter(py, count + self.out.len(), |loan| {
            let wanted = self.stream.as_ref().map(|stream| stream.bind(py));
            let accepted = |index| self.accepted.as_deref().map(|accepted| (accepted, index));
            for x in tensors.iter_borrowed() {
                if let Err(error) = loan.lend(&x, wanted, None, accepted(loan.count())) {
                    return Err(self.noted(error, loan.count(), py));
                }
            }
            for x in &self.out {
                let accepted = accepted(loan.count());
                if let Err(error) = loan.lend(x.bind(py), wanted, Some("out"), accepted) {
                    return Err(self.noted(error, loan.count(), py));
                }
            }
            if loan.needs_no_stream() {
                stream::wanted(wanted, device::CPU)?;
            }
            loan.join(py)?;
            let stream = match loan.stream() {
                Some(stream) => Bound::new(py, PyStream::new(stream.clone()))?.into_any(),
                None => py.None().into_bound(py),
            };
            Ok(loan.views(stream)?.into_any())
        })
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
        self.entered.exit(py, |loan| {
            let place = |at| self.tensors.bind(py).len() + at;
            let mut told = Ok(());
            for (at, x) in self.out.iter().enumerate() {
                // Tell all of them, even if one fails.
                let lent = || Some(loan.view(place(at))?.get().described());
                told = told.and(writing::tell(x.bind(py), lent));
            }
            told
        })
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
        self.entered.enter(py, 1, |loan| {
            let wanted = self.stream.as_ref().map(|stream| stream.bind(py));
            let tensor = self.tensor.bind(py);
            let device = tensor.get().snapshot()?.meta().device;
            if !stream::has_streams(device) {
                stream::wanted(wanted, device)?;
            }
            loan.lend(tensor.as_any(), wanted, None, None)?;
            loan.join(py)?;
            match loan.view(0) {
                Some(view) => Ok(view.bind(py).clone().into_any()),
                None => Ok(py.None().into_bound(py)),
            }
        })
    }

    /// Makes the tensor's own stream wait for the other.
    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.entered.exit(py, |_| Ok(()))
    }
}
