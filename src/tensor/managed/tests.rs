//! Who calls a deleter, and when, without Python.

#![allow(clippy::panic, clippy::expect_used)]

use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::*;
use crate::abi::{DLPACK_FLAG_BITMASK_READ_ONLY, kDLFloat};
use crate::types::device::CPU;
use crate::types::dtype;

/// An owner that counts how often it is dropped.
struct Owner(Arc<AtomicUsize>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn owner() -> (Owner, Arc<AtomicUsize>) {
    let dropped = Arc::new(AtomicUsize::new(0));
    (Owner(dropped.clone()), dropped)
}

fn count(dropped: &AtomicUsize) -> usize {
    dropped.load(Ordering::SeqCst)
}

const TENSOR: DLTensor = DLTensor {
    data: NonNull::<c_void>::dangling().as_ptr(),
    device: CPU,
    ndim: 2,
    dtype: dtype::scalar(kDLFloat, 32),
    shape: null_mut(),
    strides: null_mut(),
    byte_offset: 0,
};

fn made<M: ManagedTensor>(owner: Owner, flags: u64) -> Managed<M> {
    export(TENSOR, &[2, 3], &[3, 1], flags, owner).expect("memory for an export")
}

/// The dimensions that a tensor points to.
fn dimensions(tensor: &DLTensor) -> [i64; 4] {
    let at = |values: *mut i64, index| {
        // SAFETY: an export of two dimensions has as many extents and strides.
        let value = unsafe { values.add(index) };
        // SAFETY: as above.
        unsafe { value.read() }
    };
    [
        at(tensor.shape, 0),
        at(tensor.shape, 1),
        at(tensor.strides, 0),
        at(tensor.strides, 1),
    ]
}

#[test]
fn an_export_has_dimensions_of_its_own_and_drops_its_owner_once() {
    let (first, dropped) = owner();
    let managed = made::<DLManagedTensorVersioned>(first, 0);
    let (tensor, flags) = managed.read().expect("version 1");
    assert_eq!((dimensions(tensor), flags), ([2, 3, 3, 1], 0));
    assert_eq!(count(&dropped), 0);
    drop(managed);
    assert_eq!(count(&dropped), 1);
}

#[test]
fn what_is_given_away_is_deleted_by_its_new_owner_alone() {
    let (first, dropped) = owner();
    let raw = made::<DLManagedTensor>(first, 0).into_raw();
    assert_eq!(count(&dropped), 0);
    // SAFETY: an export that is alive.
    let deleter = unsafe { (*raw.as_ptr()).deleter }.expect("a deleter");
    // SAFETY: called once, by the owner.
    unsafe { deleter(raw.as_ptr()) };
    assert_eq!(count(&dropped), 1);
}

#[test]
fn a_deleter_runs_on_any_thread() {
    let (first, dropped) = owner();
    let managed = made::<DLManagedTensorVersioned>(first, 0);
    thread::spawn(move || drop(managed))
        .join()
        .expect("no panic");
    assert_eq!(count(&dropped), 1);
}

#[test]
fn the_private_flag_is_not_exported() {
    let (first, _) = owner();
    let flags = MAYBE_READ_ONLY | DLPACK_FLAG_BITMASK_READ_ONLY;
    let managed = made::<DLManagedTensorVersioned>(first, flags);
    let (_, flags) = managed.read().expect("version 1");
    assert_eq!(flags, DLPACK_FLAG_BITMASK_READ_ONLY);
}

thread_local! {
    static DELETED: Cell<u32> = const { Cell::new(0) };
}

/// A deleter that frees a `Box` and counts.
unsafe extern "C" fn delete_box(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: the tests below leak such a box.
    drop(unsafe { Box::from_raw(managed) });
    DELETED.set(DELETED.get() + 1);
}

fn foreign(major: u32, with_deleter: bool) -> NonNull<DLManagedTensorVersioned> {
    let mut managed = DLManagedTensorVersioned::assemble(TENSOR, 0, null_mut(), delete_box);
    managed.version.major = major;
    managed.deleter = managed.deleter.filter(|_| with_deleter);
    NonNull::from(Box::leak(Box::new(managed)))
}

#[test]
fn a_tensor_of_another_version_is_refused_and_deleted() {
    // SAFETY: a box of ours, given up.
    let managed = unsafe { Managed::from_raw(foreign(2, true)) };
    let Err(error) = managed.read() else {
        panic!("version 2 is refused");
    };
    assert!(
        error.message().contains("DLPack version 2."),
        "{}",
        error.message()
    );
    drop(managed);
    assert_eq!(DELETED.get(), 1);
}

#[test]
fn a_tensor_without_a_deleter_is_left() {
    let raw = foreign(1, false);
    // SAFETY: a box of ours, given up.
    drop(unsafe { Managed::from_raw(raw) });
    assert_eq!(DELETED.get(), 0);
    // SAFETY: nothing has freed it.
    unsafe { delete_box(raw.as_ptr()) };
}

/// An offer, and its deleter as the peer sees it.
fn offered(owner: Owner) -> (Offer<Owner>, impl Fn()) {
    let offer = Offer::new(TENSOR, &[2, 3], &[3, 1], 0, owner).expect("memory for an offer");
    let raw = NonNull::new(offer.as_ptr()).expect("an address");
    // SAFETY: the offer is alive.
    let tensor = unsafe { &(*raw.as_ptr()).dl_tensor };
    assert_eq!(dimensions(tensor), [2, 3, 3, 1]);
    let delete = move || {
        // SAFETY: the tests call it once, while the tensor is the peer's.
        let deleter = unsafe { (*raw.as_ptr()).deleter }.expect("a deleter");
        // SAFETY: as above.
        unsafe { deleter(raw.as_ptr()) };
    };
    (offer, delete)
}

#[test]
fn an_accepted_offer_belongs_to_the_peer() {
    let (first, dropped) = owner();
    let (offer, delete) = offered(first);
    offer.accepted();
    assert_eq!(count(&dropped), 0);
    delete();
    assert_eq!(count(&dropped), 1);
}

#[test]
fn an_offer_that_is_refused_and_kept_is_deleted_by_the_offerer() {
    let (first, dropped) = owner();
    let (offer, _) = offered(first);
    drop(offer);
    assert_eq!(count(&dropped), 1);
}

#[test]
fn an_offer_that_is_refused_and_deleted_is_not_deleted_again() {
    let (first, dropped) = owner();
    let (offer, delete) = offered(first);
    delete();
    assert_eq!(count(&dropped), 1);
    drop(offer);
    assert_eq!(count(&dropped), 1);
}

#[test]
fn an_offer_that_is_deleted_before_it_is_accepted_is_not_deleted_again() {
    let (first, dropped) = owner();
    let (offer, delete) = offered(first);
    delete();
    offer.accepted();
    assert_eq!(count(&dropped), 1);
}
