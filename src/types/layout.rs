//! Arithmetic of shapes and strides: which of them a `DLTensor` may have, and the bytes that they cover.

#![forbid(unsafe_code)]

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PySequence, PyString};

use crate::abi::DLDataType;
use crate::types::dtype;
use crate::types::error::Error;

/// Maximum number of dimensions, that of a Python buffer (`PyBUF_MAX_NDIM`).
pub(crate) const MAX_NDIM: usize = 64;

/// A shape or strides as Python gives them: a sequence of ints.
///
/// Its length is not believed, and more than any tensor has are not read.
pub(crate) struct Integers(pub(crate) Vec<i64>);

impl<'py> FromPyObject<'_, 'py> for Integers {
    type Error = PyErr;

    #[inline(never)]
    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if value.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err("a string is no sequence of ints"));
        }
        let mut all = Vec::new();
        for item in value.cast::<PySequence>()?.try_iter()?.take(MANY) {
            all.push(item?.extract()?);
        }
        Ok(Self(all))
    }
}

/// Most numbers that are read of a shape.
const MANY: usize = 1000;

/// Number of elements; the overflow check leaves out extents of 0 (R88, R109).
#[inline(always)]
pub(crate) fn size(shape: &[i64]) -> Result<i64, Error> {
    let mut product = 1_i64;
    let mut empty = false;
    for &extent in shape {
        if extent < 0 {
            return Err(refused(shape, "has a negative extent"));
        }
        empty |= extent == 0;
        product = product
            .checked_mul(extent.max(1))
            .ok_or_else(|| refused(shape, OVERFLOW))?;
    }
    Ok(if empty { 0 } else { product })
}

/// Bytes of `size` contiguous elements of `bits` bits.
///
/// Packed sub-byte elements are counted in bits and rounded up once, for the whole tensor (R110).
pub(crate) fn nbytes(size: i64, bits: u32) -> i64 {
    let bytes = (i128::from(size) * i128::from(bits) + 7) / 8;
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// The alignment of elements in bytes, the largest power of two that divides their size: three floats are aligned like one,
/// and sub-byte elements anywhere.
pub(crate) fn alignment(dtype: DLDataType) -> u64 {
    let bits = u64::from(dtype::bits(dtype));
    ((bits & bits.wrapping_neg()) / 8).max(1)
}

/// Stride of dimension `index` in a contiguous row-major layout.
pub(crate) fn row_major(shape: &[i64], index: usize) -> i64 {
    shape[index + 1..]
        .iter()
        .map(|&extent| extent.max(1))
        .product()
}

/// Whether the layout is contiguous in row-major order.
pub(crate) fn is_row_major(shape: &[i64], strides: &[i64]) -> bool {
    is_compact(shape.iter().zip(strides).rev())
}

/// Whether the layout is contiguous in column-major order.
pub(crate) fn is_column_major(shape: &[i64], strides: &[i64]) -> bool {
    is_compact(shape.iter().zip(strides))
}

/// Whether the dimensions, fastest first, are contiguous. Strides are ignored for extents of 1 and for empty tensors
/// (R99).
fn is_compact<'a>(dimensions: impl Iterator<Item = (&'a i64, &'a i64)>) -> bool {
    let (mut expected, mut compact, mut empty) = (1, true, false);
    for (&extent, &stride) in dimensions {
        empty |= extent == 0;
        compact &= extent == 1 || stride == expected;
        expected *= extent;
    }
    compact || empty
}

/// Strides in elements, from the byte strides of Python's protocols. A stride that is never used (R99) need not be a
/// multiple of `item` (R92).
pub(crate) fn element_strides(
    shape: &[i64],
    strides: &[i64],
    item: i64,
) -> Result<Vec<i64>, Error> {
    // Elements without bytes are none: their dtype is refused.
    let item = item.max(1);
    let mut steps = shape.iter().zip(strides);
    let odd = steps.any(|(&extent, &stride)| extent > 1 && stride % item != 0);
    if odd && !shape.contains(&0) {
        return Err(Error::refused(format!(
            "byte strides {strides:?} are not all multiples of the itemsize {item}; pass a copy"
        )));
    }
    Ok(strides
        .iter()
        .map(|stride| stride.div_euclid(item))
        .collect())
}

