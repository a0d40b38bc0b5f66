//! Deleters that dlx has put in the place of others: of tensors that were handed back to their caller, and of traced
//! exports.
//!
//! The struct has no room for what has to be dropped with it, so that is found by the address (S15, in `docs/safety.md`).

// The models of `tests/loom` have no prelude.
use std::boxed::Box;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::vec::Vec;

use super::ManagedTensor;
use crate::cpython::boundary::{guard, unraisable};
use crate::cpython::fork::Lock;

/// The deleter of either managed tensor.
type Deleter = unsafe extern "C" fn(*mut c_void);

/// A deleter that was replaced, and what the one in its place drops.
type Replaced = (Option<Deleter>, Box<dyn Send>);

/// Those of all tensors, by their addresses, the latest last.
static REPLACED: Lock<BTreeMap<usize, Vec<Replaced>>> = Lock::new(BTreeMap::new());

/// Replaces the deleter of `tensor` by one that restores it and drops `held`.
///
/// # Safety
///
/// `tensor` points to a live managed tensor, and nothing else accesses its deleter during the call; `held` keeps it alive.
pub(crate) unsafe fn replace_deleter<M: ManagedTensor>(
    tensor: NonNull<M>,
    held: impl Send + 'static,
) {
    // SAFETY: alive, as the caller guarantees.
    let place: *mut Option<Deleter> = unsafe { M::deleter(tensor) }.cast();
    // SAFETY: as above; nothing else accesses the field.
    let deleter = unsafe { place.replace(Some(delete::<M>)) };
    let mut replaced = REPLACED.lock();
    let of_tensor = replaced.entry(tensor.addr().get()).or_default();
    of_tensor.push((deleter, Box::new(held)));
}

/// The first deleter of the tensor at this address, 0 for NULL, if it was replaced.
pub(crate) fn first_deleter(address: usize) -> Option<usize> {
    let replaced = REPLACED.lock();
    let (deleter, _) = replaced.get(&address)?.first()?;
    Some(deleter.map_or(0, |deleter| deleter as usize))
}

/// The deleter that the consumer sees.
///
/// # Safety
///
/// The consumer gives up a managed tensor with this deleter.
pub(super) unsafe extern "C" fn delete<M: ManagedTensor>(tensor: *mut c_void) {
    let body = || {
        let Some(tensor) = NonNull::new(tensor.cast::<M>()) else {
            return;
        };
        let Some((deleter, held)) = take(tensor.addr().get()) else {
            return;
        };
        // SAFETY: `held` keeps the tensor alive (S15).
        let place: *mut Option<Deleter> = unsafe { M::deleter(tensor) }.cast();
        // SAFETY: as above; the next to read the field is whoever drops the last owner, after this write.
        unsafe { place.write(deleter) };
        drop(held);
    };
    // A deleter cannot return an error.
    guard(body, unraisable);
}

/// Removes what was added last.
fn take(address: usize) -> Option<Replaced> {
    let mut replaced = REPLACED.lock();
    let of_tensor = replaced.get_mut(&address)?;
    let last = of_tensor.pop();
    if of_tensor.is_empty() {
        replaced.remove(&address);
    }
    last
}
