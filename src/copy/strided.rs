//! Copies elements between two strided layouts.
//!
//! [`reduced`] drops loops of extent 1, merges loops that continue each other, and moves the loop with the smallest
//! read stride next to the innermost one, which has the smallest write stride. [`copy`] then matches the loops that are
//! left, outermost first:
//!
//! ```text
//! copy(loops):
//!     []                 copy one element
//!     [run]              memcpy, fill, or copy element by element
//!     [rows, columns]    if rows are closer together than columns in the source, for as many columns as a cache
//!                        line holds: copy that part of each row
//!     [outer, inner...]  for each step of outer: copy(inner)
//! ```

use std::ptr::copy_nonoverlapping;

mod bits;
mod tiles;

pub(crate) use bits::copy_bits;
use tiles::{run, tiles};

/// One loop: its extent, and its stride in bytes on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dimension {
    extent: i64,
    from: i64,
    to: i64,
}

impl Dimension {
    /// A loop of `extent` steps; `from` and `to` are strides in bytes.
    pub(crate) fn new(extent: i64, from: i64, to: i64) -> Self {
        Self { extent, from, to }
    }

    /// The places on either side, `steps` steps later.
    fn after(self, steps: i64, from: *const u8, to: *mut u8) -> (*const u8, *mut u8) {
        let offset = |stride: i64| (stride * steps) as isize;
        let from = from.wrapping_offset(offset(self.from));
        (from, to.wrapping_offset(offset(self.to)))
    }
}

/// The fewest of these loops, outermost first, that visit the same elements. The last has the smallest write stride and
/// the one before it the smallest read stride; broadcast loops stay where they are.
pub(crate) fn reduced(mut loops: Vec<Dimension>) -> Vec<Dimension> {
    loops.retain(|each| each.extent != 1);
    loops.dedup_by(|inner, outer| {
        let [from, to] = [inner.from, inner.to].map(|stride| stride * inner.extent);
        let continues = (outer.from, outer.to) == (from, to);
        if continues {
            *outer = Dimension::new(outer.extent * inner.extent, inner.from, inner.to);
        }
        continues
    });
    if let Some((inner, outer)) = loops.split_last_mut()
        && let steps = (0..outer.len()).filter(|&index| outer[index].from != 0)
        && let Some(nearest) = steps.min_by_key(|&index| outer[index].from.abs())
        && outer[nearest].from.abs() < inner.from.abs()
    {
        outer[nearest..].rotate_left(1);
    }
    loops
}

/// Copies every element of `item` bytes along loops, outermost first.
///
/// # Safety
///
/// Every element that the loops reach from `from` is readable, every one that they reach from `to` is writable, and the
/// two do not overlap.
pub(crate) unsafe fn copy(loops: &[Dimension], item: i64, from: *const u8, to: *mut u8) {
    match *loops {
        // SAFETY: one element on either side.
        [] => unsafe { copy_nonoverlapping(from, to, item as usize) },
        // SAFETY: this loop is the only one.
        [one] => unsafe { run(one, item, from, to) },
        [rows, columns] if rows.from != 0 && rows.from.abs() < columns.from.abs() => {
            // SAFETY: these two loops are all.
            unsafe { tiles(rows, columns, item, from, to) };
        }
        [outer, ref inner @ ..] => {
            for index in 0..outer.extent {
                let (from, to) = outer.after(index, from, to);
                // SAFETY: the elements within this step.
                unsafe { copy(inner, item, from, to) };
            }
        }
    }
}

#[cfg(test)]
mod tests;
