//! Iteration over a tensor: its parts along the first dimension.

#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;

/// Extent of the first dimension, which is not negative.
pub(super) fn first_extent(snapshot: &Snapshot) -> PyResult<i64> {
    let extent = snapshot.shape().first().copied();
    extent.ok_or_else(|| PyTypeError::new_err("the tensor has no dimensions, so no length"))
}

/// The parts of a tensor along its first dimension, in turn.
#[pyclass(frozen, module = "dlx._core")]
pub(crate) struct Parts {
    tensor: Py<Tensor>,
    left: Mutex<Range<i64>>,
}

impl Parts {
    pub(super) fn of(tensor: &Bound<'_, Tensor>) -> PyResult<Self> {
        Ok(Self {
            tensor: tensor.clone().unbind(),
            left: Mutex::new(0..first_extent(tensor.get().snapshot()?)?),
        })
    }

    fn left(&self) -> MutexGuard<'_, Range<i64>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Parts {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Tensor>>> {
        let Some(index) = self.left().next() else {
            return Ok(None);
        };
        let tensor = self.tensor.bind(py);
        let whole = tensor.get().snapshot()?;
        // There is a first dimension, or there would be no iterator.
        let (shape, strides) = (&whole.shape()[1..], whole.strides());
        let part = whole.part(index * strides[0], shape, &strides[1..])?;
        Tensor::part(tensor, part).map(Some)
    }

    fn __length_hint__(&self) -> usize {
        self.left().clone().count()
    }

    /// The tensor may hold an object that refers back to this one.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.tensor)
    }
}
