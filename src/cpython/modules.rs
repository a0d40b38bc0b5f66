//! `sys.modules`: the libraries that are already imported. dlx never imports one itself.

#![forbid(unsafe_code)]

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};

use crate::cpython::once::Once;

/// `sys.modules`.
#[inline(always)]
fn modules(py: Python<'_>) -> PyResult<&Bound<'_, PyDict>> {
    static MODULES: Once<Py<PyDict>> = Once::new();
    // Importing `sys` every time would take longer than many exports.
    let modules = MODULES.get_or_try_init(py, || {
        let modules = py.import("sys")?.getattr("modules")?;
        Ok::<_, PyErr>(modules.cast_into::<PyDict>()?.unbind())
    })?;
    Ok(modules.bind(py))
}

/// What a function of dlx's own Python code answers.
#[cold]
pub(crate) fn python<'py>(
    py: Python<'py>,
    module: &str,
    function: &str,
    arguments: impl PyCallArgs<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    py.import(module)?.call_method1(function, arguments)
}

/// This module, if it has been imported.
pub(crate) fn loaded<'py>(name: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>> {
    modules(name.py())?.get_item(name)
}

/// The class of this name in a module, if the module has been imported.
pub(crate) fn loaded_class<'py>(
    module: &Bound<'py, PyString>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyType>>> {
    let Some(module) = loaded(module)? else {
        return Ok(None);
    };
    // A stand-in for the module in `sys.modules` need not have a class there.
    let class = module.getattr_opt(name)?;
    Ok(class.and_then(|class| class.cast_into().ok()))
}
