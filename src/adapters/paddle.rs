//! Checks of Paddle tensors. Their exchange table exports tensors that record gradients, which Paddle's `__dlpack__`
//! refuses, and reads sparse ones as if they were dense.

#![forbid(unsafe_code)]

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::versions::Places;
use crate::cpython::lookup::{is_in_type, lacks};
use crate::cpython::modules::loaded_class;
use crate::cpython::once::{Once, intern};
use crate::exchange::Table;

/// `paddle.Tensor`, once one has been met.
static TENSOR: Once<Py<PyType>> = Once::new();

/// `paddle.Tensor`, if one has been met or Paddle is loaded.
fn tensor_class(py: Python<'_>) -> PyResult<Option<Bound<'_, PyType>>> {
    match TENSOR.get(py) {
        Some(class) => Ok(Some(class.bind(py).clone())),
        None => loaded_class(intern!(py, "paddle"), intern!(py, "Tensor")),
    }
}

/// Whether `x` counts what is written to it, as a Paddle tensor does.
pub(crate) fn counts(x: &Bound<'_, PyAny>) -> bool {
    !lacks(&x.get_type(), &[intern!(x.py(), "_bump_inplace_version")])
}

/// Tells `x`, which counts that, that its memory was written to.
pub(crate) fn increment_version(x: &Bound<'_, PyAny>) -> PyResult<()> {
    let bump = intern!(x.py(), "_bump_inplace_version");
    x.call_method0(bump).map(drop)
}

/// The counts by which Paddle sees that memory was written to.
pub(super) static COUNTS: Places = Places::new("paddle", tensor_class);

/// Adds the guard to `table`, found on `class`, unless its tensors lack what the guard asks.
pub(crate) fn guarded(table: Table, class: &Bound<'_, PyType>) -> Table {
    let name = intern!(class.py(), "stop_gradient");
    match is_in_type(class.as_type_ptr(), name) {
        Some(false) => table,
        _ => {
            meet(class);
            table.guarded(refuse)
        }
    }
}

/// Remembers `paddle.Tensor`, if that is a base of `class`.
fn meet(class: &Bound<'_, PyType>) {
    let is_it = |base: &Bound<'_, PyType>| {
        let (name, module) = (base.name(), base.module());
        name.is_ok_and(|name| name == "Tensor") && module.is_ok_and(|module| module == "paddle")
    };
    let mut bases = class
        .mro()
        .into_iter()
        .filter_map(|base| base.cast_into().ok());
    if let Some(tensor) = bases.find(is_it) {
        TENSOR.get_or_init(class.py(), || tensor.unbind());
    }
}

/// Refuses a tensor that is not dense, or that records gradients if they matter.
fn refuse(tensor: &Bound<'_, PyAny>, gradients_matter: bool) -> PyResult<()> {
    let py = tensor.py();
    if !tensor.call_method0(intern!(py, "is_dense"))?.is_truthy()? {
        // Other tensors that are not dense (selected rows of an embedding's gradient) have no method to make them so.
        let call = if tensor.call_method0(intern!(py, "is_sparse"))?.is_truthy()? {
            "pass tensor.to_dense()"
        } else if tensor.call_method0(intern!(py, "is_dist"))?.is_truthy()? {
            "it is distributed: pass tensor._local_value(), or paddle.distributed.unshard_dtensor(tensor) for all of it"
        } else {
            "pass a dense tensor"
        };
        return Err(PyBufferError::new_err(format!(
            "the Paddle tensor is not dense, as DLPack requires; {call}"
        )));
    }
    if !gradients_matter {
        return Ok(());
    }
    let stops = tensor.getattr(intern!(py, "stop_gradient"))?;
    if stops.is_truthy()? {
        Ok(())
    } else {
        Err(PyBufferError::new_err(
            "the Paddle tensor records gradients (stop_gradient=False), which DLPack cannot represent; \
             pass tensor.detach(), or detach=True to dlx.convert or dlx.bridge",
        ))
    }
}
