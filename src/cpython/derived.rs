//! Classes that derive from those that PyO3 makes, with functions of dlx's own.

use std::ffi::{CStr, c_int, c_ulong, c_void};
use std::ptr::null_mut;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

/// A class `name` derived from `base`, with these slots, and flags besides the usual ones.
///
/// # Safety
///
/// Each slot has a value of its type, which CPython may copy.
#[cold]
pub(crate) unsafe fn class<'py>(
    base: &Bound<'py, PyType>,
    name: &'static CStr,
    flags: c_ulong,
    slots: &[(c_int, *mut c_void)],
) -> PyResult<Bound<'py, PyType>> {
    let last = (0, null_mut());
    let slots = slots.iter().chain([&last]);
    let mut slots: Vec<_> = slots
        .map(|&(slot, pfunc)| ffi::PyType_Slot { slot, pfunc })
        .collect();
    let mut spec = ffi::PyType_Spec {
        name: name.as_ptr(),
        basicsize: 0,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT | flags) as _,
        slots: slots.as_mut_ptr(),
    };
    let bases = PyTuple::new(base.py(), [base])?;
    // SAFETY: attached; the caller's promise, and the last slot is zero.
    let class = unsafe { ffi::PyType_FromSpecWithBases(&mut spec, bases.as_ptr()) };
    // SAFETY: a new reference, or NULL with an exception.
    let class = unsafe { Bound::from_owned_ptr_or_err(base.py(), class) }?;
    Ok(class.cast_into()?)
}
