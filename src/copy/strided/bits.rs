//! Sub-byte elements, packed in little-endian bit order (R107).

use super::{Dimension, Walk};

/// Copies packed elements of `bits` bits.
///
/// # Safety
///
/// As for [`Walk::copy`], with strides in elements of `bits` bits.
pub(crate) unsafe fn copy_bits(walk: &Walk, from: *const u8, to: *mut u8, bits: i64) {
    let extents = walk.dimensions.iter().map(|dimension| dimension.extent);
    let total: i64 = extents.product();
    // SAFETY: the destination is compact, so these are the bytes of its `total` elements.
    unsafe { to.write_bytes(0, ((total * bits + 7) / 8) as usize) };
    // An element that never straddles bytes is moved whole, any other bit by bit.
    let (part, parts) = if 8 % bits == 0 { (bits, 1) } else { (1, bits) };
    let mask = (1_u8 << part) - 1;
    let mut element = |from_index: i64, to_index: i64| {
        for index in 0..parts {
            let (source, target) = (
                (from_index * parts + index) * part,
                (to_index * parts + index) * part,
            );
            // SAFETY: this byte holds part of an element of the walk.
            let byte = unsafe { from.wrapping_offset((source >> 3) as isize).read() };
            let value = byte >> (source & 7) & mask;
            let target_byte = to.wrapping_offset((target >> 3) as isize);
            // SAFETY: as above; it was zeroed at the start.
            let old = unsafe { target_byte.read() };
            // SAFETY: as above.
            unsafe { target_byte.write(old | value << (target & 7)) };
        }
    };
    visit(&walk.dimensions, 0, 0, &mut element);
}

/// Calls `element` with the position of each element on either side.
fn visit(dimensions: &[Dimension], from: i64, to: i64, element: &mut impl FnMut(i64, i64)) {
    match *dimensions {
        [] => element(from, to),
        [outer, ref inner @ ..] => {
            for index in 0..outer.extent {
                let (from, to) = (from + outer.from * index, to + outer.to * index);
                visit(inner, from, to, element);
            }
        }
    }
}
