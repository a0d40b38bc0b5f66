//! Checks pyarrow's arrays of tensors (`arrow.fixed_shape_tensor`), and single tensors of them, before calling their
//! `__dlpack__`. Arrow's own protocol is `adapters/arrow.rs`.

#![forbid(unsafe_code)]

use pyo3::intern;
use pyo3::prelude::*;

use crate::cpython::lookup::is_in_type;

/// Refuses what pyarrow would export wrongly, whatever `sys.modules` says.
#[inline(always)]
pub(crate) fn check(x: &Bound<'_, PyAny>) -> PyResult<()> {
    // All of extension types have it.
    match is_in_type(x.get_type_ptr(), intern!(x.py(), "from_storage")) {
        Some(false) => Ok(()),
        _ => of_unknown(x),
    }
}

/// As [`check`], for what may be of Arrow's canonical type of tensors.
#[cold]
#[inline(never)]
fn of_unknown(x: &Bound<'_, PyAny>) -> PyResult<()> {
    let module = x.py().import(intern!(x.py(), "dlx._libraries.arrow"))?;
    module.call_method1(intern!(x.py(), "check"), (x,))?;
    Ok(())
}
