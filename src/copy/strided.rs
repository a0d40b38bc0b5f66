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
//!     [rows, columns]    if rows are closer together than columns in the source, for each tile of one cache
//!                        line by one: transpose it in registers and store whole lines past the caches;
//!                        copy tiles that are cut off, or not contiguous in the source, row by row
//!     [outer, inner...]  if outer is a broadcast loop and inner writes a dense block:
//!                        copy(inner), then append copies of what is written until outer is done
//!     [outer, inner...]  for each step of outer: copy(inner)
//! ```
//!
//! Tiles touch every cache line once on either side.

use std::ptr::copy_nonoverlapping;

mod bits;
mod dimension;
pub(crate) mod rows;
mod tiles;

pub(crate) use bits::{copy_bits, in_bytes};
pub(crate) use dimension::Dimension;
use dimension::{step, step_mut};
use tiles::{run, tiles};

/// Loops, outermost first, around one element of `item` bytes.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    dimensions: Vec<Dimension>,
    item: i64,
}

/// Parts of a walk have a multiple of this many steps, which keeps tiles and cache lines whole.
const SHARE: i64 = 64;

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

    /// Splits the walk into up to `parts` walks, each with its offset on either side.
    ///
    /// Among loops that are long enough it splits the one with the largest write stride: threads that write to separate
    /// regions do not wait for each other while fresh pages are zeroed.
    pub(crate) fn split(&self, parts: usize) -> Vec<(Self, i64, i64)> {
        let best = (0..self.dimensions.len()).max_by_key(|&index| {
            let Dimension { extent, to, .. } = self.dimensions[index];
            (extent.min(SHARE * parts as i64), to.abs())
        });
        let Some(index) = best else {
            return vec![(self.clone(), 0, 0)];
        };
        let Dimension { extent, from, to } = self.dimensions[index];
        let share = (extent as u64).div_ceil(parts as u64);
        let share = share.next_multiple_of(SHARE as u64) as i64;
        let starts = (0..extent).step_by(share as usize);
        let part = |start: i64| {
            let mut part = self.clone();
            part.dimensions[index].extent = share.min(extent - start);
            (part, start * from, start * to)
        };
        starts.map(part).collect()
    }

    /// Copies every element.
    ///
    /// # Safety
    ///
    /// Every element that the walk reaches from `from` is readable, every one that it reaches from `to` is writable and
    /// then readable, and the two do not overlap.
    pub(crate) unsafe fn copy(&self, from: *const u8, to: *mut u8) {
        let walk: unsafe fn(&[Dimension], *const u8, *mut u8, i64) = match self.item {
            1 => nest::<u8, 64, 8>,
            2 => nest::<u16, 32, 4>,
            4 => nest::<u32, 16, 4>,
            8 => nest::<u64, 8, 2>,
            16 => nest::<u128, 4, 2>,
            _ => nest_any,
        };
        // SAFETY: the caller's promise; each function copies elements of `item` bytes.
        unsafe { walk(&self.dimensions, from, to, self.item) };
        // Other threads see non-temporal stores only after a fence.
        #[cfg(target_arch = "x86_64")]
        // SAFETY: SSE is part of every x86-64.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}

/// Copies elements of type `T`. `LINE` of them fill a cache line, and `PART` by `PART` fit into registers.
///
/// # Safety
///
/// As for [`Walk::copy`], with elements of the size of `T`.
unsafe fn nest<T: Copy + Default, const LINE: usize, const PART: usize>(
    dimensions: &[Dimension],
    from: *const u8,
    to: *mut u8,
    _item: i64,
) {
    let size = size_of::<T>() as i64;
    match *dimensions {
        // SAFETY: one element on either side.
        [] => unsafe { copy_nonoverlapping(from, to, size_of::<T>()) },
        // SAFETY: the walk is this loop.
        [one] => unsafe { run::<T>(one, from, to) },
        [rows, columns]
            if columns.to == size && rows.from != 0 && rows.from.abs() < columns.from.abs() =>
        {
            // SAFETY: the walk is these two loops; the inner one is contiguous in `to`.
            unsafe { tiles::<T, LINE, PART>(rows, columns, from, to) };
        }
        [outer, ref inner @ ..] if outer.from == 0 && is_filled(inner, size, outer.to) => {
            // SAFETY: the walk within the first step.
            unsafe { nest::<T, LINE, PART>(inner, from, to, size) };
            // SAFETY: the blocks are dense and `outer.to` bytes apart, so together they are one writable range.
            unsafe { repeat(to, outer.to as usize, outer.extent as usize) };
        }
        [outer, ref inner @ ..] => {
            for index in 0..outer.extent {
                let (from, to) = (step(from, outer.from, index), step_mut(to, outer.to, index));
                // SAFETY: the walk within this step.
                unsafe { nest::<T, LINE, PART>(inner, from, to, size) };
            }
        }
    }
}

/// Whether loops around elements of `size` bytes write all of the first `bytes` bytes.
fn is_filled(dimensions: &[Dimension], size: i64, bytes: i64) -> bool {
    // Elements do not overlap, so they fill their span if they add up to it.
    let (mut volume, mut span) = (size, size);
    for dimension in dimensions {
        volume *= dimension.extent;
        span += (dimension.extent - 1) * dimension.to;
    }
    volume == bytes && span == bytes
}

/// Largest block, in bytes, to copy from what was just written: it stays in the L1 cache.
const NEAR: usize = 16 << 10;

/// Repeats the block of `bytes` bytes at `to` until there are `count` of them in a row.
///
/// # Safety
///
/// `bytes * count` bytes are readable and writable at `to`, and the first `bytes` are written.
unsafe fn repeat(to: *mut u8, bytes: usize, count: usize) {
    let whole = bytes * count;
    let (mut near, mut done) = (bytes, bytes);
    while done < whole {
        let more = near.min(whole - done);
        // SAFETY: the source is written already, and the destination follows the last byte written.
        unsafe { copy_nonoverlapping(to, to.wrapping_add(done), more) };
        done += more;
        if near < NEAR {
            near = done;
        }
    }
}

/// Copies elements of any size.
///
/// # Safety
///
/// As for [`Walk::copy`], with elements of `item` bytes.
unsafe fn nest_any(dimensions: &[Dimension], from: *const u8, to: *mut u8, item: i64) {
    match *dimensions {
        // SAFETY: one element on either side.
        [] => unsafe { copy_nonoverlapping(from, to, item as usize) },
        [outer, ref inner @ ..] => {
            for index in 0..outer.extent {
                let (from, to) = (step(from, outer.from, index), step_mut(to, outer.to, index));
                // SAFETY: the walk within this step.
                unsafe { nest_any(inner, from, to, item) };
            }
        }
    }
}

#[cfg(test)]
mod tests;
