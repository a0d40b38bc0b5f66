//! A tensor as a sequence: its parts along the first dimension, and that they are compared with nothing.

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyList, PyTuple};

use crate::cpython::modules::python;
use crate::cpython::once::intern;
use crate::tensor::managed::MAYBE_READ_ONLY;
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;

/// Extent of the first dimension, which is not negative.
pub(super) fn first_extent(snapshot: &Snapshot) -> PyResult<i64> {
    let extent = snapshot.shape().first().copied();
    extent.ok_or_else(|| PyTypeError::new_err("the tensor has no dimensions, so no length"))
}

/// The parts of a tensor along its first dimension, in turn: CPython's iterator over what has a length and items.
pub(super) fn iterator<'py>(tensor: &Bound<'py, Tensor>) -> PyResult<Bound<'py, PyAny>> {
    first_extent(tensor.get().snapshot()?)?;
    // SAFETY: attached, with a live object.
    let made = unsafe { ffi::PySeqIter_New(tensor.as_ptr()) };
    // SAFETY: a new reference, or NULL with an exception.
    unsafe { Bound::from_owned_ptr_or_err(tensor.py(), made) }
}

/// By identity with other tensors of dlx, so that lists find them; else what `x` makes of it.
///
/// # Errors
///
/// `TypeError` for numbers, sequences and other tensors, which are expected to be compared with the elements.
pub(super) fn compared(tensor: &Bound<'_, Tensor>, x: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    let py = tensor.py();
    // NumPy's own compare the elements.
    let is_free = x.is_instance_of::<Tensor>()
        || x.hasattr(intern!(py, "__array_ufunc__"))?
        || x.hasattr(intern!(py, "__array_struct__"))?;
    let is_list = x.is_instance_of::<PyList>() || x.is_instance_of::<PyTuple>();
    let is_number = x.is_instance_of::<PyComplex>() || x.hasattr(intern!(py, "__float__"))?;
    if !is_free && (is_list || is_number || x.hasattr(intern!(py, "__dlpack__"))?) {
        return Err(PyTypeError::new_err(
            "a dlx.Tensor compares no elements; use np.asarray(t) or another library's array",
        ));
    }
    Ok(py.NotImplemented())
}

/// One line, with some elements of memory on the CPU that something keeps.
pub(super) fn shown<'py>(tensor: &Bound<'py, Tensor>) -> PyResult<Bound<'py, PyAny>> {
    let of = tensor.get();
    let snapshot = of.described();
    let (is_maybe, is_kept) = (snapshot.has(MAYBE_READ_ONLY), snapshot.is_kept());
    let said = (tensor, is_maybe, is_kept, of.current().is_none());
    python(tensor.py(), "dlx._containers.shown", "shown", said)
}
