//! Traced exports: managed tensors whose deleter a trace has replaced, so that the end is noted.

use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::{End, NUMBERS, tell};
use crate::abi::{DLManagedTensor, DLManagedTensorVersioned};
use crate::cpython::boundary::{guard, unraisable};
use crate::cpython::interpreter::is_attached;
use crate::tensor::capsule::pointer;
use crate::tensor::managed::{Managed, ManagedTensor, first_deleter, replace_deleter};

/// Begins to watch the managed tensor in a new capsule, which `source` exported.
#[cold]
#[inline(never)]
pub(crate) fn made_capsule(capsule: &Bound<'_, PyCapsule>, source: &Bound<'_, PyAny>) {
    made_as::<DLManagedTensorVersioned>(capsule, source);
    made_as::<DLManagedTensor>(capsule, source);
}

/// As [`made_capsule`], if the capsule has a managed tensor of this kind.
fn made_as<M: ManagedTensor>(capsule: &Bound<'_, PyCapsule>, source: &Bound<'_, PyAny>) {
    // SAFETY: `Bound` proves attachment and a live object.
    if let Some(tensor) = unsafe { pointer::<M>(capsule.as_ptr(), M::NAME) } {
        // SAFETY: a capsule of this name owns such a tensor, and its maker has shown it to nobody.
        unsafe { exported(tensor, source.as_ptr(), c"__dlpack__") };
    }
}

/// Begins to watch a managed tensor that has just been made of `source`.
///
/// # Safety
///
/// `managed` points to a live managed tensor that nobody else has seen; `source` is NULL or a live object.
#[cold]
#[inline(never)]
pub(crate) unsafe fn exported<M: ManagedTensor>(
    managed: NonNull<M>,
    source: *mut ffi::PyObject,
    way: &'static CStr,
) {
    // SAFETY: a live managed tensor, as the caller promises.
    let Ok((tensor, flags)) = (unsafe { M::read(managed) }) else {
        return;
    };
    let body = || {
        // An allocator is called by threads that know nothing of Python (R136), and a table may pass on what another one
        // has exported.
        if is_attached() != Some(true) || first_deleter(managed.addr().get()).is_some() {
            return;
        }
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: whoever calls the new deleter gives the tensor up; this is dropped then, the tensor before the end.
        let held = (unsafe { Managed::from_raw(managed) }, End(number));
        // SAFETY: nobody else has seen the tensor, so nobody else accesses the field (S27).
        unsafe { replace_deleter(managed, held) };
        // SAFETY: asked above.
        let py = unsafe { Python::assume_attached() };
        // SAFETY: NULL or live, as the caller promises.
        let source = unsafe { Bound::from_borrowed_ptr_or_opt(py, source) };
        tell(py, way, number, source.as_ref(), tensor, flags, None);
    };
    guard(body, unraisable);
}
