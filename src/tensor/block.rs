//! A `DLTensor` with a value beside it and its dimensions behind, in one allocation, counted: what a snapshot is.
//!
//! `Arc` would do but for two things that the hot paths pay for: it writes to the count even where nobody else
//! holds the value, and it cannot be filled in place (invariant S21 of `docs/safety.md`).

use std::alloc::{GlobalAlloc, Layout, System, handle_alloc_error};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::process::abort;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use crate::abi::{DLDataType, DLTensor};

/// The allocation: the extents and strides that `tensor` points to lie behind it.
#[repr(C)]
struct Block<T> {
    count: AtomicUsize,
    tensor: DLTensor,
    value: T,
}

/// What may lie beside a tensor.
pub(crate) trait Beside {
    /// Called when the last holder lets go, before the value is dropped.
    fn let_go(&mut self, dtype: DLDataType, shape: &[i64]);
}

/// One holder of a tensor and of the value beside it.
pub(crate) struct Shared<T: Beside>(NonNull<Block<T>>, PhantomData<Block<T>>);

// SAFETY: as for `Arc`: holders in several threads share the value, and the last one drops it. The dimensions are in
// the block and never written; nobody follows `data` here, and DLPack hands tensors to any thread (R13).
unsafe impl<T: Beside + Send + Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Beside + Send + Sync> Sync for Shared<T> {}

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

impl<T: Beside> Shared<T> {
    /// Holds `value`, and `tensor` with `ndim` dimensions of its own: each an extent and a stride, from its index.
    ///
    /// There are at most 64 dimensions.
    #[inline(always)]
    pub(crate) fn new(
        value: T,
        mut tensor: DLTensor,
        ndim: usize,
        dimension: impl Fn(usize) -> (i64, i64),
    ) -> Self {
        // Not dropped should the rest panic, so that it need not lie in memory until then.
        let value = ManuallyDrop::new(value);
        tensor.ndim = ndim as i32;
        let layout = layout::<T>(ndim);
        // SAFETY: a block is larger than nothing.
        let start = unsafe { System.alloc(layout) };
        let Some(block) = NonNull::new(start.cast::<Block<T>>()) else {
            handle_alloc_error(layout);
        };
        // SAFETY: the numbers lie directly behind the block, in the same allocation (S21).
        let numbers = unsafe { block.add(1) }.cast::<i64>();
        for index in 0..ndim {
            let (extent, stride) = dimension(index);
            // SAFETY: the first `ndim` numbers behind the block.
            let place = unsafe { numbers.add(index) };
            // SAFETY: as above; nobody else has seen the block.
            unsafe { place.write(extent) };
            // SAFETY: the `ndim` numbers behind those.
            let place = unsafe { place.add(ndim) };
            // SAFETY: as above.
            unsafe { place.write(stride) };
        }
        tensor.shape = numbers.as_ptr();
        // SAFETY: the strides lie behind the `ndim` extents.
        tensor.strides = unsafe { numbers.add(ndim) }.as_ptr();
        let head = Block {
            count: AtomicUsize::new(1),
            tensor,
            value: ManuallyDrop::into_inner(value),
        };
        // SAFETY: the allocation begins with room for a block (S21).
        unsafe { block.write(head) };
        Self(block, PhantomData)
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

    /// What is held, taken out by the last holder, if it is `wanted`; otherwise the holder goes on.
    #[inline(always)]
    pub(crate) fn take_if(self, wanted: impl FnOnce(&T) -> bool) -> Result<T, Self> {
        if !self.is_unique() || !wanted(self.value()) {
            return Err(self);
        }
        let layout = layout::<T>(self.ndim());
        let block = ManuallyDrop::new(self).0;
        // SAFETY: in the block, which is alive (S21).
        let value = unsafe { &raw const (*block.as_ptr()).value };
        // SAFETY: the last holder, which is not dropped; the block is freed without it.
        let value = unsafe { value.read() };
        // SAFETY: allocated by `new` with this layout.
        unsafe { System.dealloc(block.as_ptr().cast(), layout) };
        Ok(value)
    }

    /// Whether nobody else holds it: then nobody can begin to.
    #[inline(always)]
    pub(crate) fn is_unique(&self) -> bool {
        self.block().count.load(Ordering::Acquire) == 1
    }

    /// The tensor, whose dimensions are valid as long as it is held.
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
        // SAFETY: `ndim` numbers, written by `new` and never changed (S21).
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
        // Whoever holds it keeps it alive, so the count orders nothing here.
        if self.block().count.fetch_add(1, Ordering::Relaxed) > isize::MAX as usize {
            // So many holders have been forgotten that the count is about to begin anew.
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
            // What others did before they let go comes before the value is dropped.
            fence(Ordering::Acquire);
        }
        let layout = layout::<T>(self.ndim());
        // SAFETY: the last holder, so nobody else has a reference to the block.
        let Block { tensor, value, .. } = unsafe { self.0.as_mut() };
        // SAFETY: `ndim` numbers behind the block, written by `new` and never changed (S21).
        let shape = unsafe { slice::from_raw_parts(tensor.shape, tensor.ndim as usize) };
        value.let_go(tensor.dtype, shape);
        // SAFETY: the last holder; the value is not used again.
        unsafe { self.0.drop_in_place() };
        // SAFETY: allocated by `new` with this layout.
        unsafe { System.dealloc(self.0.as_ptr().cast(), layout) };
    }
}
