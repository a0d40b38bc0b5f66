//! Runs of pages that the kernel has mapped, unmapped when they are dropped.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};

/// Mapped pages.
pub(super) struct Pages {
    start: NonNull<c_void>,
    size: usize,
}

// SAFETY: addresses belong to no thread, and `Pages` reads and writes nothing behind them.
unsafe impl Send for Pages {}
// SAFETY: as for `Send`.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps `size` bytes of a file, or addresses alone, where the kernel likes.
    pub(super) fn map(
        size: usize,
        protection: c_int,
        flags: c_int,
        file: Option<BorrowedFd<'_>>,
        offset: i64,
    ) -> io::Result<Self> {
        let file = file.map_or(-1, |file| file.as_raw_fd());
        // SAFETY: without an address and `MAP_FIXED`, which callers do not pass, it touches no other mapping.
        let start = unsafe { libc::mmap(null_mut(), size, protection, flags, file, offset) };
        match NonNull::new(start) {
            Some(start) if start.as_ptr() != libc::MAP_FAILED => Ok(Self { start, size }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Maps a file for reading over a part of these pages; whether the kernel did.
    pub(super) fn replace(&mut self, begin: usize, size: usize, file: BorrowedFd<'_>) -> bool {
        let Some(at) = self.at(begin, size) else {
            return false;
        };
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: `at` lies in these pages, which nobody else has: they are borrowed exclusively.
        let start = unsafe { libc::mmap(at, size, libc::PROT_READ, flags, file.as_raw_fd(), 0) };
        start == at
    }

    /// Advises the kernel about a part of these pages; whether it complied.
    pub(super) fn advise(&self, begin: usize, size: usize, advice: c_int) -> bool {
        let Some(at) = self.at(begin, size) else {
            return false;
        };
        // SAFETY: `at` lies in these pages. The advice that callers give changes no content.
        unsafe { libc::madvise(at, size, advice) == 0 }
    }

    /// The address `begin` bytes behind the first, if `size` bytes of these pages follow.
    fn at(&self, begin: usize, size: usize) -> Option<*mut c_void> {
        let fits = begin.checked_add(size)? <= self.size;
        fits.then(|| self.start.as_ptr().wrapping_byte_add(begin))
    }

    /// The first address.
    pub(super) fn start(&self) -> NonNull<c_void> {
        self.start
    }

    /// How many bytes were asked for.
    pub(super) fn size(&self) -> usize {
        self.size
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, unmapped once, and who has an address of it holds the owner (S30).
        unsafe { libc::munmap(self.start.as_ptr(), self.size) };
    }
}
