//! Managed tensors: an owning handle for either struct of `dlpack.h`, and the building of our own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::{NonNull, copy_nonoverlapping};

use crate::abi::{
    DLManagedTensor, DLManagedTensorVersioned, DLPACK_FLAG_BITMASK_READ_ONLY, DLPACK_MAJOR_VERSION,
    DLPACK_MINOR_VERSION, DLPackVersion, DLTensor,
};
use crate::cpython::boundary::{guard, unraisable};
use crate::cpython::depth::{later, within};
use crate::types::error::Error;

mod offer;

pub(crate) use offer::Offer;

/// Whether the memory may be written is not known: its producer could not say, in an unversioned struct (R43).
///
/// A flag of dlx's own, which is no bit of DLPack's: it neither comes from a foreign struct nor goes into one.
pub(crate) const MAYBE_READ_ONLY: u64 = 1 << 63;

/// Nobody may write to the memory, or nobody can say that one may.
pub(crate) const PROTECTED: u64 = DLPACK_FLAG_BITMASK_READ_ONLY | MAYBE_READ_ONLY;

/// Either managed struct: the one of `dltensor` capsules or of `dltensor_versioned` ones.
///
/// Fields are read one by one, through the pointer: behind `flags` a struct of another major version may
/// not even be readable (R29).
pub(crate) trait ManagedTensor: Sized + 'static {
    /// What a snapshot of such a struct notes beside the flags that it has.
    const UNSAID: u64;

    /// The deleter, NULL as `None` (R9).
    ///
    /// # Safety
    ///
    /// `this` points to a live managed tensor.
    unsafe fn deleter(this: NonNull<Self>) -> Option<unsafe extern "C" fn(*mut Self)>;

    /// The tensor and its flags, or why they cannot be read.
    ///
    /// # Safety
    ///
    /// `this` points to a managed tensor that lives for `'a`, and that nobody writes to.
    unsafe fn read<'a>(this: NonNull<Self>) -> Result<(&'a DLTensor, u64), Error>;

    /// The struct for an export of ours.
    fn assemble(
        tensor: DLTensor,
        flags: u64,
        manager_ctx: *mut c_void,
        deleter: unsafe extern "C" fn(*mut Self),
    ) -> Self;
}

impl ManagedTensor for DLManagedTensorVersioned {
    const UNSAID: u64 = 0;

    unsafe fn deleter(this: NonNull<Self>) -> Option<unsafe extern "C" fn(*mut Self)> {
        // SAFETY: alive, as the caller promises; the field is the same in every version.
        unsafe { (*this.as_ptr()).deleter }
    }

    #[inline(always)]
    unsafe fn read<'a>(this: NonNull<Self>) -> Result<(&'a DLTensor, u64), Error> {
        // SAFETY: alive, as the caller promises; the field is the same in every version.
        let DLPackVersion { major, minor } = unsafe { (*this.as_ptr()).version };
        if major != DLPACK_MAJOR_VERSION {
            return Err(other_version(major, minor));
        }
        // SAFETY: major version 1 means that this is the struct, and it is alive.
        let this = unsafe { this.as_ref() };
        Ok((&this.dl_tensor, this.flags))
    }

    fn assemble(
        dl_tensor: DLTensor,
        flags: u64,
        manager_ctx: *mut c_void,
        deleter: unsafe extern "C" fn(*mut Self),
    ) -> Self {
        let version = DLPackVersion {
            major: DLPACK_MAJOR_VERSION,
            minor: DLPACK_MINOR_VERSION,
        };
        Self {
            version,
            manager_ctx,
            deleter: Some(deleter),
            // The only place where flags leave dlx.
            flags: flags & !MAYBE_READ_ONLY,
            dl_tensor,
        }
    }
}

impl ManagedTensor for DLManagedTensor {
    const UNSAID: u64 = MAYBE_READ_ONLY;

    unsafe fn deleter(this: NonNull<Self>) -> Option<unsafe extern "C" fn(*mut Self)> {
        // SAFETY: alive, as the caller promises.
        unsafe { (*this.as_ptr()).deleter }
    }

    unsafe fn read<'a>(this: NonNull<Self>) -> Result<(&'a DLTensor, u64), Error> {
        // SAFETY: alive, as the caller promises.
        Ok((unsafe { &(*this.as_ptr()).dl_tensor }, 0))
    }

    fn assemble(
        dl_tensor: DLTensor,
        _flags: u64,
        manager_ctx: *mut c_void,
        deleter: unsafe extern "C" fn(*mut Self),
    ) -> Self {
        Self {
            dl_tensor,
            manager_ctx,
            deleter: Some(deleter),
        }
    }
}

#[cold]
#[inline(never)]
fn other_version(major: u32, minor: u32) -> Error {
    Error::refused(format!(
        "the tensor has DLPack version {major}.{minor}, dlx reads {DLPACK_MAJOR_VERSION}.x"
    ))
}

/// The one owner of a managed tensor: dropping it calls the deleter, exactly once (R8).
pub(crate) struct Managed<M: ManagedTensor>(NonNull<M>);

// SAFETY: dlpack.h lets any thread call the deleter (R13), and the struct is only read until then.
unsafe impl<M: ManagedTensor> Send for Managed<M> {}
// SAFETY: as for `Send`; shared access only reads.
unsafe impl<M: ManagedTensor> Sync for Managed<M> {}

