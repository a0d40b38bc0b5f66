//! A value with numbers behind it, in one allocation, counted: what a snapshot is made of.
//!
//! `Arc` would do but for two things that the hot paths pay for: it writes to the count even where nobody else
//! holds the value, and it cannot be filled in place (invariant S21 of `docs/safety.md`).

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::process::abort;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// The allocation: `2 * ndim` numbers lie behind it.
#[repr(C)]
struct Block<T> {
    count: AtomicUsize,
    ndim: usize,
    value: T,
}

/// One holder of a value, and of a shape and strides.
pub(crate) struct Shared<T>(NonNull<Block<T>>, PhantomData<Block<T>>);

// SAFETY: as for `Arc`: holders in several threads share the value, and the last one drops it.
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

/// The allocation for so many dimensions.
fn layout<T>(ndim: usize) -> Layout {
    const {
        assert!(align_of::<Block<T>>() == align_of::<i64>());
        assert!(size_of::<Block<T>>().is_multiple_of(align_of::<i64>()));
    }
    let numbers = size_of::<i64>() * 2 * ndim;
    // SAFETY: an alignment that the compiler uses; at most 64 dimensions do not overflow anything.
    unsafe {
        Layout::from_size_align_unchecked(size_of::<Block<T>>() + numbers, align_of::<Block<T>>())
    }
}

impl<T> Shared<T> {
    /// Holds `value`, a copy of `shape`, and as many strides, each from its index.
    ///
    /// There are at most 64 dimensions.
    #[inline(always)]
    pub(crate) fn new(value: T, shape: &[i64], stride: impl Fn(usize) -> i64) -> Self {
        let ndim = shape.len();
        let layout = layout::<T>(ndim);
        // SAFETY: a block is larger than nothing.
        let start = unsafe { alloc(layout) };
        let Some(block) = NonNull::new(start.cast::<Block<T>>()) else {
            handle_alloc_error(layout);
        };
        let head = Block {
            count: AtomicUsize::new(1),
            ndim,
            value,
        };
        // SAFETY: the allocation begins with room for a block (S21).
        unsafe { block.write(head) };
        let shared = Self(block, PhantomData);
        let numbers = shared.numbers();
        for (index, &extent) in shape.iter().enumerate() {
            // SAFETY: the first `ndim` numbers behind the block.
            let place = unsafe { numbers.add(index) };
            // SAFETY: as above; nobody else has seen the block.
            unsafe { place.write(extent) };
            // SAFETY: the `ndim` numbers behind those.
            let place = unsafe { place.add(ndim) };
            // SAFETY: as above.
            unsafe { place.write(stride(index)) };
        }
        shared
    }

    /// Where the numbers begin.
    fn numbers(&self) -> NonNull<i64> {
        // SAFETY: the numbers lie directly behind the block, in the same allocation (S21).
        unsafe { self.0.add(1) }.cast()
    }

    fn block(&self) -> &Block<T> {
        // SAFETY: alive while it is held (S21); only `get_mut`, which nobody else holds, changes it.
        unsafe { self.0.as_ref() }
    }

    /// What is held.
    #[inline(always)]
    pub(crate) fn value(&self) -> &T {
        &self.block().value
    }

    /// What is held, to be changed, if nobody else holds it.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        // SAFETY: `self` is borrowed, and nobody else has the block.
        self.is_unique()
            .then(|| unsafe { &mut (*self.0.as_ptr()).value })
    }

    /// Whether nobody else holds it: then nobody can begin to.
    #[inline(always)]
    fn is_unique(&self) -> bool {
        self.block().count.load(Ordering::Acquire) == 1
    }

    /// Number of dimensions.
    #[inline(always)]
    pub(crate) fn ndim(&self) -> usize {
        self.block().ndim
    }

    /// Extents.
    #[inline(always)]
    pub(crate) fn shape(&self) -> &[i64] {
        // SAFETY: `ndim` numbers, written by `new` and never changed.
        unsafe { slice::from_raw_parts(self.numbers().as_ptr(), self.ndim()) }
    }

    /// Strides.
    #[inline(always)]
    pub(crate) fn strides(&self) -> &[i64] {
        // SAFETY: the strides lie behind the extents.
        let strides = unsafe { self.numbers().add(self.ndim()) };
        // SAFETY: `ndim` numbers, written by `new` and never changed.
        unsafe { slice::from_raw_parts(strides.as_ptr(), self.ndim()) }
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        // Whoever holds it keeps it alive, so the count orders nothing here.
        if self.block().count.fetch_add(1, Ordering::Relaxed) > isize::MAX as usize {
            // So many holders have been forgotten that the count is about to begin anew.
            abort();
        }
        Self(self.0, PhantomData)
    }
}

impl<T> Drop for Shared<T> {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.is_unique() {
            if self.block().count.fetch_sub(1, Ordering::Release) != 1 {
                return;
            }
            // What others did before they let go comes before the value is dropped.
            fence(Ordering::Acquire);
        }
        let layout = layout::<T>(self.ndim());
        // SAFETY: the last holder; the value is not used again.
        unsafe { self.0.drop_in_place() };
        // SAFETY: allocated by `new` with this layout.
        unsafe { dealloc(self.0.as_ptr().cast(), layout) };
    }
}
