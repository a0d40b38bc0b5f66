//! A managed tensor offered to a peer that may refuse it, with or without deleting it (R131).
//!
//! `dlpack.h` does not say whether a failing peer calls the deleter, and peers differ. An offer's deleter drops the
//! owner like any other, but the allocation lives until both peer and offerer have released it, so the offerer can see
//! whether the deleter ran (S17, offers, in `docs/safety.md`).

use std::alloc::{GlobalAlloc, System};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use super::export::{Export, place};
use crate::abi::{DLManagedTensorVersioned, DLTensor};
use crate::cpython::boundary::{guard, unraisable};
use crate::tensor::block::layout;
use crate::types::error::Error;

/// The owner in an offer's allocation.
struct Offered<O> {
    /// Number of shares not yet released, of peer and offerer.
    holders: AtomicU8,
    /// Taken out by the deleter.
    owner: Option<O>,
}

type OfferedExport<O> = Export<DLManagedTensorVersioned, Offered<O>>;

/// The offerer's share. Dropping it deletes the tensor unless the peer has.
pub(crate) struct Offer<O: Send + 'static>(NonNull<OfferedExport<O>>);

impl<O: Send + 'static> Offer<O> {
    /// Offers the memory of `tensor`, which `owner` keeps alive.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`; `owner` is then dropped.
    pub(crate) fn new(
        tensor: DLTensor,
        shape: &[i64],
        strides: &[i64],
        flags: u64,
        owner: O,
    ) -> Result<Self, Error> {
        let offered = Offered {
            holders: AtomicU8::new(2),
            owner: Some(owner),
        };
        place(tensor, shape, strides, flags, offered, delete::<O>).map(Self)
    }

    /// The pointer for the peer.
    pub(crate) fn as_ptr(&self) -> *mut DLManagedTensorVersioned {
        self.0.as_ptr().cast()
    }

    /// Called when the peer has accepted the tensor, and so owns it.
    pub(crate) fn accepted(self) {
        let this = ManuallyDrop::new(self);
        // SAFETY: the offerer's share, released once.
        unsafe { let_go(this.0) };
    }
}

impl<O: Send + 'static> Drop for Offer<O> {
    fn drop(&mut self) {
        // SAFETY: the offerer's share keeps the allocation alive, and this field is only accessed by shared reference.
        let holders = unsafe { &(*self.0.as_ptr()).owner.holders };
        if holders.load(Ordering::Acquire) == 2 {
            // SAFETY: the peer has refused the tensor without deleting it, so the offerer must (R131).
            unsafe { delete::<O>(self.as_ptr()) };
        }
        // SAFETY: the offerer's share, released once.
        unsafe { let_go(self.0) };
    }
}

/// The deleter of every offer: drops the owner and releases the peer's share.
unsafe extern "C" fn delete<O>(managed: *mut DLManagedTensorVersioned) {
    let body = || {
        let Some(block) = NonNull::new(managed.cast::<OfferedExport<O>>()) else {
            return;
        };
        // SAFETY: only `Offer::new` installs this deleter, on the start of such an allocation, which lives at least
        // until the deleter has run (S17). It runs once, and nothing else accesses the owner.
        let owner = unsafe { &mut (*block.as_ptr()).owner.owner };
        let owner = owner.take();
        // SAFETY: the peer's share, released once.
        unsafe { let_go(block) };
        drop(owner);
    };
    // A deleter cannot report errors.
    guard(body, unraisable);
}

/// Releases one of the two shares of an allocation; the second frees it.
///
/// # Safety
///
/// The caller owned the share and does not access the allocation again.
unsafe fn let_go<O>(block: NonNull<OfferedExport<O>>) {
    // SAFETY: the caller's share keeps the allocation alive, and this field never changes.
    let ndim = unsafe { (*block.as_ptr()).ndim };
    // SAFETY: as above; this field is only accessed by shared reference.
    let holders = unsafe { &(*block.as_ptr()).owner.holders };
    if holders.fetch_sub(1, Ordering::AcqRel) == 1 {
        let layout = layout::<OfferedExport<O>>(ndim);
        // SAFETY: allocated by `place` with this layout; both shares are released.
        unsafe { System.dealloc(block.as_ptr().cast(), layout) };
    }
}
