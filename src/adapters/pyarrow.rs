//! Checks pyarrow's arrays of tensors (`arrow.fixed_shape_tensor`), and single tensors of them, before calling their
//! `__dlpack__`. Arrow's own protocol is `adapters/arrow.rs`.

#![forbid(unsafe_code)]

use pyo3::ffi::PyTypeObject;
use pyo3::prelude::*;

use crate::cpython::lookup::is_in_type;
use crate::cpython::modules::python;
use crate::cpython::once::intern;

/// Refuses what pyarrow would export wrongly, whatever `sys.modules` says.
#[inline(always)]
pub(crate) fn check(x: &Bound<'_, PyAny>) -> PyResult<()> {
    if is_foreign(x.py(), x.get_type_ptr()) {
        Ok(())
    } else {
        // It may be of Arrow's canonical type of tensors.
        python(x.py(), "dlx._libraries.arrow", "check", (x,)).map(drop)
    }
}

/// Whether [`check`] has no question for objects of `class`: they lack what all of extension types have.
#[inline(always)]
pub(crate) fn is_foreign(py: Python<'_>, class: *mut PyTypeObject) -> bool {
    is_in_type(class, intern!(py, "from_storage")) == Some(false)
}
