//! The loops of a strided copy.

#![forbid(unsafe_code)]

/// One loop: its extent, and its stride in bytes on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dimension {
    pub(super) extent: i64,
    pub(super) from: i64,
    pub(super) to: i64,
}

impl Dimension {
    /// A loop of `extent` steps; `from` and `to` are strides in bytes.
    pub(crate) fn new(extent: i64, from: i64, to: i64) -> Self {
        Self { extent, from, to }
    }
}

/// The address `steps` strides after `base`.
pub(super) fn step(base: *const u8, stride: i64, steps: i64) -> *const u8 {
    base.wrapping_offset((stride * steps) as isize)
}

/// As [`step`], for writing.
pub(super) fn step_mut(base: *mut u8, stride: i64, steps: i64) -> *mut u8 {
    base.wrapping_offset((stride * steps) as isize)
}
