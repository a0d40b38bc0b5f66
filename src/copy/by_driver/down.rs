//! Device to host: copies only the elements, or fetches the memory around them and lets the host pick them out.

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

/// Bytes that transfer in about the time of one call.
const CALL: i64 = 64 << 10;

/// Device to host.
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

/// Whether copying only the elements beats fetching the memory around them.
fn is_direct(source: &Snapshot, steps: &[Step]) -> bool {
    let calls = plan::calls(steps);
    let (low, high) = bytes(source);
    let around = (high - low).saturating_sub(source.nbytes());
    // The host repeats broadcast elements.
    steps.len() == 1 && (calls == 1 || around > CALL.saturating_mul(calls - 1))
}

/// The range of bytes that the elements span, relative to the first one.
fn bytes(source: &Snapshot) -> (i64, i64) {
    let padded = source.has(DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED);
    let bits = i128::from(layout::nbytes(8, source.meta().dtype, padded));
    // Does not overflow: `Checked` has verified the extent.
    let (low, high) = layout::span(source.shape(), source.strides()).unwrap_or((0, 0));
    let byte = |bits: i128| i64::try_from(bits.div_euclid(8)).unwrap_or(i64::MAX);
    (
        byte(i128::from(low) * bits),
        byte((i128::from(high) + 1) * bits + 7),
    )
}

/// Fetches the memory around the elements to the host, and keeps the strides.
fn fetched(source: &Snapshot, stream: &Stream) -> PyResult<Snapshot> {
    let (low, high) = bytes(source);
    let memory = Memory::new(high - low)?;
    let steps = plan::run(high - low);
    let from = source.meta().data.addr().wrapping_add_signed(low as isize);
    // SAFETY: the elements span these bytes of one allocation, which `source` holds, and `memory` has room for them;
    // both outlive the wait.
    unsafe { finished(&steps, from, memory.as_ptr().expose_provenance(), stream) }?;
    let meta = Meta {
        data: memory.as_ptr().wrapping_byte_offset(-low as isize),
        device: device::CPU,
        ..source.meta()
    };
    let checked = Checked::new(meta, source.shape(), Some(source.strides()))?;
    Ok(checked.over(Source::Memory(memory)))
}

/// Refuses a capturing stream: the host would have to wait for it.
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
