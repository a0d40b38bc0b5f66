//! One call of the driver, which copies a run of bytes.

use crate::abi::DLDevice;
use crate::cpython::interpreter::blocking;
use crate::driver;
use crate::driver::Current;
use crate::stream::Stream;
use crate::types::error::Error;

/// A copy in one call.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) bytes: usize,
    /// Address and device of either side.
    pub(super) from: (usize, DLDevice),
    pub(super) to: (usize, DLDevice),
}

impl Call {
    /// Makes the call on `stream`, and with `wait` waits for the stream.
    ///
    /// The driver may wait in either, also for another thread of Python. It may also stage memory of the host, or
    /// memory between devices, which a capture in another thread forbids in any mode but the relaxed one.
    ///
    /// # Safety
    ///
    /// `from` points to the bytes, and `to` to room for them that nothing else uses, both until `stream` has run the copy.
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
        let Self { bytes, from, to } = self;
        let between_devices = from.1.device_type == to.1.device_type && from.1 != to.1;
        if between_devices {
            let devices = (to.1.device_id, from.1.device_id);
            // SAFETY: the caller's promise.
            return unsafe { current.copy_between(to.0, from.0, devices, bytes, stream) };
        }
        // SAFETY: the caller's promise.
        unsafe { current.copy(to.0, from.0, bytes, stream) }
    }
}
