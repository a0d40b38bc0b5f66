//! The managed tensors that dlx exports, each with its owner and dimensions in one allocation.

use std::alloc::{GlobalAlloc, System};
use std::ptr::{NonNull, copy_nonoverlapping};

use super::{Managed, ManagedTensor};
use crate::abi::DLTensor;
use crate::cpython::boundary::{guard, unraisable};
use crate::tensor::block::layout;
use crate::types::error::Error;

/// An export: the managed struct and its owner, followed by shape and strides in the same allocation. The struct is
/// the first field, so its address is that of the allocation (S4, exports).
#[repr(C)]
pub(super) struct Export<M, O> {
    managed: M,
    pub(super) owner: O,
    pub(super) ndim: usize,
}

/// A new managed tensor over the memory of `tensor`, with copies of `shape` and `strides`.
///
/// `owner` keeps the memory alive; the deleter drops it, on any thread.
///
/// # Errors
///
/// `OutOfMemory`; `owner` is then dropped.
#[inline(always)]
pub(crate) fn export<M: ManagedTensor, O: Send + 'static>(
    tensor: DLTensor,
    shape: &[i64],
    strides: &[i64],
    flags: u64,
    owner: O,
) -> Result<Managed<M>, Error> {
    let start = place(tensor, shape, strides, flags, owner, delete::<M, O>)?;
    // SAFETY: the struct is complete, and `delete` frees it (S4).
    Ok(unsafe { Managed::from_raw(start.cast()) })
}

/// A complete [`Export`] in its own allocation, to be freed by `deleter`.
pub(super) fn place<M: ManagedTensor, O>(
    mut tensor: DLTensor,
    shape: &[i64],
    strides: &[i64],
    flags: u64,
    owner: O,
    deleter: unsafe extern "C" fn(*mut M),
) -> Result<NonNull<Export<M, O>>, Error> {
    let ndim = shape.len().min(strides.len());
    let layout = layout::<Export<M, O>>(ndim);
    // SAFETY: the size is not zero, since it includes the struct.
    let block = unsafe { System.alloc(layout) };
    let Some(start) = NonNull::new(block.cast::<Export<M, O>>()) else {
        return Err(Error::OutOfMemory(layout.size()));
    };
    // SAFETY: the dimensions follow the struct in the same allocation.
    tensor.shape = unsafe { start.add(1) }.cast().as_ptr();
    // SAFETY: the allocation has room for `2 * ndim` values; the strides are the second half.
    tensor.strides = unsafe { tensor.shape.add(ndim) };
    // SAFETY: both sides have `ndim` values, and the allocation is new.
    unsafe { copy_nonoverlapping(shape.as_ptr(), tensor.shape, ndim) };
    // SAFETY: as for the shape.
    unsafe { copy_nonoverlapping(strides.as_ptr(), tensor.strides, ndim) };
    let export = Export {
        // The deleter does not need the context, but Paddle skips the deleter if it is NULL.
        managed: M::assemble(tensor, flags, block.cast(), deleter),
        owner,
        ndim,
    };
    // SAFETY: the allocation has the layout of this struct and is not shared yet.
    unsafe { start.write(export) };
    Ok(start)
}

/// The deleter of every export: drops the owner and frees the allocation.
pub(super) unsafe extern "C" fn delete<M: ManagedTensor, O>(managed: *mut M) {
    let block = managed.cast::<Export<M, O>>();
    guard(
        || {
            // SAFETY: only `export` installs this deleter, on the start of such an allocation, and its caller gives
            // the tensor up (S4). It reads no field that a consumer may write.
            let Export { owner, ndim, .. } = unsafe { block.read() };
            // SAFETY: allocated by `place` with this same layout.
            unsafe { System.dealloc(block.cast(), layout::<Export<M, O>>(ndim)) };
            drop(owner);
        },
        unraisable,
    );
}
