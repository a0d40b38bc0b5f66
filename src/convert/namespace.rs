//! Namespaces as targets, such as `torch` or `jax.numpy`: the class that their arrays have.

#![forbid(unsafe_code)]

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyModule, PyType};

use crate::cpython::call::{attribute, call_with};
use crate::cpython::once::intern;

/// Whether `to` is a module, or another object with the functions of the array API.
pub(super) fn is_namespace(to: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(to.is_instance_of::<PyModule>()
        || to.hasattr(intern!(to.py(), "__array_namespace_info__"))?)
}

/// Find the array type of a namespace, such as ``torch`` or ``jax.numpy``.
///
/// Raises ``TypeError`` if it has none.
#[pyfunction]
#[pyo3(signature = (namespace, /))]
pub(crate) fn array_type<'py>(namespace: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyType>> {
    let py = namespace.py();
    let names = [
        intern!(py, "Tensor"),
        intern!(py, "ndarray"),
        intern!(py, "Array"),
        intern!(py, "array"),
    ];
    // What is loaded comes first: a lazy namespace is slow to say that it lacks a name.
    let known = attribute(namespace, intern!(py, "__dict__"))?;
    if let Some(Ok(known)) = known.map(Bound::cast_into::<PyDict>) {
        for name in names {
            if let Some(found) = known.get_item(name)?.and_then(class) {
                return Ok(found);
            }
        }
    }
    for name in names {
        if let Some(found) = attribute(namespace, name)?.and_then(class) {
            return Ok(found);
        }
    }
    if let Some(empty) = attribute(namespace, intern!(py, "empty"))?
        && empty.is_callable()
    {
        let zero = 0_u8.into_pyobject(py)?;
        return Ok(call_with(&empty, &[zero.as_any()])?.get_type());
    }
    let name = match attribute(namespace, intern!(py, "__name__"))? {
        Some(name) => name.str()?,
        None => namespace.repr()?,
    };
    // MLX's package has none, unlike those of other libraries.
    let hint = match name.to_str() {
        Ok("mlx") => "pass mlx.core",
        _ => "its constructors may take the NumPy array dlx.convert(x, np.ndarray)",
    };
    Err(PyTypeError::new_err(format!(
        "{name} has no array type; expected one called Tensor, ndarray, Array, array, or a function empty; {hint}"
    )))
}

fn class(found: Bound<'_, PyAny>) -> Option<Bound<'_, PyType>> {
    found.cast_into().ok()
}
