//! From a device to the host: the elements alone, or the memory around them for the host to pick them out.

use pyo3::prelude::*;

use super::flags;
use crate::abi::*;
use crate::copy::host;
use crate::copy::plan;
use crate::copy::plan::finished;
use crate::copy::strided::rows::Step;
use crate::driver;
use crate::driver::Capture;
use crate::stream;
use crate::stream::Stream;
use crate::stream::usage::StreamUsage;
use crate::tensor::checked::{Checked, Meta};
use crate::tensor::memory::Memory;
use crate::tensor::snapshot::{Snapshot, Source};
use crate::types::error::Error;
use crate::types::{device, layout};

/// Bytes that are fetched in about the time that a call takes.
const CALL: i64 = 64 << 10;

/// From a device to the host.
pub(super) fn down(py: Python<'_>, source: &Snapshot, ordered: bool) -> PyResult<Snapshot> {
    let here = source.meta().device;
    if source.size() == 0 {
        return Ok(Snapshot::allocate(
            source.shape(),
            source.meta().dtype,
            flags(source),
        )?);
    }
    let stream = match source
        .usage()
        .and_then(StreamUsage::stream)
        .filter(|_| ordered)
    {
        Some(stream) => stream.clone(),
        None => stream::working(here)?,
    };
    refuse_capture(&stream)?;
    if ordered {
        source.order(&stream)?;
    }
    if let Some(steps) = plan::plan(source).filter(|steps| is_direct(source, steps)) {
        let copied = Snapshot::allocate(source.shape(), source.meta().dtype, flags(source))?;
        let from = source.meta().data.addr();
        let to = copied.meta().data.expose_provenance();
        // SAFETY: `source` holds its elements and `copied` its own memory; both outlive the wait (S22).
        unsafe { finished(&steps, from, to, &stream) }?;
        return Ok(copied);
    }
    let fetched = fetched(source, &stream)?;
    host::compact(py, &fetched)
}

/// Whether to fetch the elements alone is better than to fetch the memory around them.
fn is_direct(source: &Snapshot, steps: &[Step]) -> bool {
    let calls = plan::calls(steps);
    let (low, high) = bytes(source);
    let around = (high - low).saturating_sub(source.nbytes());
    // What a broadcast repeats, the host repeats.
    steps.len() == 1 && (calls == 1 || around > CALL.saturating_mul(calls - 1))
}

/// The bytes in which the elements lie, from the first one on.
fn bytes(source: &Snapshot) -> (i64, i64) {
    let padded = source.has(DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED);
    let bits = i128::from(layout::nbytes(8, source.meta().dtype, padded));
    // It fits: `Checked` has refused what does not.
    let (low, high) = layout::span(source.shape(), source.strides()).unwrap_or((0, 0));
    let byte = |bits: i128| i64::try_from(bits.div_euclid(8)).unwrap_or(i64::MAX);
    (
        byte(i128::from(low) * bits),
        byte((i128::from(high) + 1) * bits + 7),
    )
}

/// The memory around the elements, fetched to the host, with the elements in their places.
fn fetched(source: &Snapshot, stream: &Stream) -> PyResult<Snapshot> {
    let (low, high) = bytes(source);
    let memory = Memory::new(high - low)?;
    let steps = plan::run(high - low);
    let from = source.meta().data.addr().wrapping_add_signed(low as isize);
    // SAFETY: the elements lie in these bytes, which are of one allocation that `source` holds, and `memory` has
    // room for them; both outlive the wait.
    unsafe { finished(&steps, from, memory.as_ptr().expose_provenance(), stream) }?;
    let meta = Meta {
        data: memory.as_ptr().wrapping_byte_offset(-low as isize),
        device: device::CPU,
        ..source.meta()
    };
    let checked = Checked::new(meta, source.shape(), Some(source.strides()))?;
    Ok(checked.over(Source::Memory(memory)))
}

/// Refuses a stream whose work the host would have to wait for in a capture.
pub(super) fn refuse_capture(stream: &Stream) -> Result<(), Error> {
    let current = driver::enter(stream.device())?;
    match current.capture(stream.raw()?)? {
        Capture::None => Ok(()),
        _ => Err(Error::refused(format!(
            "stream {} captures a graph, which waiting for a copy to or from the host would end; copy before the \
             capture begins, or on another stream",
            stream.handle()
        ))),
    }
}
