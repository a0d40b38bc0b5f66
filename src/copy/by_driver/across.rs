//! Device to device, or within one.

use std::sync::Arc;

use pyo3::prelude::*;

use super::down::{down, refuse_capture};
use super::{On, call, of_memory, up};
use crate::abi::*;
use crate::cpython::fork::Lock;
use crate::stream::end::End;
use crate::stream::order::{self, Joined};
use crate::stream::usage::StreamUsage;
use crate::stream::{self, Stream};
use crate::tensor::device_memory::DeviceMemory;
use crate::tensor::snapshot::Snapshot;
use crate::types::error::Error;

/// Device to device, or within one: a run in one call, or else by way of the host.
pub(super) fn across(
    py: Python<'_>,
    source: &Snapshot,
    there: DLDevice,
    on: On,
) -> PyResult<Snapshot> {
    let ordered = on.is_ordered();
    let (stream, lent) = on.stream(there)?;
    let has_elements = source.size() > 0;
    if has_elements && !source.is_row_major() {
        refuse_capture(&stream)?;
        let fetched = down(py, source, ordered)?;
        return up(py, &fetched, there, On::Stream { stream, lent });
    }
    let memory = DeviceMemory::new(source.nbytes(), &stream, lent)?;
    if ordered {
        wait_for(source, &stream)?;
    }
    if has_elements {
        let to = (memory.as_ptr().addr(), there);
        // SAFETY: `hold` keeps the elements of `source` until the stream has read them; the memory was just allocated
        // for this stream and is freed on it (S22).
        let queued = unsafe { call(source, to, &stream, false) };
        let held = hold(source, &stream, ordered);
        queued?;
        held?;
    }
    Ok(of_memory(source, memory, there, stream, lent)?)
}

/// Makes `stream` wait until the elements of `source` are ready, even on another device.
fn wait_for(source: &Snapshot, stream: &Stream) -> Result<(), Error> {
    let here = source.meta().device;
    if stream.device() == here || !source.has_streams() {
        return source.order(stream);
    }
    let known = source.usage().and_then(StreamUsage::stream);
    let lead = known.map_or_else(|| stream::working(here), |known| Ok(known.clone()))?;
    source.order(&lead)?;
    order::after(stream, &lead, Joined::Never)
}

/// Keeps the memory of `source` until `stream` has read it, and orders the next write of its producer, or on its own
/// stream, after that (H1).
fn hold(source: &Snapshot, stream: &Stream, ordered: bool) -> Result<(), Error> {
    let usage = source.usage();
    let known = usage.filter(|_| ordered);
    let producer = known.and_then(StreamUsage::now);
    let own = known.and_then(StreamUsage::stream).cloned();
    let is_used = usage.and_then(|usage| usage.used());
    let is_held = match &producer {
        Some(producer) => producer.is(stream),
        None => is_used.is_some_and(|used| used.is(stream)) || source.is_freed_on(stream),
    };
    let writers: Vec<_> = [producer, own].into_iter().flatten().collect();
    if is_held && writers.iter().all(|writer| writer.is(stream)) {
        return Ok(());
    }
    let end = match order::point(stream) {
        Ok(end) => end,
        Err(error) => {
            // Without an event, wait on the host.
            order::synchronize(stream).ok();
            return Err(error);
        }
    };
    let wait = |writer: &Stream| order::wait(writer, &end);
    let back = (writers.iter().filter(|writer| !writer.is(stream))).try_for_each(wait);
    let uses = vec![End::Point(end)];
    // A view that dies at once: its release keeps the memory until `end`.
    drop(source.used(Arc::new(StreamUsage {
        uses: Lock::new(uses),
        ..StreamUsage::default()
    }))?);
    back
}
