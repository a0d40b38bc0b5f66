//! Drop of a snapshot on an attached thread: frees a sole reference without attaching again.

#![forbid(unsafe_code)]

use pyo3::prelude::*;

use super::{Fields, Snapshot, Source};
use crate::cpython::interpreter::DropAttached;
use crate::tensor::block::Shared;

impl DropAttached for Snapshot {
    #[inline(always)]
    fn drop_attached(self, py: Python<'_>) {
        // Views, and snapshots with streams or other references, take the slow path.
        let taken = self.0.take_if(|fields| {
            let is_foreign = matches!(fields.source, Source::Versioned(_) | Source::Python(_));
            is_foreign && fields.usage.is_none()
        });
        match taken {
            Ok(Fields { source, .. }) => match source {
                Source::Versioned(managed) => managed.let_go(),
                Source::Python(owner) => owner.drop_attached(py),
                _ => {}
            },
            Err(shared) => drop_shared(shared, py),
        }
    }
}

/// Apart, so that the usual sources need no more registers.
#[inline(never)]
fn drop_shared(shared: Shared<Fields>, py: Python<'_>) {
    let is_buffer =
        |fields: &Fields| matches!(fields.source, Source::Buffer(_)) && fields.usage.is_none();
    match shared.take_if(is_buffer) {
        Ok(Fields {
            source: Source::Buffer(buffer),
            ..
        }) => buffer.drop_attached(py),
        Ok(fields) => drop(fields),
        Err(shared) => drop(shared),
    }
}
