//! What a runtime's functions take and answer.

use crate::abi::DLDevice;

/// A stream as driver functions take it. Never 0 on CUDA, where 1 is the current context's legacy default stream and 2
/// the per-thread default stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct RawStream(pub(super) usize);

impl RawStream {
    /// The stream of a DLPack handle.
    ///
    /// # Safety
    ///
    /// The stream is alive, and stays alive for as long as the result is used (S18).
    pub(crate) unsafe fn of_handle(handle: i64) -> Self {
        Self(handle as usize)
    }
}

/// An event created by a driver; only `driver::Event` frees it.
pub(super) type RawEvent = usize;

/// The owner of streams and events: a context address on CUDA, a device index on HIP.
pub(crate) type Context = usize;

/// What a stream does with the work queued on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Capture {
    /// Runs it.
    None,
    /// Records it into the graph of this capture.
    Active(u64),
    /// Records it into a capture that an error has invalidated.
    Invalidated,
    /// The legacy default stream, while another stream of its context is capturing: any work queued on it invalidates
    /// that capture.
    Implicit,
}

/// A run of bytes to copy: address and device of either side.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub(crate) bytes: usize,
    pub(crate) from: (usize, DLDevice),
    pub(crate) to: (usize, DLDevice),
}

impl Run {
    /// The devices of `from` and of `to` if they are two, neither of which need reach the memory of the other.
    pub(super) fn devices(&self) -> Option<(i32, i32)> {
        let (from, to) = (self.from.1, self.to.1);
        let is_between = from.device_type == to.device_type && from != to;
        is_between.then_some((from.device_id, to.device_id))
    }
}
