//! Copies on the CPU: any strided layout into compact row-major memory that dlx allocates.

use std::ptr::copy_nonoverlapping;

use pyo3::prelude::*;

use crate::abi::*;
use crate::copy::strided::{self, Dimension, copy_bits, reduced};
use crate::tensor::snapshot::Snapshot;
use crate::types::error::Error;
use crate::types::{device, layout};

/// Whether dlx can copy a tensor within this device on the host.
pub(crate) fn can(device: DLDevice) -> bool {
    device.device_type == kDLCPU
}

/// A compact row-major copy on the CPU, aligned to 256 bytes, with IS_COPIED set (R37, R59).
///
/// # Errors
///
/// `BufferError` for memory that the CPU cannot read, `MemoryError`.
pub(crate) fn compact(py: Python<'_>, source: &Snapshot) -> PyResult<Snapshot> {
    let device = source.meta().device;
    if !device::is_readable(device) {
        let message = format!("dlx cannot copy memory on {device}, only on cpu");
        return Err(Error::refused(message).into());
    }
    Ok(py.detach(|| copy(source))?)
}

/// The flags of a copy of `source`.
pub(super) fn flags(source: &Snapshot) -> u64 {
    DLPACK_FLAG_BITMASK_IS_COPIED | source.meta().flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED
}

/// Memory on the CPU for a copy of `source`.
pub(super) fn room(source: &Snapshot) -> Result<Snapshot, Error> {
    Snapshot::allocate(source.shape(), source.meta().dtype, flags(source))
}

/// Copies the elements of `source` in row-major order.
fn copy(source: &Snapshot) -> Result<Snapshot, Error> {
    let copied = room(source)?;
    if source.size() == 0 {
        return Ok(copied);
    }
    let to = copied.meta().data.cast::<u8>();
    let from = source.meta().data.cast::<u8>().cast_const();
    let bits = i64::from(source.meta().bits());
    if source.is_row_major() {
        // SAFETY: all of `source` is readable (S7), and `to` has room for as many bytes.
        unsafe { copy_nonoverlapping(from, to, source.nbytes() as usize) };
    } else if bits % 8 == 0 {
        // SAFETY: as above.
        unsafe { strided::copy(&loops(source, bits / 8), bits / 8, from, to) };
    } else {
        // SAFETY: as above; the strides count elements of `bits` bits.
        unsafe { copy_bits(&loops(source, 1), bits, from, to) };
    }
    Ok(copied)
}

/// The loops over `source`, whose elements have `item` bytes, to row-major memory.
fn loops(source: &Snapshot, item: i64) -> Vec<Dimension> {
    let (shape, strides) = (source.shape(), source.strides());
    let dimension = |index: usize| {
        // The stride of a single element may be any number; it is not used.
        let from = strides[index].wrapping_mul(item);
        Dimension::new(shape[index], from, layout::row_major(shape, index) * item)
    };
    reduced((0..shape.len()).map(dimension).collect())
}
