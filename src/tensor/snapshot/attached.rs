//! Drop of a snapshot on an attached thread: frees a sole reference without attaching again.

#![forbid(unsafe_code)]

use std::mem::forget;

use pyo3::prelude::*;

use super::{Fields, Snapshot, Source};
use crate::cpython::interpreter::is_finalizing;
use crate::tensor::block::Shared;

impl Snapshot {
    /// Drops it on a thread that is attached and counted by PyO3, in less time.
    #[inline(always)]
    pub(crate) fn drop_attached(self, py: Python<'_>) {
        // Views, and snapshots with streams or other references, take the slow path.
        let taken = self.0.take_if(|fields| {
            let is_foreign = matches!(fields.source, Source::Versioned(_) | Source::Python(_));
            is_foreign && fields.streams.are_none()
        });
        match taken {
            Ok(Fields {
                source, streams, ..
            }) => {
                // None, so there is nothing to drop.
                forget(streams);
                let_go(source, py);
            }
            Err(shared) => drop_shared(shared, py),
        }
    }
}

#[inline(always)]
fn let_go(source: Source, py: Python<'_>) {
    match source {
        Source::Versioned(managed) => managed.let_go(),
        Source::Python(owner) => owner.drop_attached(py),
        Source::Buffer(buffer, _) => buffer.drop_attached(py),
        _ => {}
    }
}

/// Apart, so that the usual sources need no more registers.
#[inline(never)]
fn drop_shared(shared: Shared<Fields>, py: Python<'_>) {
    let device = shared.tensor().device;
    let taken = shared.take_if(|fields| match fields.source {
        Source::Buffer(..) => fields.streams.are_none(),
        Source::Versioned(_) | Source::Python(_) => {
            !is_finalizing() && fields.streams.are_over(py, device)
        }
        _ => false,
    });
    match taken {
        Ok(Fields { source, .. }) => let_go(source, py),
        Err(shared) => drop(shared),
    }
}
