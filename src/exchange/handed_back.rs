//! A tensor that a table function could not make an object of, although code that it called has kept it.
//!
//! The caller of `managed_tensor_to_py_object_no_sync` still owns the tensor then (R131) and calls its deleter, but
//! a `dlx.Tensor` over it may live on: in the traceback, if nowhere else. So the deleter that the caller finds only
//! gives up the caller's share. The producer's runs when the last share is gone.

use std::collections::HashMap;
use std::ptr::NonNull;

use crate::abi::DLManagedTensorVersioned;
use crate::cpython::boundary::{guard, unraisable};
use crate::cpython::fork::{Lock, Locked};
use crate::tensor::snapshot::Snapshot;

/// What a caller still owns: the deleter that was there, and a share of the tensor.
struct Share {
    deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    _snapshot: Snapshot,
}

/// The shares of callers, by the address of the tensor; the last is of the last call, if there were several.
type Shares = HashMap<usize, Vec<Share>>;

static SHARES: Lock<Option<Shares>> = Lock::new(None);

fn shares() -> Locked<'static, Option<Shares>> {
    SHARES.lock()
}

/// Leaves `tensor`, which `snapshot` has taken over, to the caller that it came from.
///
/// # Safety
///
/// `tensor` is the managed tensor that `snapshot` was imported from, and the caller will treat it as its own.
pub(crate) unsafe fn give_back(tensor: NonNull<DLManagedTensorVersioned>, snapshot: Snapshot) {
    let Err(snapshot) = snapshot.forget() else {
        return;
    };
    // SAFETY: the snapshot holds the tensor, so it is alive (S15).
    let place = unsafe { &raw mut (*tensor.as_ptr()).deleter };
    // SAFETY: as above; nobody else looks at the field while the caller waits for this function.
    let deleter = unsafe { place.replace(Some(give_up)) };
    let share = Share {
        deleter,
        _snapshot: snapshot,
    };
    let address = tensor.as_ptr().addr();
    let mut shares = shares();
    let shares = shares.get_or_insert_default();
    shares.entry(address).or_default().push(share);
}

/// The deleter that the caller finds.
unsafe extern "C" fn give_up(tensor: *mut DLManagedTensorVersioned) {
    let body = || {
        let Some(share) = take(tensor.addr()) else {
            return;
        };
        // SAFETY: the share keeps the tensor alive (S15).
        let place = unsafe { &raw mut (*tensor).deleter };
        // SAFETY: as above; the deleter is read next by whoever drops the last share, after this one.
        unsafe { place.write(share.deleter) };
        drop(share);
    };
    // A deleter has no way to report.
    guard(body, unraisable);
}

/// The share that was added last.
fn take(address: usize) -> Option<Share> {
    let mut shares = shares();
    let shares = shares.as_mut()?;
    let of_tensor = shares.get_mut(&address)?;
    let share = of_tensor.pop();
    if of_tensor.is_empty() {
        shares.remove(&address);
    }
    share
}
