//! What dlx asks of a runtime, and the handles that it gives.

use std::ffi::c_void;
use std::ptr::NonNull;

use crate::driver::error::Error;

/// A stream as the functions of a driver take it: never 0 on CUDA, where 1 is the legacy default stream of the
/// current context and 2 that of the thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct RawStream(usize);

impl RawStream {
    /// The stream of a handle as DLPack writes it.
    ///
    /// # Safety
    ///
    /// The stream is alive, and stays so as long as this is used (S18).
    pub(crate) unsafe fn of_handle(handle: i64) -> Self {
        Self(handle as usize)
    }

    pub(super) fn as_ptr(self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}

/// An event as a driver makes it; freed by `driver::Event` alone.
pub(super) type RawEvent = NonNull<c_void>;

/// What an event belongs to: the address of a context of CUDA, the number of a device of HIP.
pub(super) type Context = usize;

/// What a stream does with the work that it is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Capture {
    /// It runs it.
    None,
    /// It records it into the graph of this capture.
    Active(u64),
    /// It records it into a capture that an error has ended.
    Invalidated,
    /// The legacy default stream while another stream of its context captures: whatever it is given ends that
    /// capture.
    Implicit,
}

impl Capture {
    /// What a status of `CUstreamCaptureStatus` says; `None` for an active capture, whose number is to be asked.
    pub(super) fn of_status(status: i32) -> Option<Self> {
        match status {
            0 => Some(Self::None),
            1 => None,
            _ => Some(Self::Invalidated),
        }
    }
}

/// Two-dimensional memory: `height` rows of `width` bytes, whose starts are so many bytes apart.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) to: usize,
    pub(crate) to_pitch: usize,
    pub(crate) from: usize,
    pub(crate) from_pitch: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// The functions of a runtime. Those that name no context work in the current one, see `current::enter`.
pub(crate) trait Driver: Sync {
    /// Makes the context of `device` current; what [`Self::leave`] has to restore, and that context.
    fn enter(&self, device: i32) -> Result<(Option<Context>, Context), Error>;

    /// Restores what was current before [`Self::enter`] or [`Self::enter_context`].
    fn leave(&self, previous: Context);

    /// Makes a context current that [`Self::context_of`] has told; what [`Self::leave`] has to restore.
    fn enter_context(&self, context: Context) -> Result<Option<Context>, Error>;

    /// The context of a stream.
    fn context_of(&self, stream: RawStream) -> Result<Context, Error>;

    /// The device of a context.
    fn device_of_context(&self, context: Context) -> Result<i32, Error>;

    /// Whether an event may be recorded anew while its last record is pending.
    fn rerecords(&self) -> bool;

    /// A new event of the current context, without timing.
    fn create_event(&self) -> Result<RawEvent, Error>;

    /// Puts `event` behind all that `stream` has been given.
    fn record(&self, event: RawEvent, stream: RawStream) -> Result<(), Error>;

    /// Makes `stream` wait for what `event` was recorded behind.
    fn wait(&self, stream: RawStream, event: RawEvent) -> Result<(), Error>;

    /// Whether what `event` was recorded behind is done.
    fn is_done(&self, event: RawEvent) -> Result<bool, Error>;

    /// Blocks until what `event` was recorded behind is done.
    fn synchronize_event(&self, event: RawEvent) -> Result<(), Error>;

    /// Blocks until all that `stream` has been given is done.
    fn synchronize_stream(&self, stream: RawStream) -> Result<(), Error>;

    /// Blocks until all that the current context has been given is done.
    fn synchronize_context(&self) -> Result<(), Error>;

    /// Whether `stream` captures.
    fn capture(&self, stream: RawStream) -> Result<Capture, Error>;

    /// Sets how this thread's calls affect captures elsewhere, and returns how they did (2 is relaxed).
    fn exchange_capture_mode(&self, mode: i32) -> Result<i32, Error>;

    /// Queues a copy of bytes between any two memories.
    ///
    /// # Safety
    ///
    /// Both ranges are memory that the driver reaches, until the work of `stream` is done; `to` is nobody else's
    /// to read or write until then.
    unsafe fn copy(
        &self,
        to: usize,
        from: usize,
        bytes: usize,
        stream: RawStream,
    ) -> Result<(), Error>;

    /// Queues a copy of rows between any two memories.
    ///
    /// # Safety
    ///
    /// As for [`Self::copy`], for each row.
    unsafe fn copy_rows(&self, rows: Rows, stream: RawStream) -> Result<(), Error>;

    /// Memory of the current context's device, in the order of `stream`.
    fn allocate(&self, bytes: usize, stream: RawStream) -> Result<usize, Error>;

    /// Gives memory of [`Self::allocate`] back, in the order of `stream`.
    ///
    /// # Safety
    ///
    /// The memory is not used by what is given to any stream later, nor by what `stream` does not wait for.
    unsafe fn free(&self, memory: usize, stream: RawStream) -> Result<(), Error>;

    /// The device on which the memory at an address is.
    fn device_of(&self, address: usize) -> Result<i32, Error>;
}
