//! The storage of a snapshot: a `DLTensor`, a value and the dimensions in one reference-counted allocation.
//!
//! It differs from `Arc` where hot paths gain: dropping a sole reference does not write to the count, and the
//! dimensions are written in place (S21, blocks, in `docs/safety.md`).

use std::alloc::{GlobalAlloc, Layout, System, handle_alloc_error};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::process::abort;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use crate::abi::DLTensor;

/// The allocation. The extents and strides that `tensor` points to follow it.
#[repr(C)]
struct Block<T> {
    count: AtomicUsize,
    tensor: DLTensor,
    value: T,
}

/// A value stored beside a tensor.
pub(crate) trait Beside {
    /// Called when the last reference is dropped, before the value is.
    fn let_go(&mut self, tensor: &DLTensor, shape: &[i64]);
}

/// A counted reference to a tensor and the value beside it.
pub(crate) struct Shared<T: Beside>(NonNull<Block<T>>, PhantomData<Block<T>>);

// SAFETY: as for `Arc`: references on several threads share the value, and the last one drops it. The dimensions are
// in the block and never change; this module does not follow `data`, and DLPack allows tensors on any thread (R13).
unsafe impl<T: Beside + Send + Sync> Send for Shared<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Beside + Send + Sync> Sync for Shared<T> {}

/// The layout of an allocation for a `T`, followed by the extents and strides of `ndim` dimensions.
#[inline(always)]
pub(super) fn layout<T>(ndim: usize) -> Layout {
    const { assert!(align_of::<T>().is_multiple_of(align_of::<i64>())) };
    let size = size_of::<T>() + size_of::<i64>() * 2 * ndim;
    // SAFETY: the alignment is that of a Rust type; no address space has so many dimensions that the size overflows.
    unsafe { Layout::from_size_align_unchecked(size, align_of::<T>()) }
}

impl<T: Beside> Shared<T> {
    /// Stores `value`, and `tensor` with `ndim` dimensions; `dimension` returns each one's extent and stride.
    ///
    /// `ndim` is at most 64.
    #[inline(always)]
    pub(crate) fn new(
        value: T,
        mut tensor: DLTensor,
        ndim: usize,
        dimension: impl Fn(usize) -> (i64, i64),
    ) -> Self {
        // Leaked if the code below panics; dropping it then would force it into memory on every call.
        let value = ManuallyDrop::new(value);
        tensor.ndim = ndim as i32;
        let layout = layout::<Block<T>>(ndim);
        // SAFETY: the size is not zero.
        let start = unsafe { System.alloc(layout) };
        let Some(block) = NonNull::new(start.cast::<Block<T>>()) else {
            handle_alloc_error(layout);
        };
        // SAFETY: the dimensions follow the block in the same allocation (S21).
        let numbers = unsafe { block.add(1) }.cast::<i64>();
        for index in 0..ndim {
            let (extent, stride) = dimension(index);
            // SAFETY: one of the first `ndim` values after the block.
            let place = unsafe { numbers.add(index) };
            // SAFETY: as above; no other reference exists yet.
            unsafe { place.write(extent) };
            // SAFETY: one of the next `ndim` values.
            let place = unsafe { place.add(ndim) };
            // SAFETY: as above.
            unsafe { place.write(stride) };
        }
        tensor.shape = numbers.as_ptr();
        // SAFETY: the strides follow the `ndim` extents.
        tensor.strides = unsafe { numbers.add(ndim) }.as_ptr();
        let head = Block {
            count: AtomicUsize::new(1),
            tensor,
            value: ManuallyDrop::into_inner(value),
        };
        // SAFETY: the allocation starts with room for a block (S21).
        unsafe { block.write(head) };
        Self(block, PhantomData)
    }

    fn block(&self) -> &Block<T> {
        // SAFETY: alive while referenced (S21); only `get_mut` changes it, which requires the sole reference.
        unsafe { self.0.as_ref() }
    }

