//! Drop of a snapshot on an attached thread: frees a sole reference without attaching again.

#![forbid(unsafe_code)]

use pyo3::prelude::*;

use super::{Snapshot, Source};
use crate::cpython::interpreter::is_finalizing;

impl Snapshot {
    /// Drops it on a thread that is attached and counted by PyO3, in less time.
    #[inline(always)]
    pub(crate) fn drop_attached(self, py: Python<'_>) {
        let device = self.0.tensor().device;
        // Views, and snapshots with other references, take the slow path.
        let taken = self.0.take_if(|fields| {
            matches!(
                fields.source,
                Source::Versioned(_) | Source::Python(_) | Source::Buffer(..)
            ) && (fields.streams.are_none()
                || !is_finalizing() && fields.streams.are_over(py, device))
        });
        match taken.map(|fields| fields.source) {
            Ok(Source::Versioned(managed)) => managed.let_go(),
            Ok(Source::Python(owner)) => owner.drop_attached(py),
            Ok(Source::Buffer(buffer, _)) => buffer.drop_attached(py),
            Ok(_) => {}
            Err(shared) => drop(shared),
        }
    }
}