/// Lowest and highest element offset of a non-empty strided tensor, relative to its first element.
#[inline(always)]
pub(crate) fn span(shape: &[i64], strides: &[i64]) -> Result<(i64, i64), Error> {
    let (mut low, mut high) = (0_i64, 0_i64);
    for (&extent, &stride) in shape.iter().zip(strides) {
        let reach = (extent - 1).checked_mul(stride);
        let end = if stride < 0 { &mut low } else { &mut high };
        *end = reach
            .and_then(|reach| end.checked_add(reach))
            .ok_or_else(|| overflow_strides(shape, strides))?;
    }
    Ok((low, high))
}

/// The first byte of a tensor of `size` elements of `bits` bits and the one after its last, relative to the first of its
/// first element; 0 and 0 if there are none. Without strides the elements are contiguous.
///
/// They may lie a little outside of what 64 bits count.
#[cold]
#[inline(never)]
pub(crate) fn byte_span(
    size: i64,
    shape: &[i64],
    strides: Option<&[i64]>,
    bits: u32,
) -> Result<(i128, i128), Error> {
    let (low, high) = match strides {
        _ if size == 0 => return Ok((0, 0)),
        Some(strides) => span(shape, strides)?,
        None => (0, size - 1),
    };
    let (start, end) = (i128::from(low), i128::from(high) + 1);
    let bits = i128::from(bits);
    Ok(((start * bits).div_euclid(8), (end * bits + 7).div_euclid(8)))
}

/// Whether every offset between the lowest and the highest of a non-empty tensor is that of an element.
///
/// From the smallest step on, each has to lead no further than to the end of what the smaller ones reach.
#[cold]
#[inline(never)]
pub(crate) fn has_no_gaps(shape: &[i64], strides: &[i64]) -> bool {
    let mut steps: Vec<_> = steps(shape, strides).collect();
    steps.sort_unstable_by_key(|&(_, step)| step);
    let mut reached = 1_u64;
    steps.iter().all(|&(extent, step)| {
        let has_none = step <= reached;
        reached = reached.saturating_add((extent - 1).saturating_mul(step));
        has_none
    })
}

/// How many elements each dimension of several has, and how far each is from the next.
fn steps(shape: &[i64], strides: &[i64]) -> impl Iterator<Item = (u64, u64)> {
    let dimensions = shape.iter().zip(strides).filter(|&(&extent, _)| extent > 1);
    dimensions.map(|(extent, stride)| (extent.unsigned_abs(), stride.unsigned_abs()))
}

/// Whether two of the `size` elements of a non-empty tensor are at one offset: because two dimensions lead to the same
/// offset, or because there are more elements than offsets.
///
/// The converse holds for up to two dimensions. Of more, only a search would find all that meet.
#[cold]
#[inline(never)]
pub(crate) fn repeats(size: i64, shape: &[i64], strides: &[i64]) -> bool {
    let steps = || steps(shape, strides);
    let unit = steps().fold(0, |unit, (_, step)| divisor(unit, step));
    let mut offsets = 1_u64;
    for (index, (extent, step)) in steps().enumerate() {
        if step == 0 {
            return true;
        }
        offsets = offsets.saturating_add((extent - 1).saturating_mul(step / unit));
        // As many steps along one dimension as the other's step has units, and the reverse, lead to the same offset.
        let meets = |(others, other)| {
            let common = divisor(step, other);
            other / common < extent && step / common < others
        };
        if steps().skip(index + 1).any(meets) {
            return true;
        }
    }
    size.unsigned_abs() > offsets
}

/// The greatest common divisor; of 0 and another number, that number.
fn divisor(mut one: u64, mut other: u64) -> u64 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// Refuses layouts whose size or span exceeds the address space.
#[inline(always)]
pub(crate) fn check_extent(
    size: i64,
    shape: &[i64],
    strides: Option<&[i64]>,
    dtype: DLDataType,
) -> Result<(), Error> {
    let item = i64::from(dtype::bits(dtype).div_ceil(8));
    if size.checked_mul(item).is_none() {
        return Err(refused(shape, OVERFLOW));
    }
    let Some(strides) = strides.filter(|_| size > 0) else {
        return Ok(());
    };
    let (low, high) = span(shape, strides)?;
    if low.checked_mul(item).is_none() || high.checked_mul(item).is_none() {
        return Err(overflow_strides(shape, strides));
    }
    Ok(())
}

const OVERFLOW: &str = "takes more bytes than the address space has";

#[cold]
#[inline(never)]
fn refused(shape: &[i64], why: &str) -> Error {
    Error::refused(format!("shape {shape:?} {why}"))
}

#[cold]
#[inline(never)]
fn overflow_strides(shape: &[i64], strides: &[i64]) -> Error {
    Error::refused(format!(
        "shape {shape:?} with strides {strides:?} spans more bytes than the address space has"
    ))
}
