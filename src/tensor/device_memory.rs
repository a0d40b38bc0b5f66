//! dlx's own memory on devices with streams, allocated and freed in stream order.
//!
//! The pool is the device's default one. The whole process shares it, so its release threshold is the application's.
//!
//! Memory may be released on any thread, attached or not, during a capture, and after the driver is gone. A block is freed
//! on a stream that is alive:
//!
//! ```text
//! its own stream              if that is kept alive, or is current in this thread
//! none yet                    while the stream captures, or may be gone: kept back until it does neither
//! the legacy default stream   beyond the bytes that may be kept back, after the work that is known of other streams
//! ```

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;

use crate::abi::DLDevice;
use crate::cpython::fork::Lock;
use crate::cpython::interpreter::blocking;
use crate::driver::{Capture, Event};
use crate::stream::end::End;
use crate::stream::order::{self, Joined, Waits};
use crate::stream::usage::{Ready, StreamUsage};
use crate::stream::{self, Stream, release};
use crate::types::error::Error;

/// A block of device memory, freed on drop; has no address if it has no bytes (R93).
pub(crate) struct DeviceMemory(Option<Allocation>);

/// An allocation and the stream to free it on.
struct Allocation {
    address: usize,
    bytes: usize,
    stream: Stream,
    /// Whether the memory is of the device's pool, so that it is freed in the order of a stream.
    is_pooled: bool,
    /// Whether the stream may be destroyed before the memory is freed.
    lent: bool,
    /// The number of the stream, where that is not kept and the driver has numbers.
    number: Option<u64>,
    /// The point at which the memory was handed over to a lent stream.
    ready: Option<Arc<Event>>,
}

/// Allocations that could not be freed yet, oldest first.
static KEPT_BACK: Lock<VecDeque<Allocation>> = Lock::new(VecDeque::new());

/// Maximum bytes to keep back for streams that may be gone, and maximum number of allocations.
const KEPT: usize = 256 << 20;
const COUNT: usize = 1024;
/// Allocations to try again whenever one is freed; whenever one is made, it is all of them.
const LOOKS: usize = 2;

impl DeviceMemory {
    /// A block of `bytes` bytes, for work queued on `stream` from now on.
    ///
    /// A `lent` stream need not outlive the memory.
    ///
    /// # Errors
    ///
    /// `BufferError` without a driver or while the stream is capturing; `MemoryError`; errors of the driver.
    pub(crate) fn new(bytes: i64, stream: &Stream, lent: bool) -> Result<Self, Error> {
        let captures = stream.capture().map_err(|error| match error.is_absent() {
            true => Error::refused(format!(
                "dlx has no memory on {}: {}",
                stream.device(),
                error.message()
            )),
            false => error,
        })?;
        if captures != Capture::None {
            return Err(Error::refused(format!(
                "stream {} captures a graph, to which memory allocated now would belong; allocate or copy before the \
                 capture begins, or on another stream",
                stream.handle()
            )));
        }
        free_kept_back(usize::MAX, &mut Working(None));
        let bytes = usize::try_from(bytes).map_err(|_| Error::OutOfMemory(usize::MAX))?;
        if bytes == 0 {
            return Ok(Self(None));
        }
        let block = blocking(|| {
            let (current, raw) = stream.enter(None)?;
            let number = if stream.is_kept() {
                None
            } else {
                current.number(raw)?
            };
            // The pool may have to grow, which a capture in another thread forbids in any mode but the relaxed one.
            let _relaxed = current.relaxed()?;
            let (allocated, is_pooled) = match current.allocate(bytes, raw) {
                Err(error) if error.is_not_supported() => (current.allocate_unpooled(bytes), false),
                pooled => (pooled, true),
            };
            Ok::<_, Error>(Allocation {
                address: allocated.map_err(|error| match error.is_out_of_memory() {
                    true => Error::OutOfMemory(bytes),
                    false => error.into(),
                })?,
                bytes,
                stream: stream.clone(),
                is_pooled,
                lent,
                number,
                ready: None,
            })
        })?;
        Ok(Self(Some(block)))
    }

    /// Address of the first byte, or NULL.
    pub(crate) fn as_ptr(&self) -> *mut c_void {
        let address = self.0.as_ref().map_or(0, |block| block.address);
        std::ptr::with_exposed_provenance_mut(address)
    }

    /// Notes when the memory is ready, for the case that its stream is gone when it is freed.
    pub(crate) fn ready_at(&mut self, usage: &StreamUsage) {
        if let (Some(block), Ready::Point(point)) = (&mut self.0, &usage.ready) {
            block.ready = Some(point.clone());
        }
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
            let mut working = Working(None);
            free_kept_back(LOOKS, &mut working);
            free(block, &mut working);
        }
    }
}

/// Memory that is of no pool, freed on drop: nothing uses it any more.
struct Unpooled {
    address: usize,
    /// One of its context.
    stream: Stream,
}

