//! Copies elements between two strided layouts.
//!
//! [`Walk::new`] drops loops of extent 1, merges loops that continue each other, and moves the loop with the smallest
//! read stride next to the innermost one, which has the smallest write stride. [`Walk::copy`] then matches the loops
//! that are left, outermost first:
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

/// Loops, outermost first, around one element of `item` bytes.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    dimensions: Vec<Dimension>,
    item: i64,
}

impl Walk {
    /// Reduces the loops to the fewest that visit the same elements. The last has the smallest write stride and the one
    /// before it the smallest read stride; broadcast loops stay where they are.
    pub(crate) fn new(dimensions: Vec<Dimension>, item: i64) -> Self {
        let mut fewest: Vec<Dimension> = Vec::with_capacity(dimensions.len());
        for inner in dimensions
            .into_iter()
            .filter(|dimension| dimension.extent != 1)
        {
            match fewest.last_mut() {
                Some(outer)
                    if outer.from == inner.from * inner.extent
                        && outer.to == inner.to * inner.extent =>
                {
                    outer.extent *= inner.extent;
                    (outer.from, outer.to) = (inner.from, inner.to);
                }
                _ => fewest.push(inner),
            }
        }
        if let Some((inner, outer)) = fewest.split_last_mut()
            && let steps = (0..outer.len()).filter(|&index| outer[index].from != 0)
            && let Some(nearest) = steps.min_by_key(|&index| outer[index].from.abs())
            && outer[nearest].from.abs() < inner.from.abs()
        {
            outer[nearest..].rotate_left(1);
        }
        Self {
            dimensions: fewest,
            item,
        }
    }

    /// Copies every element.
    ///
    /// # Safety
    ///
    /// Every element that the walk reaches from `from` is readable, every one that it reaches from `to` is writable, and
    /// the two do not overlap.
    pub(crate) unsafe fn copy(&self, from: *const u8, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { nest(&self.dimensions, self.item, from, to) };
    }
}

/// Copies elements of `item` bytes along loops.
///
/// # Safety
///
/// As for [`Walk::copy`].
unsafe fn nest(dimensions: &[Dimension], item: i64, from: *const u8, to: *mut u8) {
    match *dimensions {
        // SAFETY: one element on either side.
        [] => unsafe { copy_nonoverlapping(from, to, item as usize) },
        // SAFETY: the walk is this loop.
        [one] => unsafe { run(one, item, from, to) },
        [rows, columns] if rows.from != 0 && rows.from.abs() < columns.from.abs() => {
            // SAFETY: the walk is these two loops.
            unsafe { tiles(rows, columns, item, from, to) };
        }
        [outer, ref inner @ ..] => {
            for index in 0..outer.extent {
                let (from, to) = outer.after(index, from, to);
                // SAFETY: the walk within this step.
                unsafe { nest(inner, item, from, to) };
            }
        }
    }
}

#[cfg(test)]
mod tests;
