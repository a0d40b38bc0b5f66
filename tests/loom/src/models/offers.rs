//! `tensor/managed/offer.rs`: a tensor that a peer may refuse, with or without deleting it.

use real::cell::Cell;
use real::rc::Rc;

use loom::cell::UnsafeCell;
use loom::thread;

use crate::abi::{DLManagedTensorVersioned, DLTensor};
use crate::tensor::managed::Offer;

#[derive(Default)]
struct Memory {
    elements: UnsafeCell<u64>,
    released: Cell<usize>,
}

struct Owner(Rc<Memory>);

// SAFETY: all threads of a model run on one of the system; loom says where the elements are not.
unsafe impl Send for Owner {}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.elements.with_mut(|_| ());
        self.0.released.set(self.0.released.get() + 1);
    }
}

struct Pointer(*mut DLManagedTensorVersioned);

// SAFETY: the deleter may be called on any thread.
unsafe impl Send for Pointer {}

impl Pointer {
    fn delete(self) {
        // SAFETY: an offer of dlx's.
        let deleter = unsafe { (*self.0).deleter }.expect("set");
        // SAFETY: called once.
        unsafe { deleter(self.0) };
    }
}

fn offer() -> (Rc<Memory>, Offer<Owner>) {
    let memory = Rc::new(Memory::default());
    // SAFETY: a struct of numbers and pointers.
    let tensor: DLTensor = unsafe { real::mem::zeroed() };
    let offer = Offer::new(tensor, &[4], &[1], 0, Owner(memory.clone())).expect("memory");
    (memory, offer)
}

/// The peer accepts, reads, and deletes on another thread while the offerer gives its share up.
pub(crate) fn accepted() {
    let (memory, offer) = offer();
    let (pointer, owner) = (Pointer(offer.as_ptr()), Owner(memory.clone()));
    let thread = thread::spawn(move || {
        let owner = real::mem::ManuallyDrop::new(owner);
        owner.0.elements.with(|_| ());
        pointer.delete();
    });
    offer.accepted();
    thread.join().expect("no panic");
    assert_eq!(memory.released.get(), 1);
}

/// The peer fails, having deleted the tensor on a thread that it waits for, or not at all.
pub(crate) fn refused() {
    for deletes in [true, false] {
        let (memory, offer) = offer();
        let pointer = Pointer(offer.as_ptr());
        if deletes {
            thread::spawn(move || pointer.delete())
                .join()
                .expect("no panic");
        }
        drop(offer);
        assert_eq!(memory.released.get(), 1);
    }
}
