//! The interface of a runtime, and its handles.

use std::ffi::c_void;
use std::ptr::NonNull;

use crate::abi::DLDevice;
use crate::driver::error::Error;

/// A stream as driver functions take it. Never 0 on CUDA, where 1 is the current context's legacy default stream and 2
/// the per-thread default stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct RawStream(usize);

impl RawStream {
    /// The stream of a DLPack handle.
    ///
    /// # Safety
    ///
    /// The stream is alive, and stays alive for as long as the result is used (S18).
    pub(crate) unsafe fn of_handle(handle: i64) -> Self {
        Self(handle as usize)
    }

    pub(super) fn as_ptr(self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}

/// An event created by a driver; only `driver::Event` frees it.
pub(super) type RawEvent = NonNull<c_void>;

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

impl Capture {
    /// The meaning of an answer and its status, of both runtimes; `id` asks for that of an active capture.
    pub(super) fn of(
        answer: Result<(), Error>,
        status: i32,
        id: impl FnOnce() -> Result<u64, Error>,
    ) -> Result<Self, Error> {
        /// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT`, and HIP's.
        const CAPTURE_IMPLICIT: i32 = 906;
        match (answer, status) {
            (Err(error), _) if error.code() == Some(CAPTURE_IMPLICIT) => Ok(Self::Implicit),
            (Err(error), _) => Err(error),
            (Ok(()), 0) => Ok(Self::None),
            (Ok(()), 1) => Ok(Self::Active(id()?)),
            (Ok(()), _) => Ok(Self::Invalidated),
        }
    }
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

/// The functions of a runtime. Those without a context argument use the current one; see `current::enter`.
pub(crate) trait Driver: Sync {
    /// The context that runtimes use on `device`.
    fn primary(&self, device: i32) -> Result<Context, Error>;

    /// The current context, if it is one of `device` other than the primary one. Creates no context.
    fn other_context(&self, _device: i32) -> Result<Option<Context>, Error> {
        Ok(None)
    }

    /// Makes a context current; returns what [`Self::leave`] must restore.
    fn enter_context(&self, context: Context) -> Result<Option<Context>, Error>;

    /// Restores the context that was current before [`Self::enter_context`].
    fn leave(&self, previous: Context);

    /// The context of a stream.
    fn context_of(&self, stream: RawStream) -> Result<Context, Error>;

    /// The number of a stream, which no other stream of this process gets, even after its end; `None` if the driver has
    /// no such numbers. Invalidates a capture of the stream.
    fn number(&self, _stream: RawStream) -> Result<Option<u64>, Error> {
        Ok(None)
    }

    /// The number of a context, which no other context of this process gets, even after its end; `None` if the driver has
    /// no such numbers.
    fn number_of_context(&self, _context: Context) -> Result<Option<u64>, Error> {
        Ok(None)
    }

    /// The device of a context.
    fn device_of_context(&self, context: Context) -> Result<i32, Error>;

    /// Whether an event may be re-recorded while its last record is pending.
    fn rerecords(&self) -> bool;

    /// A new event in the current context, without timing.
    fn create_event(&self) -> Result<RawEvent, Error>;

    /// Destroys an event. Waits for it that are queued keep their order.
    fn destroy_event(&self, event: RawEvent);

    /// Records `event` after all work queued on `stream`.
    fn record(&self, event: RawEvent, stream: RawStream) -> Result<(), Error>;

    /// Makes `stream` wait for the last record of `event`.
    fn wait(&self, stream: RawStream, event: RawEvent) -> Result<(), Error>;

    /// Whether the last record of `event` has completed.
    fn is_done(&self, event: RawEvent) -> Result<bool, Error>;

    /// Blocks until the last record of `event` has completed.
    fn synchronize_event(&self, event: RawEvent) -> Result<(), Error>;

    /// Blocks until all work queued on `stream` is done.
    fn synchronize_stream(&self, stream: RawStream) -> Result<(), Error>;

    /// The capture state of `stream`.
    fn capture(&self, stream: RawStream) -> Result<Capture, Error>;

    /// Sets this thread's capture mode (2 is relaxed) and returns the previous one.
    fn exchange_capture_mode(&self, mode: i32) -> Result<i32, Error>;

    /// Queues a copy.
    ///
    /// # Safety
    ///
    /// Both ranges are accessible to the driver until the work of `stream` is done, and nothing else reads or writes
    /// the range at `to` until then.
    unsafe fn copy(&self, run: Run, stream: RawStream) -> Result<(), Error>;

    /// Allocates memory on the current context's device, from its pool, ordered on `stream`.
    fn allocate(&self, bytes: usize, stream: RawStream) -> Result<usize, Error>;

    /// Frees memory from [`Self::allocate`], ordered on `stream`.
    ///
    /// # Safety
    ///
    /// No work that is queued later on any stream uses the memory, nor does any work that `stream` does not wait for.
    unsafe fn free(&self, memory: usize, stream: RawStream) -> Result<(), Error>;

    /// Allocates memory on the current context's device, for one without pools.
    fn allocate_unpooled(&self, bytes: usize) -> Result<usize, Error>;

    /// Frees memory from [`Self::allocate_unpooled`] at once.
    ///
    /// # Safety
    ///
    /// No work uses the memory, nor will any.
    unsafe fn free_unpooled(&self, memory: usize) -> Result<(), Error>;

    /// The bytes of memory that a device has.
    fn memory(&self, device: i32) -> Result<usize, Error>;

    /// The device of the memory at an address.
    fn device_of(&self, address: usize) -> Result<i32, Error>;
}
