//! Sub-byte elements, packed in little-endian bit order (R107).

use super::Dimension;

/// Copies packed elements of `bits` bits.
///
/// # Safety
///
/// As for [`super::copy`], with strides in elements of `bits` bits.
pub(crate) unsafe fn copy_bits(loops: &[Dimension], bits: i64, from: *const u8, to: *mut u8) {
    let total: i64 = loops.iter().map(|each| each.extent).product();
    // SAFETY: the destination is compact, so these are the bytes of its `total` elements.
    unsafe { to.write_bytes(0, ((total * bits + 7) / 8) as usize) };
    // An element that never straddles bytes is moved whole, any other bit by bit.
    let (part, parts) = if 8 % bits == 0 { (bits, 1) } else { (1, bits) };
    let mask = (1_u8 << part) - 1;
    let mut element = |from_index: i64, to_index: i64| {
        for index in 0..parts {
            let bit = |element: i64| (element * parts + index) * part;
            let (source, target) = (bit(from_index), bit(to_index));
            // SAFETY: this byte holds part of an element that the loops reach.
            let byte = unsafe { from.wrapping_offset((source >> 3) as isize).read() };
            let value = byte >> (source & 7) & mask;
            let target_byte = to.wrapping_offset((target >> 3) as isize);
            // SAFETY: as above; it was zeroed at the start.
            let old = unsafe { target_byte.read() };
            // SAFETY: as above.
            unsafe { target_byte.write(old | value << (target & 7)) };
        }
    };
    visit(loops, 0, 0, &mut element);
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
