//! What a torch tensor must be asked before its memory may be believed.
//!
//! torch's exchange table exports views whose elements are lazily conjugated or negated as if they were
//! not, and tensors that record gradients; its `__dlpack__` still exports negated ones (R125).

#![forbid(unsafe_code)]

use pyo3::exceptions::PyBufferError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::abi::{DLDataType, kDLBfloat, kDLComplex, kDLFloat, kDLFloat4_e2m1fn};

/// How a type of torch is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `torch.Tensor` or `torch.nn.Parameter` themselves: through the table.
    Plain,
    /// Another subclass, which may mean something else by its data or veto the export with
    /// `__torch_function__`: through `__dlpack__`, which asks it.
    Subclass,
}

/// How to read `class`, if it is torch's; torch is not imported for it.
pub(crate) fn kind(class: &Bound<'_, PyType>) -> PyResult<Option<Kind>> {
    let py = class.py();
    let modules = py.import("sys")?.getattr(intern!(py, "modules"))?;
    let Ok(torch) = modules.get_item(intern!(py, "torch")) else {
        return Ok(None);
    };
    let Some(tensor) = torch.getattr_opt(intern!(py, "Tensor"))? else {
        return Ok(None);
    };
    if !class.is_subclass(&tensor)? {
        return Ok(None);
    }
    let is_parameter = || {
        let parameter = torch.getattr("nn")?.getattr("Parameter")?;
        Ok::<_, PyErr>(class.is(&parameter))
    };
    Ok(Some(if class.is(&tensor) || is_parameter()? {
        Kind::Plain
    } else {
        Kind::Subclass
    }))
}

/// Refuses a tensor that records gradients, as torch's own `__dlpack__` does.
fn refuse_gradient(tensor: &Bound<'_, PyAny>) -> PyResult<()> {
    if tensor
        .getattr(intern!(tensor.py(), "requires_grad"))?
        .is_truthy()?
    {
        return Err(PyBufferError::new_err(
            "the torch tensor requires grad, which DLPack cannot carry; pass tensor.detach()",
        ));
    }
    Ok(())
}

/// Refuses a tensor whose conjugation is still to be done.
fn refuse_conjugate(tensor: &Bound<'_, PyAny>) -> PyResult<()> {
    if tensor
        .call_method0(intern!(tensor.py(), "is_conj"))?
        .is_truthy()?
    {
        return Err(PyBufferError::new_err(
            "the torch tensor is a lazily conjugated view; pass tensor.resolve_conj()",
        ));
    }
    Ok(())
}

/// Refuses a tensor whose negation is still to be done.
pub(crate) fn refuse_negative(tensor: &Bound<'_, PyAny>) -> PyResult<()> {
    if tensor
        .call_method0(intern!(tensor.py(), "is_neg"))?
        .is_truthy()?
    {
        return Err(PyBufferError::new_err(
            "the torch tensor is a lazily negated view; pass tensor.resolve_neg()",
        ));
    }
    Ok(())
}

/// Refuses an export of the table whose elements are not what its memory holds.
///
/// Only floating and complex tensors can record gradients or be negated, only complex ones conjugated.
pub(crate) fn check_table_export(tensor: &Bound<'_, PyAny>, dtype: DLDataType) -> PyResult<()> {
    let complex = dtype.code == kDLComplex;
    let floating =
        dtype.code == kDLFloat || (kDLBfloat.0..=kDLFloat4_e2m1fn.0).contains(&dtype.code.0);
    if floating {
        refuse_gradient(tensor)?;
        refuse_negative(tensor)?;
    }
    if complex {
        refuse_conjugate(tensor)?;
    }
    Ok(())
}
