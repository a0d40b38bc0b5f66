//! Splits a strided copy into two-dimensional copies, for drivers, where each call has a cost.
//!
//! ```text
//! steps(loops):
//!     copy the loops that read new elements, in one step     (their destination has gaps)
//!     for each broadcast loop, innermost first:
//!         done = 1
//!         while done < extent:                               (doubling)
//!             copy the first min(done, extent - done) blocks of the destination behind the last one
//!             done += as many
//! each step:
//!     one call copies rows: a row is a contiguous loop, or one element, and another loop repeats it
//!     choose both loops so that the remaining ones need the fewest calls
//! ```

#![forbid(unsafe_code)]

use super::{Dimension, Walk};

/// Largest row pitch in bytes: `CU_DEVICE_ATTRIBUTE_MAX_PITCH` is this on all devices.
const MAX_PITCH: i64 = i32::MAX as i64;

/// Rows of bytes that one call copies, and the loops that repeat the call elsewhere.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RowCopy {
    /// Bytes per row.
    pub(crate) width: i64,
    /// Number of rows.
    pub(crate) height: i64,
    /// Pitch: bytes between the starts of rows, on either side.
    pub(crate) from_pitch: i64,
    pub(crate) to_pitch: i64,
    places: Vec<Dimension>,
}

/// Where a step reads from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepSource {
    /// The source of the copy.
    Source,
    /// The destination, as earlier steps have written it.
    Written,
}

/// One step of a copy; steps run in order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) origin: StepSource,
    pub(crate) rows: RowCopy,
    /// Offset in bytes into the destination.
    pub(crate) to: i64,
}

/// The steps that need the fewest calls for elements of `item` bytes. `to` must be compact, with dimensions from
/// slowest to fastest.
///
/// A broadcast dimension is read once; then its copies are doubled until it is full.
pub(crate) fn steps(dimensions: Vec<Dimension>, item: i64) -> Vec<Step> {
    let (spread, read): (Vec<_>, Vec<_>) = dimensions
        .into_iter()
        .filter(|dimension| dimension.extent != 1)
        .partition(|dimension| dimension.from == 0);
    let mut written: Vec<_> = read
        .iter()
        .map(|read| again(read.extent, read.to))
        .collect();
    let mut steps = vec![Step {
        origin: StepSource::Source,
        rows: RowCopy::of(&Walk::new(read, item)),
        to: 0,
    }];
    for whole in spread.into_iter().rev() {
        let mut done = 1;
        while done < whole.extent {
            let more = done.min(whole.extent - done);
            let mut dimensions = written.clone();
            dimensions.push(again(more, whole.to));
            dimensions.sort_by_key(|dimension| -dimension.to);
            steps.push(Step {
                origin: StepSource::Written,
                rows: RowCopy::of(&Walk::new(dimensions, item)),
                to: done * whole.to,
            });
            done += more;
        }
        written.push(again(whole.extent, whole.to));
    }
    steps
}

/// A loop within the destination.
fn again(extent: i64, to: i64) -> Dimension {
    Dimension::new(extent, to, to)
}

impl RowCopy {
    /// The choice of both loops that needs the fewest calls.
    fn of(walk: &Walk) -> Self {
        let item = walk.item;
        let all = 0..walk.dimensions.len();
        let run = all.clone().find(|&index| {
            let Dimension { from, to, .. } = walk.dimensions[index];
            from == item && to == item
        });
        let mut best = Self::along(walk, run, None);
        for run in [run, None] {
            for rows in all.clone().filter(|&index| Some(index) != run) {
                let width = run.map_or(item, |run| walk.dimensions[run].extent * item);
                let Dimension { from, to, .. } = walk.dimensions[rows];
                if (width..=MAX_PITCH).contains(&from) && (width..=MAX_PITCH).contains(&to) {
                    let other = Self::along(walk, run, Some(rows));
                    if other.calls() < best.calls() {
                        best = other;
                    }
                }
            }
        }
        best
    }

    /// The copy whose row is the loop `run`, or one element, and which the loop `rows` repeats.
    fn along(walk: &Walk, run: Option<usize>, rows: Option<usize>) -> Self {
        let places = walk.dimensions.iter().enumerate();
        let places = places.filter(|&(index, _)| Some(index) != run && Some(index) != rows);
        let extent = |index: Option<usize>| index.map_or(1, |index| walk.dimensions[index].extent);
        let pitch = rows.map(|rows| walk.dimensions[rows]);
        let width = extent(run) * walk.item;
        Self {
            width,
            height: extent(rows),
            from_pitch: pitch.map_or(width, |pitch| pitch.from),
            to_pitch: pitch.map_or(width, |pitch| pitch.to),
            places: places.map(|(_, &dimension)| dimension).collect(),
        }
    }

    /// Number of driver calls.
    pub(crate) fn calls(&self) -> i64 {
        let extents = self.places.iter().map(|dimension| dimension.extent);
        extents.fold(1, i64::saturating_mul)
    }

    /// Calls `copy` with the offsets of each call on either side.
    pub(crate) fn each<E>(
        &self,
        copy: &mut impl FnMut(i64, i64) -> Result<(), E>,
    ) -> Result<(), E> {
        visit(&self.places, 0, 0, copy)
    }
}

fn visit<E>(
    places: &[Dimension],
    from: i64,
    to: i64,
    copy: &mut impl FnMut(i64, i64) -> Result<(), E>,
) -> Result<(), E> {
    let [outer, inner @ ..] = places else {
        return copy(from, to);
    };
    for index in 0..outer.extent {
        visit(
            inner,
            from + outer.from * index,
            to + outer.to * index,
            copy,
        )?;
    }
    Ok(())
}