    /// The value.
    #[inline(always)]
    pub(crate) fn value(&self) -> &T {
        &self.block().value
    }

    /// The value, mutably, if this is the sole reference.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        // SAFETY: `self` is borrowed mutably and is the sole reference to the block.
        self.sole().map(|mut value| unsafe { value.as_mut() })
    }

    /// The value, if this is the sole reference.
    pub(crate) fn sole(&self) -> Option<NonNull<T>> {
        // SAFETY: a field of the block, which is alive (S21).
        let value = unsafe { &raw mut (*self.0.as_ptr()).value };
        NonNull::new(value).filter(|_| self.is_unique())
    }

    /// Takes the value out if this is the sole reference and the value is `wanted`; otherwise returns the reference.
    #[inline(always)]
    pub(crate) fn take_if(self, wanted: impl FnOnce(&T) -> bool) -> Result<T, Self> {
        if !self.is_unique() || !wanted(self.value()) {
            return Err(self);
        }
        let layout = layout::<Block<T>>(self.ndim());
        let block = ManuallyDrop::new(self).0;
        // SAFETY: a field of the block, which is alive (S21).
        let value = unsafe { &raw const (*block.as_ptr()).value };
        // SAFETY: this is the last reference and is not dropped; the block is freed without dropping the value.
        let value = unsafe { value.read() };
        // SAFETY: allocated by `new` with this layout.
        unsafe { System.dealloc(block.as_ptr().cast(), layout) };
        Ok(value)
    }

    /// Whether this is the sole reference; no other can then appear.
    #[inline(always)]
    pub(crate) fn is_unique(&self) -> bool {
        self.block().count.load(Ordering::Acquire) == 1
    }

    /// The tensor; its dimensions are valid as long as this reference.
    #[inline(always)]
    pub(crate) fn tensor(&self) -> &DLTensor {
        &self.block().tensor
    }

    /// Number of dimensions.
    #[inline(always)]
    pub(crate) fn ndim(&self) -> usize {
        self.tensor().ndim as usize
    }

    /// Extents.
    #[inline(always)]
    pub(crate) fn shape(&self) -> &[i64] {
        // SAFETY: `ndim` values, written by `new` and never changed (S21).
        unsafe { slice::from_raw_parts(self.tensor().shape, self.ndim()) }
    }

    /// Strides.
    #[inline(always)]
    pub(crate) fn strides(&self) -> &[i64] {
        // SAFETY: as for the extents.
        unsafe { slice::from_raw_parts(self.tensor().strides, self.ndim()) }
    }
}

impl<T: Beside> Clone for Shared<T> {
    fn clone(&self) -> Self {
        // `Relaxed` suffices: the existing reference keeps the block alive.
        if self.block().count.fetch_add(1, Ordering::Relaxed) > isize::MAX as usize {
            // So many references have been leaked that the count is about to overflow.
            abort();
        }
        Self(self.0, PhantomData)
    }
}

impl<T: Beside> Drop for Shared<T> {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.is_unique() {
            if self.block().count.fetch_sub(1, Ordering::Release) != 1 {
                return;
            }
            // Other references' last accesses happen before the value is dropped.
            fence(Ordering::Acquire);
        }
        let layout = layout::<Block<T>>(self.ndim());
        // SAFETY: the last reference, so no other access to the block exists.
        let Block { tensor, value, .. } = unsafe { self.0.as_mut() };
        // SAFETY: `ndim` values after the block, written by `new` and never changed (S21).
        let shape = unsafe { slice::from_raw_parts(tensor.shape, tensor.ndim as usize) };
        value.let_go(tensor, shape);
        // SAFETY: the last reference; the value is not used again.
        unsafe { self.0.drop_in_place() };
        // SAFETY: allocated by `new` with this layout.
        unsafe { System.dealloc(self.0.as_ptr().cast(), layout) };
    }
}

#[cfg(test)]
mod tests;
