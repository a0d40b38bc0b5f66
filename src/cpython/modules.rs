//! `sys.modules`: libraries that have been imported, which dlx never imports by itself.

#![forbid(unsafe_code)]

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};

/// The modules that have been imported.
#[inline(always)]
fn modules(py: Python<'_>) -> PyResult<&Bound<'_, PyDict>> {
    static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    // To import `sys` for it each time takes longer than many an export.
    let modules = MODULES.get_or_try_init(py, || {
        let modules = py.import("sys")?.getattr("modules")?;
        Ok::<_, PyErr>(modules.cast_into::<PyDict>()?.unbind())
    })?;
    Ok(modules.bind(py))
}

/// Whether the module of this name has been imported.
#[inline(always)]
pub(crate) fn is_loaded(name: &Bound<'_, PyString>) -> PyResult<bool> {
    modules(name.py())?.contains(name)
}

/// The module of this name, if it has been imported.
pub(crate) fn loaded<'py>(name: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>> {
    modules(name.py())?.get_item(name)
}
