//! A managed tensor that is offered to a peer which may refuse it, having deleted it or not (R131).
//!
//! Whether a peer that fails has called the deleter, `dlpack.h` leaves open, and peers differ. The deleter of an
//! offer lets go of the tensor as any does, but the allocation stays until both have let go of it, peer and offerer,
//! so that the offerer can see whether it ran (invariant S17 of `docs/safety.md`).

use std::alloc::{GlobalAlloc, System};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use super::{Export, place, placed};
use crate::abi::{DLManagedTensorVersioned, DLTensor};
use crate::cpython::boundary::{guard, unraisable};
use crate::types::error::Error;

/// What an offer holds.
struct Offered<O> {
    /// Peer and offerer, or the one that has not let go.
    holders: AtomicU8,
    /// Taken out by the deleter.
    owner: Option<O>,
}

type OfferedExport<O> = Export<DLManagedTensorVersioned, Offered<O>>;

/// The offerer's share: dropped, it deletes the tensor unless the peer did.
pub(crate) struct Offer<O: Send + 'static>(NonNull<OfferedExport<O>>);

impl<O: Send + 'static> Offer<O> {
    /// An offer of the memory of `tensor`, which `owner` keeps alive.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`; `owner` is dropped then.
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

    /// What the peer is given.
    pub(crate) fn as_ptr(&self) -> *mut DLManagedTensorVersioned {
        self.0.as_ptr().cast()
    }

    /// The peer has taken the tensor over: to delete it is up to the peer.
    pub(crate) fn accepted(self) {
        let this = ManuallyDrop::new(self);
        // SAFETY: this is the offerer's share, given up once.
        unsafe { let_go(this.0) };
    }
}

impl<O: Send + 'static> Drop for Offer<O> {
    fn drop(&mut self) {
        // SAFETY: the allocation stays while the offerer holds it, and this field is only ever shared.
        let holders = unsafe { &(*self.0.as_ptr()).owner.holders };
        if holders.load(Ordering::Acquire) == 2 {
            // SAFETY: the peer has refused the tensor and not deleted it, so that is left to the caller (R131).
            unsafe { delete::<O>(self.as_ptr()) };
        }
        // SAFETY: this is the offerer's share, given up once.
        unsafe { let_go(self.0) };
    }
}

/// The deleter of every offer: lets go of the owner, and of the allocation.
unsafe extern "C" fn delete<O>(managed: *mut DLManagedTensorVersioned) {
    let body = || {
        let Some(block) = NonNull::new(managed.cast::<OfferedExport<O>>()) else {
            return;
        };
        // SAFETY: only `Offer::new` installs this deleter, at the start of such an allocation, which is there as
        // long as the deleter has not run (S17). It runs once, and nobody else looks at the owner.
        let owner = unsafe { &mut (*block.as_ptr()).owner.owner };
        let owner = owner.take();
        // SAFETY: the peer's share, given up once.
        unsafe { let_go(block) };
        drop(owner);
    };
    // A deleter has no way to report.
    guard(body, unraisable);
}

/// Gives up one of the two shares of an allocation, and frees it with the second.
///
/// # Safety
///
/// The share was the caller's, who does not touch the allocation again.
unsafe fn let_go<O>(block: NonNull<OfferedExport<O>>) {
    // SAFETY: the caller's share keeps the allocation, and nobody writes this field.
    let ndim = unsafe { (*block.as_ptr()).ndim };
    // SAFETY: as above; the field is only ever shared.
    let holders = unsafe { &(*block.as_ptr()).owner.holders };
    if holders.fetch_sub(1, Ordering::AcqRel) == 1 {
        // SAFETY: allocated by `place` for this many dimensions.
        let layout = unsafe { placed::<DLManagedTensorVersioned, Offered<O>>(ndim) };
        // SAFETY: allocated by `place` with this same layout, and nobody holds it any more.
        unsafe { System.dealloc(block.as_ptr().cast(), layout) };
    }
}
