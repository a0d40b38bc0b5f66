//! `tensor/block.rs`: the counted references to a snapshot.

use loom::cell::UnsafeCell;
use loom::thread;

use crate::abi::DLTensor;
use crate::tensor::block::{Beside, Shared};

struct Value(UnsafeCell<u64>);

// SAFETY: loom says where it is not.
unsafe impl Sync for Value {}

impl Beside for Value {
    fn let_go(&mut self, _: &DLTensor, shape: &[i64]) {
        assert_eq!(shape, [2, 3]);
        self.0.with_mut(|_| ());
    }
}

fn two() -> [Shared<Value>; 2] {
    // SAFETY: a struct of numbers and pointers.
    let tensor: DLTensor = unsafe { real::mem::zeroed() };
    let value = Value(UnsafeCell::new(7));
    let shared = Shared::new(value, tensor, 2, |index| ([2, 3][index], [3, 1][index]));
    [shared.clone(), shared]
}

fn read(shared: &Shared<Value>) {
    shared.value().0.with(|_| ());
}

/// The last of three holders on three threads lets the value go and frees the block, after the others have read it.
pub(crate) fn released() {
    let [one, other] = two();
    let third = one.clone();
    let threads = [one, third].map(|shared| {
        thread::spawn(move || {
            read(&shared);
            drop(shared);
        })
    });
    read(&other);
    drop(other);
    for thread in threads {
        thread.join().expect("no panic");
    }
}

/// Whoever sees that it is the sole holder changes the value and takes it out, after the other has read it.
pub(crate) fn taken() {
    let [one, mut other] = two();
    let thread = thread::spawn(move || {
        let again = one.clone();
        drop(one);
        read(&again);
    });
    if let Some(value) = other.get_mut() {
        value.0.with_mut(|_| ());
    }
    if let Ok(value) = other.take_if(|_| true) {
        value.0.with_mut(|_| ());
    }
    thread.join().expect("no panic");
}
