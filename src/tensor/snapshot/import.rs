//! Imports of foreign managed tensors into snapshots.

use std::cell::Cell;
use std::mem::{ManuallyDrop, replace};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::{Snapshot, Source};
use crate::abi::{DLDevice, DLTensor};
use crate::stream::usage::StreamUsage;
use crate::tensor::checked::{Checked, Meta, dimensions, is_exact};
use crate::tensor::managed::{Managed, ManagedTensor, ManagedVersioned};
use crate::types::error::Error;

/// Checks a foreign tensor.
///
/// # Safety
///
/// `managed` may move, but is not dropped while the description is used.
#[inline(always)]
unsafe fn checked<'a, M: ManagedTensor>(managed: &Managed<M>) -> Result<Checked<'a>, Error> {
    let (tensor, flags) = managed.read()?;
    // SAFETY: `managed` owns the tensor, so its dimensions are valid (R100) and stay so (S3, managed tensors).
    let (shape, strides) = unsafe { dimensions(tensor) }?;
    let mut checked = Checked::new(Meta::of(tensor, flags)?, shape, strides)?;
    checked.meta.flags = managed.versioned(checked.meta.flags) | M::UNSAID;
    Ok(checked)
}

impl Snapshot {
    /// Takes ownership of a foreign tensor; one that it refuses is left to the caller.
    ///
    /// `usage` says what the elements wait for.
    pub(crate) fn import<M>(
        managed: ManuallyDrop<Managed<M>>,
        usage: Option<Arc<StreamUsage>>,
    ) -> Result<Self, Error>
    where
        M: ManagedTensor,
        Source: From<Managed<M>>,
    {
        // SAFETY: `managed` moves into the snapshot, or is not dropped.
        let checked = unsafe { checked(&managed) }?;
        Ok(checked.with_usage(ManuallyDrop::into_inner(managed).into(), usage))
    }

    /// As [`Self::import`], without streams; deletes a tensor that it refuses.
    pub(crate) fn of(managed: ManagedVersioned) -> Result<Self, Error> {
        // SAFETY: `managed` moves into the snapshot.
        let checked = unsafe { checked(&managed) }?;
        Ok(checked.over(managed.into()))
    }

    /// `managed` itself, checked, if an export of its snapshot would have the same fields, so that it can be passed on; else
    /// that export.
    #[inline(always)]
    pub(crate) fn conforming(managed: ManagedVersioned) -> Result<ManagedVersioned, Error> {
        let (tensor, flags) = managed.read()?;
        // SAFETY: `managed` owns the tensor, so its dimensions are valid while it is borrowed (S3, managed tensors).
        match unsafe { is_exact(tensor, flags) }? {
            true => Ok(managed),
            // Nothing else uses the memory.
            false => Self::of(managed)?.export(true),
        }
    }

    /// Takes ownership of a tensor on `device` that [`Meta::usual`] accepts; returns others. Also returns the offset of the
    /// last element from the first, in elements, if it fits 32 bits and its computation cannot have overflowed.
    #[inline(always)]
    pub(crate) fn import_fast(
        managed: ManagedVersioned,
        device: DLDevice,
    ) -> Result<(Self, Option<u32>), ManagedVersioned> {
        let Ok((tensor, flags)) = managed.read() else {
            return Err(managed);
        };
        let Some(meta) = Meta::usual(tensor, flags).filter(|meta| meta.device == device) else {
            return Err(managed);
        };
        let tensor = *tensor;
        // SAFETY: `managed` owns the tensor, which has `ndim` extents and strides (S3).
        Ok(unsafe { Self::read(meta, managed.into(), &tensor) })
    }

    /// A snapshot over `source` of a tensor that [`Meta::usual`] accepts, with the offset of its last element as in
    /// [`Self::import_fast`]; `None` if it has another form.
    ///
    /// # Safety
    ///
    /// `shape` and `strides` of the tensor, if not NULL, point to `ndim` values.
    #[inline(always)]
    pub(crate) unsafe fn lent_fast(
        tensor: &DLTensor,
        source: impl FnOnce() -> Source,
    ) -> Option<(Self, Option<u32>)> {
        let meta = Meta::usual(tensor, 0)?;
        // SAFETY: the caller's promise; neither is NULL.
        Some(unsafe { Self::read(meta, source(), tensor) })
    }

    /// A snapshot with the dimensions of `tensor`, and the offset of its last element as in [`Self::import_fast`].
    ///
    /// # Safety
    ///
    /// Its `shape` and `strides` point to `ndim` values, at most 64.
    #[inline(always)]
    unsafe fn read(meta: Meta, source: Source, tensor: &DLTensor) -> (Self, Option<u32>) {
        let read = |values: *mut i64, index: usize| {
            // SAFETY: the caller's promise.
            let value = unsafe { values.add(index) };
            // SAFETY: as above; another thread may change it, so it is read once and atomically (S13, torch's layout).
            unsafe { AtomicI64::from_ptr(value) }.load(Ordering::Relaxed)
        };
        let (last, bits) = (Cell::new(0_i64), Cell::new(0));
        let dimension = |index| {
            let (extent, stride) = (read(tensor.shape, index), read(tensor.strides, index));
            bits.set(bits.get() | extent | stride);
            last.set(
                last.get()
                    .wrapping_add((extent.wrapping_sub(1)).wrapping_mul(stride)),
            );
            (extent, stride)
        };
        let snapshot = Self::new(meta, source, None, tensor.ndim as usize, dimension);
        // If no value has more bits than this, the sum of at most 64 products does not overflow.
        let is_small = bits.get() >> 28 == 0;
        let last = u32::try_from(last.get()).ok();
        (snapshot, last.filter(|_| is_small))
    }

    /// Releases ownership of the imported tensor without deleting it, if this is the sole reference.
    pub(crate) fn forget(mut self) -> Result<(), Self> {
        let Some(fields) = self.0.get_mut() else {
            return Err(self);
        };
        if let Source::Versioned(managed) = replace(&mut fields.source, Source::Static) {
            managed.into_raw();
        }
        Ok(())
    }
}
