//! Tensors handed back to their caller after a failed import that left a share of them alive.
//!
//! When `managed_tensor_to_py_object_no_sync` fails, its caller still owns the tensor (R131) and calls its deleter, but
//! a `dlx.Tensor` over it may survive, if only in the traceback. So the deleter is replaced by one that drops the
//! caller's share; the producer's deleter runs when the last share is dropped.

use std::ptr::NonNull;

use crate::abi::DLManagedTensorVersioned;
use crate::cpython::boundary::{guard, unraisable};
use crate::cpython::fork::Lock;
use crate::tensor::snapshot::Snapshot;

/// The caller's share of a tensor, with the producer's deleter.
struct Share {
    deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    _snapshot: Snapshot,
}

/// The shares of callers, each with the address of its tensor, the latest last.
static SHARES: Lock<Vec<(usize, Share)>> = Lock::new(Vec::new());

/// Hands `tensor`, which `snapshot` had taken over, back to the caller.
///
/// # Safety
///
/// `snapshot` was imported from the managed tensor `tensor`, and the caller will treat `tensor` as its own.
pub(crate) unsafe fn give_back(tensor: NonNull<DLManagedTensorVersioned>, snapshot: Snapshot) {
    let Err(snapshot) = snapshot.forget() else {
        return;
    };
    // SAFETY: the snapshot keeps the tensor alive (S15, tensors handed back).
    let place = unsafe { &raw mut (*tensor.as_ptr()).deleter };
    // SAFETY: as above; nothing else accesses the field while the caller waits for this function (S15).
    let deleter = unsafe { place.replace(Some(give_up)) };
    let share = Share {
        deleter,
        _snapshot: snapshot,
    };
    SHARES.lock().push((tensor.as_ptr().addr(), share));
}

/// The deleter that the caller sees.
unsafe extern "C" fn give_up(tensor: *mut DLManagedTensorVersioned) {
    let body = || {
        let mut shares = SHARES.lock();
        let Some(last) = shares.iter().rposition(|(of, _)| *of == tensor.addr()) else {
            return;
        };
        let (_, share) = shares.remove(last);
        drop(shares);
        // SAFETY: the share keeps the tensor alive (S15).
        let place = unsafe { &raw mut (*tensor).deleter };
        // SAFETY: as above; the next to read the field is whoever drops the last share, after this write.
        unsafe { place.write(share.deleter) };
        drop(share);
    };
    // A deleter cannot return an error.
    guard(body, unraisable);
}
