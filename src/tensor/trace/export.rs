//! Traced exports: managed tensors whose deleter a trace has replaced by its own, which notes the end.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::{End, NUMBERS, tell};
use crate::abi::{DLManagedTensor, DLManagedTensorVersioned};
use crate::cpython::boundary::{guard, unraisable};
use crate::cpython::fork::Lock;
use crate::cpython::interpreter::is_attached;
use crate::tensor::capsule::{CapsuleNames, pointer};
use crate::tensor::managed::{ManagedTensor, REPLACED};

/// The exports that have not ended, by the addresses of their managed tensors: the deleter of the maker, and the end.
static EXPORTS: Lock<BTreeMap<usize, (Option<Deleter>, End)>> = Lock::new(BTreeMap::new());

/// The deleter of either managed tensor.
type Deleter = unsafe extern "C" fn(*mut c_void);

/// Begins to watch the managed tensor in a new capsule, which `source` exported.
#[cold]
#[inline(never)]
pub(crate) fn made_capsule(capsule: &Bound<'_, PyCapsule>, source: &Bound<'_, PyAny>) {
    made_as::<DLManagedTensorVersioned>(capsule, source);
    made_as::<DLManagedTensor>(capsule, source);
}

/// As [`made_capsule`], if the capsule has a managed tensor of this kind.
fn made_as<M: CapsuleNames>(capsule: &Bound<'_, PyCapsule>, source: &Bound<'_, PyAny>) {
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
    // SAFETY: as above.
    let place = unsafe { M::deleter(managed) };
    let body = || {
        // An allocator is called by threads that know nothing of Python (R136).
        if is_attached() != Some(true) {
            return;
        }
        // SAFETY: nobody else has seen the tensor, so nobody else accesses the field (S27).
        if let Some(number) = unsafe { watch(managed.cast(), place.cast(), delete::<M>) } {
            // SAFETY: asked above.
            let py = unsafe { Python::assume_attached() };
            // SAFETY: NULL or live, as the caller promises.
            let source = unsafe { Bound::from_borrowed_ptr_or_opt(py, source) };
            tell(py, way, number, source.as_ref(), tensor, flags, None);
        }
    };
    guard(body, unraisable);
}

/// Replaces the deleter of a managed tensor by `delete`, and returns the number of its export; `None` if that was done
/// before: a table may pass on what another one has exported.
///
/// # Safety
///
/// `place` is the field of `managed`, and nothing else accesses it during the call.
unsafe fn watch(
    managed: NonNull<c_void>,
    place: *mut Option<Deleter>,
    delete: Deleter,
) -> Option<u64> {
    let address = managed.as_ptr().addr();
    REPLACED.get_or_init(|| replaced);
    let mut exports = EXPORTS.lock();
    let Entry::Vacant(export) = exports.entry(address) else {
        return None;
    };
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: as the caller promises.
    let deleter = unsafe { place.replace(Some(delete)) };
    export.insert((deleter, End(number)));
    Some(number)
}

/// The deleter of the maker of a traced export.
fn replaced(address: usize) -> Option<usize> {
    let exports = EXPORTS.lock();
    let (deleter, _) = exports.get(&address)?;
    Some(deleter.map_or(0, |deleter| deleter as usize))
}

/// The deleter of a traced export: restores that of the maker and calls it.
///
/// # Safety
///
/// The consumer gives up a managed tensor with this deleter.
unsafe extern "C" fn delete<M: ManagedTensor>(managed: *mut c_void) {
    let body = || {
        let Some(tensor) = NonNull::new(managed.cast::<M>()) else {
            return;
        };
        // SAFETY: the consumer calls the deleter of a live tensor.
        let place: *mut Option<Deleter> = unsafe { M::deleter(tensor) }.cast();
        let found = EXPORTS.lock().remove(&managed.addr());
        let Some((deleter, end)) = found else {
            return;
        };
        // SAFETY: the consumer gives the tensor up, so nothing else accesses it.
        unsafe { place.write(deleter) };
        if let Some(deleter) = deleter {
            // SAFETY: the consumer's call, passed on.
            unsafe { deleter(managed) };
        }
        drop(end);
    };
    guard(body, unraisable);
}
