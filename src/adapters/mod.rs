//! Producers that need their own reading, one file each.

pub(crate) mod numpy;
pub(crate) mod torch;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// The module of this name, if it has been imported.
fn loaded<'py>(name: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = name.py();
    let modules = py.import("sys")?.getattr(intern!(py, "modules"))?;
    Ok(modules.get_item(name).ok())
}
