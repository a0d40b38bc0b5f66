//! Device to host: copies a run of elements, or else all memory around them, from which the host picks them out.

use pyo3::prelude::*;

use super::call::call;
use crate::copy::host;
use crate::driver::{Capture, Run};
use crate::stream;
use crate::stream::Stream;
use crate::tensor::bytes::byte_span;
use crate::tensor::checked::{Checked, Meta};
use crate::tensor::memory::Memory;
use crate::tensor::snapshot::{Snapshot, Source};
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
    let stream = match known {
        Some(stream) => stream,
        None => stream::working(here)?,
    };
    refuse_capture(&stream)?;
    if ordered {
        source.order(&stream)?;
    }
    if !source.is_row_major() {
        let fetched = fetched(source, &stream)?;
        return host::compact(py, &fetched);
    }
    let copied = host::room(source)?;
    let run = Run {
        bytes: source.nbytes() as usize,
        from: (source.meta().data.addr(), here),
        to: (copied.meta().data.expose_provenance(), device::CPU),
    };
    // SAFETY: `source` holds its elements and `copied` its own memory; both outlive the wait (S22).
    unsafe { call(run, &stream, true) }?;
    Ok(copied)
}

/// Fetches the memory around the elements to the host, and keeps the strides.
fn fetched(source: &Snapshot, stream: &Stream) -> PyResult<Snapshot> {
    let meta = source.meta();
    let (low, high) = byte_span(source)?;
    // `Checked` has verified the extent.
    let (low, high) = (low as i64, high as i64);
    let memory = Memory::new(high - low)?;
    let from = meta.data.addr().wrapping_add_signed(low as isize);
    let run = Run {
        bytes: (high - low) as usize,
        from: (from, meta.device),
        to: (memory.as_ptr().expose_provenance(), device::CPU),
    };
    // SAFETY: the elements span these bytes of one allocation, which `source` holds, and `memory` has room for them;
    // both outlive the wait.
    unsafe { call(run, stream, true) }?;
    let meta = Meta {
        data: memory.as_ptr().wrapping_byte_offset(-low as isize),
        device: device::CPU,
        ..meta
    };
    let checked = Checked::new(meta, source.shape(), Some(source.strides()))?;
    Ok(checked.over(Source::Memory(memory)))
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
