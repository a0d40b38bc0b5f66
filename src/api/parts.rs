//! Iteration over a tensor: its parts along the first dimension.

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;

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
