//! Checks pyarrow's arrays of tensors (`arrow.fixed_shape_tensor`), and single tensors of them, before calling their
//! `__dlpack__`. Arrow's own protocol is `adapters/arrow.rs`.

#![forbid(unsafe_code)]

use pyo3::intern;
use pyo3::prelude::*;

use crate::cpython::lookup::is_in_type;
use crate::cpython::modules::python;

/// Refuses what pyarrow would export wrongly, whatever `sys.modules` says.
#[inline(always)]
pub(crate) fn check(x: &Bound<'_, PyAny>) -> PyResult<()> {
    // All of extension types have this.
    if is_in_type(x.get_type_ptr(), intern!(x.py(), "from_storage")) == Some(false) {
        Ok(())
    } else {
        // It may be of Arrow's canonical type of tensors.
        python(x.py(), "dlx._libraries.arrow", "check", (x,)).map(drop)
    }
}