impl Drop for Unpooled {
    fn drop(&mut self) {
        let freed: Result<(), Error> = blocking(|| {
            let (current, _) = self.stream.in_this_thread().enter(None)?;
            let _relaxed = current.relaxed()?;
            // SAFETY: allocated by `DeviceMemory::new`. Whoever drops this has waited for the last work on it.
            Ok(unsafe { current.free_unpooled(self.address) }?)
        });
        // An error says that the context is gone, and the memory with it.
        freed.ok();
    }
}

/// dlx's current stream of a device, asked for once.
struct Working(Option<(DLDevice, Option<Stream>)>);

impl Working {
    fn on(&mut self, device: DLDevice) -> Option<&Stream> {
        if !matches!(&self.0, Some((known, _)) if *known == device) {
            self.0 = Some((device, stream::working(device).ok()));
        }
        self.0.as_ref().and_then(|(_, stream)| stream.as_ref())
    }
}

/// Tries again to free allocations that could not be freed before, the oldest first and at most `count`.
fn free_kept_back(count: usize, working: &mut Working) {
    let kept = KEPT_BACK.lock().len();
    for _ in 0..count.min(kept) {
        let Some(block) = KEPT_BACK.lock().pop_front() else {
            return;
        };
        free(block, working);
    }
}

/// Frees an allocation, or keeps it for later; once the driver is gone, so is the memory.
fn free(mut block: Allocation, working: &mut Working) {
    if block.is_stream_alive(working) && is_over(block.free_on(&block.stream)) {
        return;
    }
    // Whoever has named the stream keeps it only as long as the tensor.
    block.lent |= !block.stream.is_kept();
    KEPT_BACK.lock().push_back(block);
    while let Some(oldest) = beyond_bounds() {
        let freed = oldest
            .default_stream(working)
            .and_then(|stream| oldest.free_on(&stream));
        if !is_over(freed) {
            return KEPT_BACK.lock().push_back(oldest);
        }
    }
}

/// Whether the memory has been freed, or nothing runs any more.
fn is_over(freed: Result<bool, Error>) -> bool {
    match freed {
        Ok(freed) => freed,
        Err(Error::Driver(error)) => error.is_final(),
        Err(_) => false,
    }
}

/// The oldest allocation of a stream that may be gone, removed, if these have too many bytes.
fn beyond_bounds() -> Option<Allocation> {
    let mut kept = KEPT_BACK.lock();
    let add = |(count, sum): (usize, usize), block: &Allocation| {
        (count + 1, sum.saturating_add(block.bytes))
    };
    let (count, bytes) = kept.iter().filter(|block| block.lent).fold((0, 0), add);
    if count <= COUNT && bytes <= KEPT {
        return None;
    }
    let oldest = kept.iter().position(|block| block.lent)?;
    kept.remove(oldest)
}

impl Allocation {
    /// Frees the block in the order of `stream`; returns false while that captures, or is not the block's own any more.
    fn free_on(&self, stream: &Stream) -> Result<bool, Error> {
        let freed = blocking(|| {
            let (current, raw) = stream.in_this_thread().enter(None)?;
            if current.capture(raw)? != Capture::None {
                return Ok(false);
            }
            if self.lent && stream.is(&self.stream) && !self.is_number(current.number(raw)?) {
                return Ok(false);
            }
            if self.is_pooled {
                let _relaxed = current.relaxed()?;
                // SAFETY: allocated by `new`. Every tensor over it holds this block (S22) and is released after the other
                // streams that used it (`stream/release.rs`). This stream is the one that it was used on, or waits for all
                // work on it that dlx knows of.
                unsafe { current.free(self.address, raw) }?;
            }
            Ok::<_, Error>(true)
        })?;
        if freed && !self.is_pooled {
            let point = order::point(&stream.in_this_thread())?;
            let memory = Unpooled {
                address: self.address,
                stream: self.stream.clone(),
            };
            let ends = vec![End::Point(point)];
            release::defer(
                ends,
                self.stream.device(),
                self.bytes as i64,
                Box::new(memory),
            );
        }
        Ok(freed)
    }

    /// Whether a stream of this number is that of the memory: it has the handle, but may be a new one.
    fn is_number(&self, number: Option<u64>) -> bool {
        number.is_some() && number == self.number
    }

    /// Whether the stream of the memory is certainly not gone.
    fn is_stream_alive(&self, working: &mut Working) -> bool {
        let is_current = |now: &Stream| now.is(&self.stream);
        !self.lent || working.on(self.stream.device()).is_some_and(is_current)
    }

    /// The default stream, which waits for all blocking streams by itself, after the work that is known of others: that
    /// before the memory was ready, and that of dlx's current stream.
    fn default_stream(&self, working: &mut Working) -> Result<Stream, Error> {
        let device = self.stream.device();
        let stream = Stream::plain(stream::default(device).unwrap_or(0), device);
        let mut waits = Waits::default();
        self.ready.iter().for_each(|point| waits.add_point(point));
        let now = working.on(device);
        now.iter().for_each(|now| waits.add(now));
        order::all(&stream, &waits, Joined::Never)?;
        Ok(stream)
    }
}
