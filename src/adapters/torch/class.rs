//! `torch.Tensor`, and what is derived from it.

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::cpython::lookup::is_static;
use crate::cpython::modules::loaded;

static TENSOR: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// `torch.Tensor`, if torch has been imported.
#[inline(always)]
pub(super) fn tensor_class(py: Python<'_>) -> PyResult<Option<&Bound<'_, PyType>>> {
    match TENSOR.get(py) {
        Some(tensor) => Ok(Some(tensor.bind(py))),
        None => find_tensor_class(py),
    }
}

/// It is believed to be that, whatever `sys.modules` says later, once it is derived from a class that Python code cannot
/// have made.
#[inline(never)]
fn find_tensor_class(py: Python<'_>) -> PyResult<Option<&Bound<'_, PyType>>> {
    if let Some(torch) = loaded(intern!(py, "torch"))?
        && let Some(tensor) = torch.getattr_opt(intern!(py, "Tensor"))?
        // Whatever stands in for torch in `sys.modules` need not have a class there.
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

/// Whether objects of `class` begin as those of `base` do, whatever their metaclasses say.
pub(super) fn is_subtype(class: *mut ffi::PyTypeObject, base: *mut ffi::PyTypeObject) -> bool {
    // SAFETY: two live types; their bases are read, nothing is called.
    unsafe { ffi::PyType_IsSubtype(class, base) != 0 }
}
