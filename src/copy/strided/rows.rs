//! The same loops for who copies rows of bytes, and pays for each call: a driver.

#![forbid(unsafe_code)]

use super::{Dimension, Walk};

/// Bytes between rows, at most: `CU_DEVICE_ATTRIBUTE_MAX_PITCH` of all devices.
const MAX_PITCH: i64 = i32::MAX as i64;

/// Rows of bytes that one call copies, and how often it is made at other places.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RowCopy {
    /// Bytes of a row.
    pub(crate) width: i64,
    /// How many rows.
    pub(crate) height: i64,
    /// Bytes between the starts of rows, on either side.
    pub(crate) from_pitch: i64,
    pub(crate) to_pitch: i64,
    places: Vec<Dimension>,
}

/// Where the bytes of a step come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepSource {
    /// The source.
    Source,
    /// What earlier steps have written.
    Written,
}

/// One of the steps of a copy, in their order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) origin: StepSource,
    pub(crate) rows: RowCopy,
    /// Offset in bytes of what is written.
    pub(crate) to: i64,
}

/// The steps of fewest calls for elements of `item` bytes; `to` is compact, and its dimensions go from the slowest to
/// the fastest.
///
/// A broadcast dimension is read once, and what was written is doubled until it is full.
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

/// A loop over what lies in the destination.
fn again(extent: i64, to: i64) -> Dimension {
    Dimension::new(extent, to, to)
}

impl RowCopy {
    /// The rows that leave the fewest places.
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

    /// Rows that consist of the elements of one dimension, or of one element, and follow another.
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

    /// How many calls it takes.
    pub(crate) fn calls(&self) -> i64 {
        let extents = self.places.iter().map(|dimension| dimension.extent);
        extents.fold(1, i64::saturating_mul)
    }

    /// Calls `copy` with the offsets of each place, on either side.
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
