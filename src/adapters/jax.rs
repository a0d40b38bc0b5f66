//! JAX's arrays on the CPU, by their Python buffer: it waits for the elements, holds the memory as `__dlpack__` does, and
//! takes a fifth of the time.

#![forbid(unsafe_code)]

use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::adapters::buffer;
use crate::cpython::modules::loaded_class;
use crate::tensor::managed::MAYBE_READ_ONLY;
use crate::tensor::snapshot::Snapshot;

/// Whether `class` is that of JAX's concrete arrays; tracers are of others. Does not import JAX.
pub(crate) fn is_array_class(class: &Bound<'_, PyType>) -> PyResult<bool> {
    let py = class.py();
    let own = loaded_class(intern!(py, "jaxlib._jax"), intern!(py, "ArrayImpl"))?;
    Ok(own.is_some_and(|own| own.is(class)))
}

/// The tensor of an array of that class; `None` for what only `__dlpack__` can describe or refuse: bfloat16 and others
/// that a buffer cannot name, and arrays that are deleted, sharded or on another device.
///
/// The buffer says read-only, and `__dlpack__` nothing; both come in as `__dlpack__` has it.
///
/// # Errors
///
/// Exceptions that do not derive from `Exception`, such as `KeyboardInterrupt`.
pub(crate) fn snapshot(x: &Bound<'_, PyAny>) -> PyResult<Option<Snapshot>> {
    match buffer::read(x, MAYBE_READ_ONLY) {
        Ok(snapshot) => Ok(Some(snapshot)),
        Err(error) if error.is_instance_of::<PyException>(x.py()) => Ok(None),
        Err(error) => Err(error),
    }
}
