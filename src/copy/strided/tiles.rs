//! The innermost loops of a strided copy: a run of elements, and tiles that are transposed.

use std::ptr::copy_nonoverlapping;

use super::Dimension;

/// Bytes of a cache line.
const CACHE_LINE: i64 = 64;

/// Copies a run of elements of `item` bytes.
///
/// # Safety
///
/// Every element that the loop reaches from `from` is readable, every one that it reaches from `to` is writable, and
/// the two do not overlap.
pub(super) unsafe fn run(run: Dimension, item: i64, from: *const u8, to: *mut u8) {
    let each: unsafe fn(Dimension, i64, *const u8, *mut u8) = match item {
        // SAFETY: `extent` contiguous elements on either side.
        _ if run.from == item && run.to == item => unsafe {
            return copy_nonoverlapping(from, to, (run.extent * item) as usize);
        },
        1 => run_of::<1>,
        2 => run_of::<2>,
        4 => run_of::<4>,
        8 => run_of::<8>,
        16 => run_of::<16>,
        _ => run_of::<0>,
    };
    // SAFETY: the caller's promise; each function copies elements of `item` bytes.
    unsafe { each(run, item, from, to) };
}

/// As [`run`], element by element. `SIZE` is the size of one, or 0: the compiler makes a load and a store of a size that it
/// knows.
unsafe fn run_of<const SIZE: usize>(run: Dimension, item: i64, from: *const u8, to: *mut u8) {
    let size = if SIZE == 0 { item as usize } else { SIZE };
    for index in 0..run.extent {
        let (from, to) = run.after(index, from, to);
        // SAFETY: one step of the loop.
        unsafe { copy_nonoverlapping(from, to, size) };
    }
}

/// Copies two loops, tile by tile: each touches every cache line once on either side.
///
/// # Safety
///
/// As for [`run`], of both loops.
pub(super) unsafe fn tiles(
    rows: Dimension,
    columns: Dimension,
    item: i64,
    from: *const u8,
    to: *mut u8,
) {
    let line = (CACHE_LINE / item).max(1);
    for column in (0..columns.extent).step_by(line as usize) {
        let extent = line.min(columns.extent - column);
        let (from, to) = columns.after(column, from, to);
        let part = Dimension::new(extent, columns.from, columns.to);
        for row in 0..rows.extent {
            let (from, to) = rows.after(row, from, to);
            // SAFETY: part of a row.
            unsafe { run(part, item, from, to) };
        }
    }
}
