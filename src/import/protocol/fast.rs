//! The common export: `__dlpack__(max_version=(1, 3))`, without other keywords.
//!
//! `__dlpack_device__` only determines `stream`, which the CPU does not have; there the capsule alone tells everything.
//! NumPy takes only CPU memory, so conversions to NumPy request the capsule at once, as NumPy itself does.

#![forbid(unsafe_code)]

use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use super::{Whose, protected, question};
use crate::cpython::call::has;
use crate::cpython::once::intern;
use crate::tensor::capsule::{self, Exported};
use crate::tensor::checked;
use crate::tensor::snapshot::Snapshot;
use crate::types::device;

/// Exports `x`, which cannot say where it is; `None` if that fails or the tensor is not on the CPU.
///
/// # Errors
///
/// Exceptions that do not derive from `Exception`, such as `KeyboardInterrupt`.
pub(super) fn on_cpu(x: &Bound<'_, PyAny>, is_tensorflow: bool) -> PyResult<Option<Snapshot>> {
    match question::fast(x).and_then(|capsule| capsule::import(&capsule, None)) {
        Ok(snapshot) if snapshot.meta().device == device::CPU => {
            protected(x, is_tensorflow, snapshot).map(Some)
        }
        Err(error) if !error.is_instance_of::<PyException>(x.py()) => Err(error),
        _ => Ok(None),
    }
}

/// The tensor of `x` if it is on the CPU; `None` if `x` has to say first where it is, or has no such method.
///
/// # Errors
///
/// The exceptions of `__dlpack__`.
pub(crate) fn fast_export(x: &Bound<'_, PyAny>, whose: &Whose) -> PyResult<Option<Exported>> {
    let is_tensorflow = whose.check(x)?;
    if !has(x, intern!(x.py(), "__dlpack__"))? {
        return Ok(None);
    }
    let capsule = match question::fast(x) {
        Ok(capsule) => capsule,
        Err(error) => return super::unless_absent(x, error),
    };
    let managed = match capsule::take(&capsule)? {
        Exported::Managed(managed) => managed,
        Exported::Snapshot(snapshot) => {
            let snapshot = protected(x, is_tensorflow, snapshot)?;
            let is_on_cpu = snapshot.meta().device == device::CPU;
            return Ok(is_on_cpu.then_some(Exported::Snapshot(snapshot)));
        }
    };
    let managed = checked::conforming(managed)?;
    let tensor = managed.read()?.0;
    if let Some(kind) = whose.torch() {
        kind.check_dtype(x, tensor.dtype)?;
        kind.check_address(x, tensor.data)?;
    }
    let is_on_cpu = tensor.device == device::CPU;
    Ok(is_on_cpu.then_some(Exported::Managed(managed)))
}
