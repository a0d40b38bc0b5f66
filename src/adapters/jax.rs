//! JAX's arrays on the CPU, by their Python buffer: it waits for the elements, holds the memory as `__dlpack__` does, and
//! takes a fifth of the time.
//!
//! dlx asks for row-major elements, without strides: JAX describes no others by a buffer, and to name the strides takes
//! it a fifth of the call. Such a tensor is read-only; of what comes by `__dlpack__`, `adapters::immutable` says so.

#![forbid(unsafe_code)]

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::abi::DLPACK_FLAG_BITMASK_READ_ONLY;
use crate::adapters::buffer;
use crate::cpython::call::attribute;
use crate::cpython::lookup::{has_no_dict, is_in_type, is_method_of_class};
use crate::cpython::modules::loaded_class;
use crate::cpython::once::intern;
use crate::tensor::snapshot::Snapshot;

/// Whether `class` may be that of JAX's arrays. To ask CPython's cache for an attribute takes less than to find a module.
#[inline(always)]
pub(crate) fn may_be_array_class(class: &Bound<'_, PyType>) -> bool {
    let name = intern!(class.py(), "addressable_shards");
    is_in_type(class.as_type_ptr(), name) != Some(false)
}

/// Whether `class` is that of JAX's concrete arrays; tracers are of others. Does not import JAX.
pub(crate) fn is_array_class(class: &Bound<'_, PyType>) -> PyResult<bool> {
    let py = class.py();
    if !may_be_array_class(class) {
        return Ok(false);
    }
    let own = loaded_class(intern!(py, "jaxlib._jax"), intern!(py, "ArrayImpl"))?;
    Ok(own.is_some_and(|own| own.is(class)))
}

/// Whether the arrays of `class`, of which [`is_array_class`] is true, are exported by JAX's own function.
pub(crate) fn exports_itself(class: &Bound<'_, PyType>) -> PyResult<bool> {
    let py = class.py();
    let Some(method) = attribute(class, intern!(py, "__dlpack__"))? else {
        return Ok(false);
    };
    // Not by `__module__`, which `functools.wraps` copies.
    let Some(globals) = attribute(&method, intern!(py, "__globals__"))? else {
        return Ok(false);
    };
    let module = globals.get_item(intern!(py, "__name__"))?;
    Ok(module.extract::<&str>()?.starts_with("jax."))
}

/// `made`, an array of JAX's, on the devices of `x`, of which it is made: DLPack has one CPU, and JAX may have several.
pub(crate) fn beside<'py>(
    made: Bound<'py, PyAny>,
    x: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let name = intern!(py, "sharding");
    let sharding = x.getattr(name)?;
    if made.getattr(name)?.eq(&sharding)? {
        return Ok(made);
    }
    py.import("jax")?
        .call_method1("device_put", (made, sharding))
}

/// Whether `x` is an array of JAX, also a tracer. Does not import JAX.
pub(crate) fn is_array(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    let array = loaded_class(intern!(x.py(), "jax"), intern!(x.py(), "Array"))?;
    Ok(array.is_some_and(|array| x.is_instance(&array).unwrap_or(false)))
}

/// The tensor of an array of that class; `None` for what only `__dlpack__` can describe or refuse: bfloat16 and others
/// that a buffer cannot name, and arrays that are empty, deleted, sharded, on another device or not row-major, or that have
/// a `__dlpack__` of their own.
///
/// It is read-only, as JAX's arrays are; before JAX 0.12 only the buffer said so.
///
/// # Errors
///
/// Exceptions that do not derive from `Exception`, such as `KeyboardInterrupt`.
pub(crate) fn snapshot(x: &Bound<'_, PyAny>) -> PyResult<Option<Snapshot>> {
    if !has_no_dict(x) && is_method_of_class(x, intern!(x.py(), "__dlpack__"))? != Some(true) {
        return Ok(None);
    }
    match buffer::read(x, DLPACK_FLAG_BITMASK_READ_ONLY) {
        // Of an array without elements, a row-major buffer does not tell the strides.
        Ok(snapshot) => Ok(Some(snapshot).filter(|snapshot| !snapshot.meta().data.is_null())),
        Err(error) if error.is_instance_of::<PyException>(x.py()) => Ok(None),
        Err(error) => Err(error),
    }
}
