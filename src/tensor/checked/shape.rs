//! The dimensions that a struct points to: its extents and strides as slices.

use std::slice;

use crate::abi::DLTensor;
use crate::types::error::Error;
use crate::types::layout;

/// Shape, and strides if given.
pub(crate) type Dimensions<'a> = (&'a [i64], Option<&'a [i64]>);

/// The dimensions of `tensor` (R88 to R91).
///
/// # Safety
///
/// `shape` and `strides`, if not NULL, point to `ndim` values that stay valid and unchanged while the slices are used.
#[inline(always)]
pub(crate) unsafe fn dimensions<'a>(tensor: &DLTensor) -> Result<Dimensions<'a>, Error> {
    // SAFETY: the caller guarantees the pointers.
    unsafe { dimensions_at(tensor.shape, tensor.strides, tensor.ndim) }
}

/// As [`dimensions`], of any struct.
///
/// # Safety
///
/// As for [`dimensions`].
#[inline(always)]
pub(crate) unsafe fn dimensions_at<'a>(
    shape: *const i64,
    strides: *const i64,
    ndim: i32,
) -> Result<Dimensions<'a>, Error> {
    // SAFETY: the caller guarantees the pointer.
    let shape = unsafe { extents(shape, ndim) }?;
    if strides.is_null() {
        return Ok((shape, None));
    }
    // SAFETY: as for the shape; `ndim` was checked with it.
    let strides = unsafe { slice::from_raw_parts(strides, shape.len()) };
    Ok((shape, Some(strides)))
}

/// The shape of a `DLTensor` (R88).
///
/// # Safety
///
/// `shape`, if not NULL, points to `ndim` values that stay valid and unchanged for `'a`.
#[inline(always)]
pub(crate) unsafe fn extents<'a>(shape: *const i64, ndim: i32) -> Result<&'a [i64], Error> {
    match usize::try_from(ndim) {
        Ok(0) => Ok(&[]),
        Ok(ndim) if ndim > layout::MAX_NDIM => Err(too_many_dimensions(ndim)),
        Ok(_) if shape.is_null() => Err(bad_ndim("shape is NULL, but ", ndim)),
        // SAFETY: not NULL, so it points to `ndim` values, as the caller guarantees.
        Ok(ndim) => Ok(unsafe { slice::from_raw_parts(shape, ndim) }),
        Err(_) => Err(bad_ndim("", ndim)),
    }
}

#[cold]
#[inline(never)]
fn bad_ndim(what: &str, ndim: i32) -> Error {
    Error::refused(format!("{what}ndim is {ndim}"))
}

#[cold]
#[inline(never)]
pub(super) fn too_many_dimensions(ndim: usize) -> Error {
    Error::refused(format!(
        "the tensor has {ndim} dimensions; expected at most {}",
        layout::MAX_NDIM
    ))
}
