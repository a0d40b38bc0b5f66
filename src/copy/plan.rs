//! Plans and queues driver copies: the fewest calls from a layout to row-major memory.

use crate::abi::DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED;
use crate::copy::host::dimensions;
use crate::copy::strided::Dimension;
use crate::copy::strided::rows::{RowCopy, Step, StepSource, steps};
use crate::cpython::interpreter::blocking;
use crate::driver;
use crate::driver::Current;
use crate::stream::Stream;
use crate::tensor::snapshot::Snapshot;
use crate::types::dtype;
use crate::types::error::Error;

/// The single step that copies `bytes` contiguous bytes.
pub(crate) fn run(bytes: i64) -> Vec<Step> {
    steps(vec![Dimension::new(bytes, 1, 1)], 1)
}

/// The steps that copy a non-empty `source` into row-major order. `None` for packed elements in any other order, since
/// drivers copy whole bytes.
pub(crate) fn plan(source: &Snapshot) -> Option<Vec<Step>> {
    if source.is_row_major() {
        return Some(run(source.nbytes()));
    }
    let bits = i64::from(dtype::bits(source.meta().dtype));
    let packed = bits % 8 != 0 && !source.has(DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED);
    let item = (bits + 7) / 8;
    (!packed).then(|| steps(dimensions(source, item), item))
}

/// Number of driver calls that the steps make.
pub(crate) fn calls(steps: &[Step]) -> i64 {
    let calls = steps.iter().map(|step| step.rows.calls());
    calls.fold(0, i64::saturating_add)
}

/// Queues the steps on `stream`.
///
/// # Safety
///
/// `from` points to the source that the steps were made for, and `to` to room for its elements that nothing else uses,
/// both until `stream` has run the steps.
pub(crate) unsafe fn queue(
    steps: &[Step],
    from: usize,
    to: usize,
    current: &Current,
    stream: driver::RawStream,
) -> Result<(), Error> {
    for Step {
        origin,
        rows,
        to: offset,
    } in steps
    {
        let from = match origin {
            StepSource::Source => from,
            StepSource::Written => to,
        };
        let to = to.wrapping_add_signed(*offset as isize);
        rows.each(&mut |from_offset, to_offset| {
            let from = from.wrapping_add_signed(from_offset as isize);
            let to = to.wrapping_add_signed(to_offset as isize);
            // SAFETY: the caller's promise; these rows are elements of the walk.
            unsafe { queue_rows(rows, from, to, current, stream) }
        })?;
    }
    Ok(())
}

/// Queues one driver call.
///
/// # Safety
///
/// As for [`queue`], for these rows.
unsafe fn queue_rows(
    rows: &RowCopy,
    from: usize,
    to: usize,
    current: &Current,
    stream: driver::RawStream,
) -> Result<(), Error> {
    // Widths, heights and pitches are never negative.
    let width = rows.width as usize;
    if rows.height == 1 {
        // SAFETY: the caller's promise.
        return Ok(unsafe { current.copy(to, from, width, stream) }?);
    }
    let rows = driver::Rows {
        to,
        to_pitch: rows.to_pitch as usize,
        from,
        from_pitch: rows.from_pitch as usize,
        width,
        height: rows.height as usize,
    };
    // SAFETY: the caller's promise.
    Ok(unsafe { current.copy_rows(rows, stream) }?)
}

/// Queues the steps and waits for them, detached from the interpreter.
///
/// # Safety
///
/// As for [`queue`], until this returns.
pub(crate) unsafe fn finished(
    steps: &[Step],
    from: usize,
    to: usize,
    stream: &Stream,
) -> Result<(), Error> {
    blocking(|| {
        let raw = stream.raw()?;
        let current = driver::enter(stream.device())?;
        // SAFETY: the caller's promise.
        let queued = unsafe { queue(steps, from, to, &current, raw) };
        // Wait even after a failure for what was queued before it: the caller may free the memory next.
        let waited = current.synchronize_stream(raw);
        queued?;
        Ok(waited?)
    })
}
