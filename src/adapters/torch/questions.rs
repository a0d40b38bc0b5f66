//! Queries about a torch tensor: by what torch's own base has, or in Python, out of reach of the tensor's class.

#![forbid(unsafe_code)]

use pyo3::prelude::*;
use pyo3::types::PyString;

use super::{TORCH, base, is_tensor};
use crate::abi::{DLDataType, kDLInt, kDLUInt};
use crate::cpython::call::call_with;
use crate::cpython::modules::python;
use crate::cpython::once::intern;

/// What torch's base has under `name`: what this instance or its class was given does not count.
fn own<'py>(
    tensor: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    let class = tensor.get_type();
    base(&class)?.unwrap_or(&class).getattr(name)
}

/// What the method `name` answers for `tensor`.
pub(super) fn ask<'py>(tensor: &Bound<'py, PyAny>, name: &Bound<'py, PyString>) -> PyResult<bool> {
    call_with(&own(tensor, name)?, &[tensor])?.is_truthy()
}

/// Whether the attribute `name` of `tensor` is true.
pub(super) fn get<'py>(tensor: &Bound<'py, PyAny>, name: &Bound<'py, PyString>) -> PyResult<bool> {
    let get = intern!(tensor.py(), "__get__");
    own(tensor, name)?.call_method1(get, (tensor,))?.is_truthy()
}

/// What `question` of `dlx._libraries.torch` answers for `tensor`, whatever `sys.modules` and its class say.
#[cold]
pub(super) fn ask_python(tensor: &Bound<'_, PyAny>, question: &str) -> PyResult<bool> {
    // Drops what it owns, also in table functions, to which PyO3 may not count the attachment (S20).
    Python::attach(|py| python(py, TORCH, question, (tensor,))?.extract())
}

/// Whether elements are exported as integers of 8 bits.
#[inline(always)]
pub(super) fn is_byte(dtype: DLDataType) -> bool {
    dtype.bits == 8 && matches!(dtype.code, kDLInt | kDLUInt)
}

/// Whether `tensor` is a lazy torch view on the CPU. To say whether such a view is pinned, torch resolves a copy of it,
/// which ends the process if the memory has been released.
pub(crate) fn is_lazy_on_cpu(tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(is_tensor(tensor)? && ask_python(tensor, "is_lazy_on_cpu")?)
}
