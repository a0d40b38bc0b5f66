//! Tensors that go on as they came: what they describe, checked without a snapshot.

use crate::abi::*;
use crate::checked::{Checked, Memo, dimensions};
use crate::error::Error;
use crate::managed::Managed;

/// What a tensor describes, everything but its memory.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) device: DLDevice,
    pub(crate) dtype: DLDataType,
    pub(crate) shape: &'a [i64],
    /// In elements; `None` for compact row-major.
    pub(crate) strides: Option<&'a [i64]>,
}

impl View<'_> {
    /// Whether two neighbours are an odd number of elements apart along some dimension.
    pub(crate) fn has_odd_stride(&self) -> bool {
        let dimensions = |strides| self.shape.iter().zip::<&[i64]>(strides).rev();
        match self.strides {
            Some(strides) => {
                dimensions(strides).any(|(&extent, &stride)| extent > 1 && stride % 2 != 0)
            }
            None => self.shape.last().is_some_and(|&extent| extent > 1),
        }
    }
}

/// Checks that `managed` could be imported, and tells whether an export of that snapshot would say the same: then
/// the original may go on in its place.
#[inline(always)]
pub(crate) fn of_managed(
    managed: &Managed<DLManagedTensorVersioned>,
) -> Result<(View<'_>, bool), Error> {
    let (tensor, flags) = managed.read()?;
    // SAFETY: `managed` owns the tensor, so its dimensions are valid while it is borrowed (S3).
    unsafe { checked(&tensor, flags) }
}

/// As [`of_managed`], from a library whose tensors need no checking, as long as they look as usual.
#[inline(always)]
pub(crate) fn of_trusted(
    managed: &Managed<DLManagedTensorVersioned>,
) -> Result<(View<'_>, bool), Error> {
    let (tensor, flags) = managed.read()?;
    let usual = tensor.device.device_type == kDLCPU
        && tensor.ndim > 0
        && !tensor.data.is_null()
        && tensor.byte_offset == 0
        && flags == 0;
    if !usual {
        // SAFETY: `managed` owns the tensor, so its dimensions are valid while it is borrowed (S3).
        return unsafe { checked(&tensor, flags) };
    }
    // SAFETY: as above.
    let (shape, strides) = unsafe { dimensions(&tensor) }?;
    let view = View {
        device: tensor.device,
        dtype: tensor.dtype,
        shape,
        strides,
    };
    Ok((view, strides.is_some()))
}

/// Checks a tensor, and tells whether an export of a snapshot of it would have the same fields.
///
/// # Safety
///
/// As for [`dimensions`].
#[inline(always)]
pub(crate) unsafe fn checked<'a>(tensor: &DLTensor, flags: u64) -> Result<(View<'a>, bool), Error> {
    // SAFETY: the caller's promise.
    let (shape, strides) = unsafe { dimensions(tensor) }?;
    let checked = Checked::new(Memo::of(tensor, flags, None)?, shape, strides)?;
    Ok((checked.view(), checked.says(tensor, flags)))
}
