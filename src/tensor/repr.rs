//! The `repr` of a tensor.

#![forbid(unsafe_code)]

use pyo3::prelude::*;

use crate::cpython::modules::python;
use crate::tensor::managed::MAYBE_READ_ONLY;
use crate::tensor::object::Tensor;

/// One line, with some elements of memory on the CPU that something keeps.
pub(crate) fn of<'py>(tensor: &Bound<'py, Tensor>) -> PyResult<Bound<'py, PyAny>> {
    let (py, snapshot) = (tensor.py(), tensor.get().described());
    let (is_maybe, is_kept) = (snapshot.has(MAYBE_READ_ONLY), snapshot.is_kept());
    let said = (tensor, is_maybe, is_kept, tensor.get().current().is_none());
    python(py, "dlx._containers.shown", "shown", said)
}
