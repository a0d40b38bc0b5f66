//! dlx's own host memory, aligned as `dlpack.h` requires.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use crate::types::error::Error;

/// The alignment that `dlpack.h` requires of `data` (R96).
pub(crate) const ALIGNMENT: usize = 256;

/// Size from which huge pages are requested; they halve the time of a large copy.
const HUGE: usize = 4 << 20;
/// Alignment of such blocks, so that they consist of whole huge pages.
const HUGE_PAGE: usize = 2 << 20;

/// An uninitialized block of host memory, freed on drop; NULL if it has no bytes (R93).
pub(crate) struct Memory {
    /// Start of the allocation.
    start: Option<NonNull<u8>>,
    /// Bytes of the block.
    size: usize,
}

/// The alignment of every allocation.
const ALLOCATED: usize = 16;

/// The allocation for a block of `size` bytes, with room to start it at the next multiple of [`ALIGNMENT`].
///
/// This wastes some bytes, but allocators take several times as long when asked for the alignment.
fn layout(size: usize) -> Result<Layout, Error> {
    let layout = if size < HUGE {
        Layout::from_size_align(size + (ALIGNMENT - ALLOCATED), ALLOCATED)
    } else {
        Layout::from_size_align(size, HUGE_PAGE)
    };
    layout.map_err(|_| Error::OutOfMemory(size))
}

// SAFETY: a block of bytes belongs to no thread, and `Memory` itself never reads or writes it.
unsafe impl Send for Memory {}
// SAFETY: as for `Send`.
unsafe impl Sync for Memory {}

impl Memory {
    /// A block of `bytes` bytes at an address that is a multiple of [`ALIGNMENT`].
    pub(crate) fn new(bytes: i64) -> Result<Self, Error> {
        let size = usize::try_from(bytes).map_err(|_| Error::OutOfMemory(usize::MAX))?;
        if size == 0 {
            return Ok(Self { start: None, size });
        }
        // SAFETY: the size is not 0.
        let start = unsafe { alloc(layout(size)?) };
        let start = NonNull::new(start).ok_or(Error::OutOfMemory(size))?;
        #[cfg(target_os = "linux")]
        advise(start, size);
        Ok(Self {
            start: Some(start),
            size,
        })
    }

    /// Address of the first byte, or NULL.
    pub(crate) fn as_ptr(&self) -> *mut c_void {
        let aligned = |start: NonNull<u8>| {
            let start = start.as_ptr().cast::<c_void>();
            start.map_addr(|address| address.next_multiple_of(ALIGNMENT))
        };
        self.start.map_or(null_mut(), aligned)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let (Some(start), Ok(layout)) = (self.start, layout(self.size)) {
            // SAFETY: allocated by `new` with this layout; every tensor over it holds this `Memory` (S4, exports).
            unsafe { dealloc(start.as_ptr(), layout) };
        }
    }
}

/// Requests huge pages for the whole pages of a large block.
#[cfg(target_os = "linux")]
fn advise(start: NonNull<u8>, size: usize) {
    if size >= HUGE {
        let whole = size / HUGE_PAGE * HUGE_PAGE;
        // SAFETY: the range lies in the block just allocated, which starts on a page boundary; the advice does not
        // change its contents.
        unsafe { libc::madvise(start.as_ptr().cast(), whole, libc::MADV_HUGEPAGE) };
    }
}
