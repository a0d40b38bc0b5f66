//! dlx's own memory on devices with streams, allocated and freed in stream order.
//!
//! It may be released on any thread, attached or not, during a capture, and after the driver is gone.

use std::ffi::c_void;
use std::mem::take;

use crate::abi::DLDevice;
use crate::cpython::fork::Lock;
use crate::cpython::interpreter::attach_uncounted;
use crate::cpython::interpreter::blocking;
use crate::driver;
use crate::driver::Capture;
use crate::stream;
use crate::stream::Stream;
use crate::stream::release::sweep;
use crate::types::error::Error;

/// A block of device memory, freed on drop; has no address if it has no bytes (R93).
pub(crate) struct DeviceMemory(Option<Allocation>);

/// An allocation and the stream to free it on.
struct Allocation {
    address: usize,
    device: DLDevice,
    stream: Stream,
    /// Whether the stream may be destroyed before the memory is freed.
    lent: bool,
}

/// Allocations that could not be freed yet, mostly because of a capture.
static KEPT_BACK: Lock<Vec<Allocation>> = Lock::new(Vec::new());

impl DeviceMemory {
    /// A block of `bytes` bytes, for work queued on `stream` from now on.
    ///
    /// A `lent` stream need not outlive the memory.
    ///
    /// # Errors
    ///
    /// `BufferError` without a driver or while the stream is capturing; `MemoryError`; errors of the driver.
    pub(crate) fn new(bytes: i64, stream: &Stream, lent: bool) -> Result<Self, Error> {
        let device = stream.device();
        let current = driver::enter(device).map_err(|error| no_driver(device, error))?;
        let raw = stream.raw()?;
        if current.capture(raw)? != Capture::None {
            return Err(captured(stream));
        }
        sweep();
        free_kept_back();
        let bytes = usize::try_from(bytes).map_err(|_| Error::OutOfMemory(usize::MAX))?;
        if bytes == 0 {
            return Ok(Self(None));
        }
        let address = match current.allocate(bytes, raw) {
            Err(error) if error.is_out_of_memory() => return Err(Error::OutOfMemory(bytes)),
            allocated => allocated?,
        };
        Ok(Self(Some(Allocation {
            address,
            device,
            stream: stream.clone(),
            lent,
        })))
    }

    /// Address of the first byte, or NULL.
    pub(crate) fn as_ptr(&self) -> *mut c_void {
        let address = self.0.as_ref().map_or(0, |block| block.address);
        std::ptr::with_exposed_provenance_mut(address)
    }

    /// Whether the block is freed in the order of `stream`.
    pub(crate) fn is_freed_on(&self, stream: &Stream) -> bool {
        let block = self.0.as_ref();
        block.is_none_or(|block| !block.lent && block.stream.is(stream))
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if let Some(block) = self.0.take() {
            free_kept_back();
            free(block);
        }
    }
}

/// Frees the allocations that could not be freed before.
fn free_kept_back() {
    let blocks = take(&mut *KEPT_BACK.lock());
    blocks.into_iter().for_each(free);
}

/// Frees an allocation, or keeps it for later; once the driver is gone, so is the memory.
fn free(block: Allocation) {
    if let Err(error) = block.free()
        && !error.is_final()
    {
        KEPT_BACK.lock().push(block);
    }
}

impl Allocation {
    fn free(&self) -> Result<(), driver::Error> {
        let alive = self.living_stream();
        let current = driver::enter(self.device)?;
        let stream = match alive {
            Some(stream) => stream,
            None => {
                // Then all work of the context is done, including that of the stream, which may be gone.
                blocking(|| driver::relaxed(&*current, || current.synchronize_context()))?;
                self.default_stream()
            }
        };
        if current.capture(stream)? != Capture::None {
            return Err(driver::Error::Captured);
        }
        // SAFETY: allocated by `new`. Every tensor over it holds this block (S22) and is released after the other
        // streams that used it (`stream/release.rs`). This stream is the one that it was used on, or no work is left.
        unsafe { current.free(self.address, stream) }
    }

    /// The stream, unless it may be gone or has no handle in this thread.
    fn living_stream(&self) -> Option<driver::RawStream> {
        let current = || {
            let handle = attach_uncounted(|py| match stream::current(py, self.device) {
                Ok(handle) => Some(handle),
                Err(error) => {
                    // PyO3 does not count this attachment.
                    pyo3::Python::attach(|_| drop(error));
                    None
                }
            });
            handle.flatten() == Some(self.stream.handle())
        };
        if !self.lent || current() {
            self.stream.raw().ok()
        } else {
            None
        }
    }

    /// A default stream that, unlike the legacy one, does not invalidate captures of other streams.
    fn default_stream(&self) -> driver::RawStream {
        let stream = Stream::thread_default(self.device);
        // SAFETY: default streams live as long as their context (S18).
        unsafe { driver::RawStream::of_handle(stream.handle()) }
    }
}

/// The error for a device without a driver.
#[cold]
fn no_driver(device: DLDevice, error: driver::Error) -> Error {
    if error.is_absent() {
        Error::refused(format!(
            "dlx has no memory on {}: {error}",
            crate::types::device::name(device)
        ))
    } else {
        error.into()
    }
}

#[cold]
fn captured(stream: &Stream) -> Error {
    Error::refused(format!(
        "stream {} captures a graph, to which memory allocated now would belong; allocate or copy before the capture \
         begins, or on another stream",
        stream.handle()
    ))
}
