//! Segments: sealed files in memory, written into huge pages where the kernel gives them.

use std::ffi::{CString, c_int};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::shared::descriptor::{open, owned};
use crate::shared::os_error;
use crate::shared::pages::Pages;

/// Bytes that are written between two looks for signals, without the GIL.
const AT_ONCE: usize = 64 << 20;

/// Makes a segment of `size` bytes that begins with `data`; nobody has it before it is sealed.
pub(super) fn make(
    py: Python<'_>,
    name: &str,
    size: u64,
    data: Option<&PyBuffer<u8>>,
) -> PyResult<OwnedFd> {
    let name = CString::new(name).map_err(|_| PyValueError::new_err("a null byte in the name"))?;
    let failed = |error: io::Error| os_error(py, &error);
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a name that ends with a null byte.
    let file = owned(unsafe { libc::memfd_create(name.as_ptr(), flags) }).map_err(failed)?;
    // SAFETY: a call with numbers.
    done(unsafe { libc::fchmod(file.as_raw_fd(), 0o600) }).map_err(failed)?;
    let end = i64::try_from(size).map_err(|_| failed(io::Error::from_raw_os_error(libc::EFBIG)))?;
    // SAFETY: a call with numbers.
    done(unsafe { libc::ftruncate(file.as_raw_fd(), end) }).map_err(failed)?;
    if let Some(data) = data {
        write(
            py,
            file.as_fd(),
            data,
            Huge::of(file.as_fd(), data.len_bytes()),
        )?;
    }
    let seals: c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
    // SAFETY: `F_ADD_SEALS` takes a number.
    done(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) }).map_err(failed)?;
    Ok(file)
}

/// The error of a call that returns -1 for one.
fn done(returned: c_int) -> io::Result<()> {
    match returned {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Writes these bytes, all that can into huge pages.
fn write(
    py: Python<'_>,
    file: BorrowedFd<'_>,
    data: &PyBuffer<u8>,
    mut huge: impl Iterator<Item = usize> + Send,
) -> PyResult<()> {
    let (start, size) = (data.buf_ptr().addr(), data.len_bytes());
    let mut place = 0;
    while place < size {
        let first = place;
        // Faster than through a mapping, which faults once for each page.
        let written: io::Result<()> = py.detach(|| {
            while place < size && place - first < AT_ONCE {
                let end = huge.next().unwrap_or(size).min(size);
                while place < end && place - first < AT_ONCE {
                    place += pwrite(file, start + place, end - place, place)?;
                }
            }
            Ok(())
        });
        match written {
            Err(error) if error.raw_os_error() != Some(libc::EINTR) => {
                return Err(os_error(py, &error));
            }
            _ => py.check_signals()?,
        }
    }
    Ok(())
}

/// Writes some of the bytes at an address; how many.
fn pwrite(file: BorrowedFd<'_>, address: usize, size: usize, place: usize) -> io::Result<usize> {
    let data = std::ptr::with_exposed_provenance::<std::ffi::c_void>(address);
    let size = size.min(AT_ONCE);
    // SAFETY: a part of a buffer that the caller holds. Only the kernel reads it, so others may write to it meanwhile.
    let written = unsafe { libc::pwrite(file.as_raw_fd(), data, size, place as libc::off_t) };
    match usize::try_from(written) {
        Ok(0) => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
        Ok(written) => Ok(written),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// The size of a huge page; 0 if the kernel has none for files in memory.
fn size_of_huge_page() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| {
        let path = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size";
        let text = fs::read_to_string(path).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    })
}

/// Gives a new file in memory huge pages, one at a time; each item is where one ends.
///
/// One is cleared at once and freed at once, and takes a place of the TLB, where 512 small ones fault, are counted and
/// are freed one by one. It ends where the kernel has none to give, and with the last that the bytes fill.
struct Huge<'a> {
    pages: Option<Pages>,
    file: BorrowedFd<'a>,
    /// Where the mapping of the file begins in the pages.
    begin: usize,
    place: usize,
    size: usize,
    huge: usize,
}

impl<'a> Huge<'a> {
    /// For a file that `size` bytes will be written to.
    fn of(file: BorrowedFd<'a>, size: usize) -> Self {
        let huge = size_of_huge_page();
        let mut made = Self {
            pages: None,
            file,
            begin: 0,
            place: 0,
            size,
            huge,
        };
        if huge > 0 && size >= huge {
            made.reserve();
        }
        made
    }

    /// Maps the file where the address is aligned as the place in the file is.
    fn reserve(&mut self) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let path = CString::new(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        // What cannot write does not keep the file from being frozen, also in a child that begins meanwhile.
        let (Ok(path), Ok(mut pages)) = (
            path,
            Pages::map(self.size + self.huge, libc::PROT_NONE, flags, None, 0),
        ) else {
            return;
        };
        let Ok(reading) = open(&path, libc::O_RDONLY, 0) else {
            return;
        };
        let start = pages.start().addr().get();
        self.begin = start.next_multiple_of(self.huge) - start;
        if pages.replace(self.begin, self.size, reading.as_fd()) {
            // Otherwise such a child would keep the memory.
            pages.advise(self.begin, self.size, libc::MADV_DONTFORK);
            self.pages = Some(pages);
        }
    }
}

impl Iterator for Huge<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let pages = self.pages.as_ref()?;
        let (place, end) = (self.place, self.place + self.huge);
        let zero = [0_u8];
        // The kernel collapses what has a page.
        let given = end <= self.size
            && pwrite(self.file, zero.as_ptr().expose_provenance(), 1, place).is_ok()
            && pages.advise(self.begin + place, self.huge, libc::MADV_COLLAPSE);
        if !given {
            self.pages = None;
            return None;
        }
        self.place = end;
        Some(end)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    /// What a segment holds after a kernel gave `most` pages of `page` bytes.
    fn written(size: usize, page: usize, most: usize) -> PyResult<(Vec<u8>, Vec<u8>)> {
        Python::attach(|py| {
            let bytes: Vec<u8> = (0..size).map(|index| (index % 251) as u8).collect();
            let data = pyo3::types::PyBytes::new(py, &bytes);
            let file = make(py, "test", size as u64, None)?;
            let ends = (1..).map(|index| index * page).take(most.min(size / page));
            write(py, file.as_fd(), &PyBuffer::get(&data)?, ends)?;
            let mut read = vec![0; size];
            fs::File::from(file).read_exact_at(&mut read, 0)?;
            Ok((bytes, read))
        })
    }

    #[test]
    fn all_bytes_are_written_however_many_huge_pages_there_are() -> PyResult<()> {
        for size in [1, 999, 1000, 1001, 2992, 7097] {
            for most in [0, 1, 9] {
                let (bytes, read) = written(size, 1000, most)?;
                assert_eq!(bytes, read, "{size} bytes, {most} pages");
            }
        }
        Ok(())
    }

    #[test]
    fn after_a_refusal_no_huge_page_is_asked_for() {
        let file = io::stdin();
        let mut huge = Huge {
            pages: None,
            file: file.as_fd(),
            begin: 0,
            place: 0,
            size: 9,
            huge: 3,
        };
        assert_eq!(huge.next(), None);
    }
}
