//! Producers that need their own reading, and protocols other than DLPack's, one file each.

mod array_interface;
mod arrow;
mod buffer;
pub(crate) mod numpy;
pub(crate) mod oneapi;
pub(crate) mod torch;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::snapshot::Snapshot;

type Reader = fn(&Bound<'_, PyAny>) -> PyResult<Option<Snapshot>>;

/// Rung 5: what `x` says of itself by a protocol that is not DLPack's; `None` if it has none of them.
///
/// The first that `x` has is the one that counts, in NumPy's order: the buffer protocol, `__array_struct__`,
/// `__array_interface__`; then Arrow's.
pub(crate) fn snapshot(x: &Bound<'_, PyAny>) -> PyResult<Option<Snapshot>> {
    // The buffer of a `numpy.datetime64` is a row of bytes, and does not say of what.
    let buffer = (!numpy::is_time(x)?).then_some(buffer::snapshot as Reader);
    let others: [Reader; 3] = [
        array_interface::from_struct,
        array_interface::from_dict,
        arrow::snapshot,
    ];
    for read in buffer.into_iter().chain(others) {
        if let Some(snapshot) = read(x)? {
            return Ok(Some(snapshot));
        }
    }
    Ok(None)
}

/// The module of this name, if it has been imported.
fn loaded<'py>(name: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = name.py();
    let modules = py.import("sys")?.getattr(intern!(py, "modules"))?;
    Ok(modules.get_item(name).ok())
}
