//! Copies on the CPU: any strided layout into compact row-major memory that dlx allocates.

use pyo3::prelude::*;

use crate::abi::*;
use crate::copy::strided::{Dimension, Walk, copy_bits};
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
        let name = device::name(device);
        let message = format!("dlx cannot copy memory on {name}, only on cpu");
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

fn copy(source: &Snapshot) -> Result<Snapshot, Error> {
    let copied = room(source)?;
    if source.size() > 0 {
        fill(source, copied.meta().data.cast());
    }
    Ok(copied)
}

/// Writes the elements of a non-empty `source` in row-major order to `to`, which has room for them.
fn fill(source: &Snapshot, to: *mut u8) {
    let from = source.meta().data.cast::<u8>().cast_const();
    let bits = i64::from(source.meta().bits());
    if source.is_row_major() {
        // One contiguous run of bytes, whatever the dtype.
        let bytes = Dimension::new(source.nbytes(), 1, 1);
        // SAFETY: all of `source` is readable (S7), and `to` has room for as many bytes.
        unsafe { Walk::new(vec![bytes], 1).copy(from, to) };
    } else if bits % 8 == 0 {
        let item = bits / 8;
        // SAFETY: as above.
        unsafe { Walk::new(dimensions(source, item), item).copy(from, to) };
    } else {
        // SAFETY: as above; the strides count elements of `bits` bits.
        unsafe { copy_bits(&Walk::new(dimensions(source, 1), 1), from, to, bits) };
    }
}

/// The loops from `source`, in elements of `item` bytes, to row-major memory.
pub(crate) fn dimensions(source: &Snapshot, item: i64) -> Vec<Dimension> {
    let shape = source.shape();
    let dimensions = shape.iter().zip(source.strides()).enumerate();
    let dimensions = dimensions.map(|(index, (&extent, &stride))| {
        // The stride of a single element may be any number; it is not used.
        Dimension::new(
            extent,
            stride.wrapping_mul(item),
            layout::row_major(shape, index) * item,
        )
    });
    dimensions.collect()
}
