//! The innermost loops of a strided copy: a run of elements, and tiles that are transposed.

use std::ptr::copy_nonoverlapping;

use super::dimension::{Dimension, step, step_mut};

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
        1 => run_of::<u8>,
        2 => run_of::<u16>,
        4 => run_of::<u32>,
        8 => run_of::<u64>,
        16 => run_of::<u128>,
        _ => run_of_any,
    };
    // SAFETY: the caller's promise; each function copies elements of `item` bytes.
    unsafe { each(run, item, from, to) };
}

/// As [`run`], with elements of the size of `T`.
unsafe fn run_of<T: Copy>(run: Dimension, _: i64, from: *const u8, to: *mut u8) {
    for index in 0..run.extent {
        let (from, to) = (step(from, run.from, index), step_mut(to, run.to, index));
        // SAFETY: one step of the loop.
        let element = unsafe { from.cast::<T>().read_unaligned() };
        // SAFETY: as above.
        unsafe { to.cast::<T>().write_unaligned(element) };
    }
}

/// As [`run`], element by element.
unsafe fn run_of_any(run: Dimension, item: i64, from: *const u8, to: *mut u8) {
    for index in 0..run.extent {
        let (from, to) = (step(from, run.from, index), step_mut(to, run.to, index));
        // SAFETY: one step of the loop.
        unsafe { copy_nonoverlapping(from, to, item as usize) };
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
        let from = step(from, columns.from, column);
        let to = step_mut(to, columns.to, column);
        let part = Dimension::new(extent, columns.from, columns.to);
        for row in 0..rows.extent {
            let (from, to) = (step(from, rows.from, row), step_mut(to, rows.to, row));
            // SAFETY: part of a row.
            unsafe { run(part, item, from, to) };
        }
    }
}
