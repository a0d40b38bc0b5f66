//! One call of the driver: what it can copy, and how it is made.

use crate::abi::DLDevice;
use crate::copy::host::dimensions;
use crate::copy::strided::rows::Rows;
use crate::cpython::interpreter::blocking;
use crate::driver;
use crate::driver::Current;
use crate::stream::Stream;
use crate::tensor::snapshot::Snapshot;
use crate::types::device;
use crate::types::error::Error;

/// A copy in one call, into memory without gaps.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) rows: Rows,
    /// Address and device of either side.
    pub(super) from: (usize, DLDevice),
    pub(super) to: (usize, DLDevice),
}

/// The rows of bytes that are the elements of a non-empty `source` in row-major order, if one call can copy them.
/// Packed elements in any other order are not whole bytes.
pub(super) fn rows(source: &Snapshot) -> Option<Rows> {
    if source.is_row_major() {
        return Some(Rows::run(source.nbytes()));
    }
    let bits = i64::from(source.meta().bits());
    (bits % 8 == 0).then(|| Rows::of(dimensions(source, bits / 8), bits / 8))?
}

impl Call {
    /// Makes the call on `stream`, and with `wait` waits for the stream.
    ///
    /// The driver may wait in either, also for another thread of Python. It may also stage memory of the host, or
    /// memory between devices, which a capture in another thread forbids in any mode but the relaxed one.
    ///
    /// # Safety
    ///
    /// `from` points to the rows, and `to` to room for them that nothing else uses, both until `stream` has run the copy.
    pub(super) unsafe fn make(self, stream: &Stream, wait: bool) -> Result<(), Error> {
        blocking(|| {
            let (current, raw) = stream.enter()?;
            let _relaxed = current.relaxed()?;
            // SAFETY: the caller's promise.
            let queued = unsafe { self.queue(&current, raw) };
            // Also after a failure, which may have queued a part: the caller may free the memory next.
            let waited = if wait {
                current.synchronize(raw)
            } else {
                Ok(())
            };
            Ok(queued.and(waited)?)
        })
    }

    /// # Safety
    ///
    /// As for [`Self::make`].
    unsafe fn queue(
        self,
        current: &Current,
        stream: driver::RawStream,
    ) -> Result<(), driver::Error> {
        let Self { rows, from, to } = self;
        // Widths, heights and pitches are never negative.
        let (width, height) = (rows.width as usize, rows.height as usize);
        let between_devices = from.1.device_type == to.1.device_type && from.1 != to.1;
        if between_devices {
            let devices = (to.1.device_id, from.1.device_id);
            // SAFETY: the caller's promise; between devices there is one row.
            return unsafe { current.copy_between(to.0, from.0, devices, width, stream) };
        }
        if height == 1 {
            // SAFETY: the caller's promise.
            return unsafe { current.copy(to.0, from.0, width, stream) };
        }
        let rows = driver::Rows {
            to: to.0,
            to_host: to.1 == device::CPU,
            from: from.0,
            from_pitch: rows.pitch as usize,
            width,
            height,
        };
        // SAFETY: the caller's promise.
        unsafe { current.copy_rows(rows, stream) }
    }
}
