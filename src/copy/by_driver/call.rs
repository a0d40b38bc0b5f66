//! One call of the driver, which copies a run of bytes.

use crate::cpython::interpreter::blocking;
use crate::driver::Run;
use crate::stream::Stream;
use crate::types::error::Error;

/// Copies `run` on `stream`, and with `wait` waits for the stream.
///
/// The driver may wait in either, also for another thread of Python. It may also stage memory of the host, or memory
/// between devices, which a capture in another thread forbids in any mode but the relaxed one.
///
/// # Safety
///
/// `run` is from the bytes, to room for them that nothing else uses, both until `stream` has run the copy.
pub(super) unsafe fn call(run: Run, stream: &Stream, wait: bool) -> Result<(), Error> {
    blocking(|| {
        let (current, raw) = stream.enter(None)?;
        let _relaxed = current.relaxed()?;
        // SAFETY: the caller's promise.
        let queued = unsafe { current.copy(run, raw) };
        // Also after a failure, which may have queued a part: the caller may free the memory next.
        let waited = if wait {
            current.synchronize(raw)
        } else {
            Ok(())
        };
        Ok(queued.and(waited)?)
    })
}
