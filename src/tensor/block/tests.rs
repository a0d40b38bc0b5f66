//! Layout, sharing and release of a block, without Python.

#![allow(clippy::panic, clippy::expect_used)]

use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::*;
use crate::abi::kDLFloat;
use crate::types::{device, dtype};

/// A value that counts what happens to it.
struct Counted {
    released: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
}

impl Counted {
    fn new() -> Self {
        Self {
            released: Arc::default(),
            dropped: Arc::default(),
        }
    }

    fn counts(released: &Arc<AtomicUsize>, dropped: &Arc<AtomicUsize>) -> (usize, usize) {
        (
            released.load(Ordering::SeqCst),
            dropped.load(Ordering::SeqCst),
        )
    }
}

impl Beside for Counted {
    fn let_go(&mut self, tensor: &DLTensor, shape: &[i64]) {
        assert_eq!(tensor.dtype.bits, 32);
        assert!(shape.iter().enumerate().all(|(i, &n)| n == i as i64 + 2));
        assert_eq!(self.dropped.load(Ordering::SeqCst), 0);
        self.released.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

/// A block of `ndim` dimensions: extents 2, 3, 4, ... and strides 10, 20, 30, ...
fn block(ndim: usize, value: Counted) -> Shared<Counted> {
    let tensor = DLTensor {
        data: NonNull::dangling().as_ptr(),
        device: device::CPU,
        ndim: 0,
        dtype: dtype::scalar(kDLFloat, 32),
        shape: null_mut(),
        strides: null_mut(),
        byte_offset: 0,
    };
    Shared::new(value, tensor, ndim, |index| {
        (index as i64 + 2, 10 * (index as i64 + 1))
    })
}

#[test]
fn the_dimensions_follow_the_block_in_one_allocation() {
    for ndim in [0, 1, 2, 7, 64] {
        let shared = block(ndim, Counted::new());
        let tensor = shared.tensor();
        let start = shared.0.as_ptr().addr();
        assert_eq!(tensor.ndim as usize, ndim);
        assert_eq!(
            tensor.shape.addr(),
            start + size_of::<Block<Counted>>(),
            "{ndim}"
        );
        assert_eq!(tensor.strides.addr(), tensor.shape.addr() + 8 * ndim);
        assert_eq!(
            layout::<Block<Counted>>(ndim).size(),
            size_of::<Block<Counted>>() + 16 * ndim
        );
        assert_eq!(shared.shape().len(), ndim);
        let strides: Vec<i64> = (1..=ndim as i64).map(|i| 10 * i).collect();
        assert_eq!(shared.strides(), strides);
    }
}

#[test]
fn the_last_reference_releases_the_value_and_drops_it_once() {
    let value = Counted::new();
    let (released, dropped) = (value.released.clone(), value.dropped.clone());
    let first = block(3, value);
    assert!(first.is_unique());
    let second = first.clone();
    assert!(!first.is_unique());
    drop(first);
    assert_eq!(Counted::counts(&released, &dropped), (0, 0));
    assert!(second.is_unique());
    drop(second);
    assert_eq!(Counted::counts(&released, &dropped), (1, 1));
}

#[test]
fn a_value_that_is_taken_out_is_neither_released_nor_dropped() {
    let value = Counted::new();
    let (released, dropped) = (value.released.clone(), value.dropped.clone());
    let shared = block(2, value);
    let other = shared.clone();
    let shared = shared.take_if(|_| true).err().expect("it is not unique");
    drop(other);
    let shared = shared.take_if(|_| false).err().expect("it is not wanted");
    assert_eq!(shared.shape(), [2, 3]);
    let taken = shared.take_if(|_| true).ok().expect("it is unique");
    assert_eq!(Counted::counts(&released, &dropped), (0, 0));
    drop(taken);
    assert_eq!(Counted::counts(&released, &dropped), (0, 1));
}

#[test]
fn references_on_many_threads_release_the_value_once() {
    for _ in 0..200 {
        let value = Counted::new();
        let (released, dropped) = (value.released.clone(), value.dropped.clone());
        let shared = block(4, value);
        thread::scope(|scope| {
            for _ in 0..4 {
                let shared = shared.clone();
                scope.spawn(move || {
                    for _ in 0..20 {
                        drop(shared.clone());
                    }
                });
            }
            drop(shared);
        });
        assert_eq!(Counted::counts(&released, &dropped), (1, 1));
    }
}
