//! Layouts that a driver copies in one call: rows of bytes, all the same distance apart.

#![forbid(unsafe_code)]

use super::Walk;
use super::dimension::Dimension;

/// Largest distance between rows: `CU_DEVICE_ATTRIBUTE_MAX_PITCH` is this on all devices.
const MAX_PITCH: i64 = i32::MAX as i64;
/// Rows shorter than a memory transaction (two sectors of 32 bytes) cost as much as whole ones, one by one ...
const SHORT: i64 = 64;
/// ... so it is faster to copy what is between them, too, unless that is a page for each.
const FAR: i64 = 4096;

/// Rows of bytes to be written one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    /// Bytes per row.
    pub(crate) width: i64,
    /// Number of rows.
    pub(crate) height: i64,
    /// Bytes from the start of a row to that of the next.
    pub(crate) pitch: i64,
}

impl Rows {
    /// A run of bytes.
    pub(crate) fn run(bytes: i64) -> Self {
        Self {
            width: bytes,
            height: 1,
            pitch: bytes,
        }
    }

    /// The rows of a row-major copy from loops around elements of `item` bytes, if it is one of rows that are worth it.
    pub(crate) fn of(loops: Vec<Dimension>, item: i64) -> Option<Self> {
        let walk = Walk::new(loops, item);
        let (outer, width) = match walk.dimensions.split_last() {
            Some((run, outer)) if run.from == item => (outer, run.extent * item),
            _ => (&*walk.dimensions, item),
        };
        match *outer {
            [] => Some(Self::run(width)),
            [rows] => {
                let is_apart = (width..=MAX_PITCH).contains(&rows.from);
                (is_apart && (width >= SHORT || rows.from >= FAR)).then_some(Self {
                    width,
                    height: rows.extent,
                    pitch: rows.from,
                })
            }
            _ => None,
        }
    }
}
