//! Device to host: copies a run of elements, or else all memory around them, from which the host picks them out.

use pyo3::prelude::*;

use super::call;
use crate::copy::host;
use crate::driver::Capture;
use crate::stream::{self, Stream};
use crate::tensor::bytes;
use crate::tensor::checked::Meta;
use crate::tensor::snapshot::Snapshot;
use crate::types::device;
use crate::types::error::Error;

/// Device to host.
pub(super) fn down(py: Python<'_>, source: &Snapshot, ordered: bool) -> PyResult<Snapshot> {
    let here = source.meta().device;
    if source.size() == 0 {
        return Ok(host::room(source)?);
    }
    // The producer's stream needs no other to wait, least of all the legacy default stream.
    let usage = source.usage().filter(|_| ordered);
    let known = usage.and_then(|usage| usage.stream().cloned().or_else(|| usage.now()));
    let stream = known.map_or_else(|| stream::working(here), Ok)?;
    refuse_capture(&stream)?;
    if ordered {
        source.order(&stream)?;
    }
    if source.is_row_major() {
        return Ok(fetched(source, &stream)?);
    }
    let around = bytes::run(source)?;
    let fetched = fetched(&around, &stream)?;
    let first = source.meta().data.addr() - around.meta().data.addr();
    let meta = Meta {
        data: fetched.meta().data.wrapping_byte_add(first),
        device: device::CPU,
        ..source.meta()
    };
    let elements = fetched.within(meta, source.shape(), Some(source.strides()))?;
    host::compact(py, &elements)
}

/// A copy of a run of elements.
fn fetched(source: &Snapshot, stream: &Stream) -> Result<Snapshot, Error> {
    let copied = host::room(source)?;
    let to = (copied.meta().data.expose_provenance(), device::CPU);
    // SAFETY: `source` holds its elements and `copied` its own memory; both outlive the wait (S22).
    unsafe { call(source, to, stream, true) }?;
    Ok(copied)
}

/// Refuses a capturing stream: the host would have to wait for it.
pub(super) fn refuse_capture(stream: &Stream) -> Result<(), Error> {
    match stream.capture()? {
        Capture::None => Ok(()),
        _ => Err(Error::refused(format!(
            "stream {} captures a graph, which waiting for a copy to or from the host would end; copy before the \
             capture begins, or on another stream",
            stream.handle()
        ))),
    }
}
