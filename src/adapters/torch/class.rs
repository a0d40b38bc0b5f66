//! `torch.Tensor` and its subclasses.

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::cpython::lookup::is_static;
use crate::cpython::modules::loaded;

static TENSOR: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// `torch.Tensor`, if torch is loaded.
#[inline(always)]
pub(super) fn tensor_class(py: Python<'_>) -> PyResult<Option<&Bound<'_, PyType>>> {
    match TENSOR.get(py) {
        Some(tensor) => Ok(Some(tensor.bind(py))),
        None => find_tensor_class(py),
    }
}

/// Trusted for the life of the process, whatever `sys.modules` says later, if its base is a class that Python code
/// cannot make.
#[inline(never)]
fn find_tensor_class(py: Python<'_>) -> PyResult<Option<&Bound<'_, PyType>>> {
    if let Some(torch) = loaded(intern!(py, "torch"))?
        && let Some(tensor) = torch.getattr_opt(intern!(py, "Tensor"))?
        // A stand-in for torch in `sys.modules` need not have a class there.
        && let Ok(tensor) = tensor.cast_into::<PyType>()
        && let Ok(base) = tensor.getattr(intern!(py, "__base__"))?.cast_into::<PyType>()
        && !base.is(py.get_type::<PyAny>())
        && is_static(&base)
        && tensor.hasattr(intern!(py, "is_neg"))?
        && tensor.hasattr(intern!(py, "is_conj"))?
    {
        TENSOR.get_or_init(py, || tensor.unbind());
    }
    Ok(TENSOR.get(py).map(|tensor| tensor.bind(py)))
}

/// Whether `class` is a subtype of `base`, ignoring metaclasses.
pub(super) fn is_subtype(class: *mut ffi::PyTypeObject, base: *mut ffi::PyTypeObject) -> bool {
    // SAFETY: both types are alive; this reads their bases and calls nothing.
    unsafe { ffi::PyType_IsSubtype(class, base) != 0 }
}
