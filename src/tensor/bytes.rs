//! The bytes of a tensor, and tensors over bytes.

#![forbid(unsafe_code)]

use crate::tensor::checked::Meta;
use crate::tensor::managed::PROTECTED;
use crate::tensor::snapshot::Snapshot;
use crate::types::error::Error;
use crate::types::{device, dtype, layout};

/// The address of the smallest run of bytes that holds all elements, and its length; zeros if there are no elements.
///
/// # Errors
///
/// `BufferError` on devices whose memory has no addresses.
#[cold]
pub(crate) fn span(snapshot: &Snapshot) -> Result<(usize, i64), Error> {
    let meta = snapshot.meta();
    if snapshot.size() == 0 {
        return Ok((0, 0));
    }
    dtype::known(meta.dtype)?;
    if !device::has_addresses(meta.device) {
        return Err(Error::refused(format!(
            "memory on {} has no addresses",
            meta.device
        )));
    }
    let (shape, strides) = (snapshot.shape(), Some(snapshot.strides()));
    let (start, end) = layout::byte_span(snapshot.size(), shape, strides, meta.bits())?;
    let start_address = meta.data.addr().wrapping_add_signed(start as isize);
    Ok((start_address, (end - start) as i64))
}

/// Whether both are on the CPU, and no byte is in the span of both.
pub(crate) fn are_apart(one: &Snapshot, other: &Snapshot) -> Result<bool, Error> {
    let is_on_cpu = |each: &Snapshot| each.meta().device == device::CPU;
    if !is_on_cpu(one) || !is_on_cpu(other) {
        return Ok(false);
    }
    let (one, other) = (span(one)?, span(other)?);
    let ends_before = |(start, length): (usize, i64), (next, _)| {
        let end = start.checked_add_signed(length as isize);
        end.is_some_and(|end| end <= next)
    };
    Ok(ends_before(one, other) || ends_before(other, one))
}

/// The bytes of [`span`] as a tensor of uint8, if each belongs to an element.
///
/// # Errors
///
/// `BufferError` for gaps between the elements, and for packed elements that do not begin with a byte.
#[cold]
pub(crate) fn raw(snapshot: &Snapshot) -> Result<Snapshot, Error> {
    let run = run(snapshot)?;
    let (shape, strides) = (snapshot.shape(), snapshot.strides());
    if run.size() > 0 {
        let (low, _) = layout::span(shape, strides)?;
        let begins_with_a_byte = i128::from(low) * i128::from(snapshot.meta().bits()) % 8 == 0;
        if !begins_with_a_byte || !layout::has_no_gaps(shape, strides) {
            return Err(Error::refused(format!(
                "the tensor of shape {shape:?} and strides {strides:?} is not dense: some of its bytes belong to no \
                 element; pass t.to(copy=True)"
            )));
        }
    }
    Ok(run)
}

/// The bytes of [`span`] as a tensor of uint8, also those that belong to no element.
pub(crate) fn run(snapshot: &Snapshot) -> Result<Snapshot, Error> {
    let (address, length) = span(snapshot)?;
    let mut meta = snapshot.meta();
    meta.data = meta.data.with_addr(address);
    meta.dtype = dtype::BYTE;
    meta.flags &= PROTECTED;
    snapshot.within(meta, &[length], None)
}

/// Where a tensor lies in a run of `length` bytes.
pub(crate) struct Place {
    /// The offset of its first element.
    pub(crate) first: i64,
    /// That of its first byte.
    pub(crate) start: i64,
    /// Bytes from there to its last.
    pub(crate) length: i64,
}

/// Finds the place of a tensor of `size` elements, the first of which is `offset` bytes after the first of `length`; by
/// default, its first byte is the first.
///
/// # Errors
///
/// `BufferError` if it reaches out of these bytes.
#[cold]
pub(crate) fn place(
    meta: &Meta,
    (size, shape, strides): (i64, &[i64], Option<&[i64]>),
    offset: Option<i64>,
    length: i64,
) -> Result<Place, Error> {
    let (start, end) = layout::byte_span(size, shape, strides, meta.bits())?;
    let first = offset.map_or(-start, i128::from);
    if first + start < 0 || first + end > i128::from(length) {
        return Err(Error::refused(format!(
            "the tensor takes bytes {} to {}, outside of the buffer of {length} bytes",
            first + start,
            first + end
        )));
    }
    // They lie within the buffer.
    Ok(Place {
        first: first as i64,
        start: (first + start) as i64,
        length: (end - start) as i64,
    })
}

#[cfg(test)]
mod tests {
    use std::ptr::without_provenance_mut;

    use super::*;
    use crate::abi::{kDLCUDA, kDLUInt};
    use crate::tensor::snapshot::Source;
    use crate::types::dtype::scalar;

    /// Elements of four bytes, the first of them at `address`.
    fn at(address: usize, extent: i64, stride: i64) -> Snapshot {
        let data = without_provenance_mut(address);
        let meta = Meta::on_cpu(data, scalar(kDLUInt, 32), 0);
        Snapshot::new(meta, Source::Static, None, 1, |_| (extent, stride))
    }

    #[test]
    fn tensors_are_apart_if_no_byte_is_in_both_spans() -> Result<(), Error> {
        let one = at(1000, 4, 1);
        for (other, expected) in [
            (at(1016, 4, 1), true),
            (at(1015, 4, 1), false),
            (at(984, 4, 1), true),
            (at(985, 4, 1), false),
            (at(1004, 1, 1), false),
            // Backwards, and with gaps in which the other lies.
            (at(1028, 4, -1), true),
            (at(1028, 5, -1), false),
            (at(900, 2, 1000), false),
        ] {
            assert_eq!(are_apart(&one, &other)?, expected);
            assert_eq!(are_apart(&other, &one)?, expected);
        }
        let elsewhere = at(2000, 4, 1).on(device::of(kDLCUDA, 0))?;
        assert!(!are_apart(&one, &elsewhere)?);
        Ok(())
    }
}