impl<M: ManagedTensor> Managed<M> {
    /// Takes over `tensor`.
    ///
    /// # Safety
    ///
    /// `tensor` points to a managed tensor that the caller owns and gives up; its fields are valid up to
    /// what its version promises.
    pub(crate) unsafe fn from_raw(tensor: NonNull<M>) -> Self {
        Self(tensor)
    }

    /// Gives it away: whoever gets the pointer calls the deleter.
    pub(crate) fn into_raw(self) -> NonNull<M> {
        ManuallyDrop::new(self).0
    }

    /// The tensor and its flags; no flags for the unversioned struct.
    #[inline(always)]
    pub(crate) fn read(&self) -> Result<(&DLTensor, u64), Error> {
        // SAFETY: we own the tensor, so it is alive and as it is until `self` is dropped or given away (S3).
        unsafe { M::read(self.0) }
    }
}

impl<M: ManagedTensor> Managed<M> {
    /// Calls the deleter of a tensor of dlx's own, which is no link of a chain by itself.
    pub(crate) fn delete(self) {
        ManuallyDrop::new(self).call_deleter();
    }

    /// The one call of the deleter.
    #[inline(always)]
    fn call_deleter(&self) {
        // SAFETY: we own the tensor, so it is alive until the deleter is called (S3).
        if let Some(deleter) = unsafe { M::deleter(self.0) } {
            // SAFETY: we own the tensor and never touch it again (S3).
            unsafe { deleter(self.0.as_ptr()) };
        }
    }
}

impl<M: ManagedTensor> Drop for Managed<M> {
    fn drop(&mut self) {
        if !within(|| self.call_deleter()) {
            let this = Self(self.0);
            later(|| drop(this));
        }
    }
}

/// An export: the managed struct, what keeps its memory alive, and behind it `shape` and `strides`, all in
/// one allocation. The struct comes first, so its address is the allocation's (invariant S4).
#[repr(C)]
struct Export<M, O> {
    managed: M,
    owner: O,
    ndim: usize,
}

/// The allocation of an [`Export`], and where its dimensions begin.
fn layout<M, O>(ndim: usize) -> Result<(Layout, usize), Error> {
    Layout::array::<i64>(2 * ndim)
        .and_then(|dimensions| Layout::new::<Export<M, O>>().extend(dimensions))
        .map_err(|_| Error::OutOfMemory(usize::MAX))
}

/// The allocation of an [`Export`] that exists.
///
/// # Safety
///
/// There is an allocation for so many dimensions, made by `place`.
#[inline(always)]
unsafe fn placed<M, O>(ndim: usize) -> Layout {
    const { assert!(size_of::<Export<M, O>>().is_multiple_of(align_of::<i64>())) };
    let size = size_of::<Export<M, O>>() + size_of::<i64>() * 2 * ndim;
    // SAFETY: an alignment that the compiler uses; the same size did not overflow in `layout`.
    unsafe { Layout::from_size_align_unchecked(size, align_of::<Export<M, O>>()) }
}

/// A new managed tensor over the memory of `tensor`, with `shape` and `strides` copied.
///
/// `owner` keeps the memory alive and is dropped by the deleter, on whatever thread that runs.
///
/// # Errors
///
/// `OutOfMemory`; `owner` is dropped then.
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

/// A complete [`Export`] in an allocation of its own, which `deleter` is to free.
fn place<M: ManagedTensor, O>(
    mut tensor: DLTensor,
    shape: &[i64],
    strides: &[i64],
    flags: u64,
    owner: O,
    deleter: unsafe extern "C" fn(*mut M),
) -> Result<NonNull<Export<M, O>>, Error> {
    let ndim = shape.len().min(strides.len());
    let (layout, dimensions) = layout::<M, O>(ndim)?;
    // SAFETY: the layout is not empty, it holds at least the struct.
    let block = unsafe { System.alloc(layout) };
    let Some(start) = NonNull::new(block.cast()) else {
        return Err(Error::OutOfMemory(layout.size()));
    };
    // SAFETY: `dimensions` is the offset of the dimensions in the allocation.
    tensor.shape = unsafe { block.add(dimensions) }.cast();
    // SAFETY: the allocation has room for `2 * ndim` dimensions, the strides are the second half.
    tensor.strides = unsafe { tensor.shape.add(ndim) };
    // SAFETY: both sides hold `ndim` values, and the allocation is new.
    unsafe { copy_nonoverlapping(shape.as_ptr(), tensor.shape, ndim) };
    // SAFETY: as for the shape.
    unsafe { copy_nonoverlapping(strides.as_ptr(), tensor.strides, ndim) };
    let export = Export {
        // The deleter does not need it, but Paddle calls none where it is NULL.
        managed: M::assemble(tensor, flags, block.cast(), deleter),
        owner,
        ndim,
    };
    // SAFETY: the allocation is laid out for this struct and is ours alone.
    unsafe { start.write(export) };
    Ok(start)
}

/// The deleter of every export: lets go of the owner and frees the allocation.
unsafe extern "C" fn delete<M: ManagedTensor, O>(managed: *mut M) {
    let block = managed.cast::<Export<M, O>>();
    guard(
        || {
            // SAFETY: only `export` installs this deleter, at the start of such an allocation, and whoever
            // calls it gives the tensor up (S4). Fields that the consumer may write are not read.
            let Export { owner, ndim, .. } = unsafe { block.read() };
            // SAFETY: allocated by `place` for this many dimensions.
            let layout = unsafe { placed::<M, O>(ndim) };
            // SAFETY: allocated by `place` with this same layout.
            unsafe { System.dealloc(block.cast(), layout) };
            drop(owner);
        },
        unraisable,
    );
}
