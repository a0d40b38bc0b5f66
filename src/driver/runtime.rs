//! A loaded runtime: that of CUDA or that of HIP.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::null;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use super::error::Error;
use super::functions::{Functions, call, out};
use super::interface::{Capture, RawStream, Run};
use super::library::{check_fork, initialized, load, once, symbol};
use crate::abi::{DLDevice, kDLCUDA, kDLCUDAManaged, kDLROCM};

/// The numbers of either header.
const POINTER_ATTRIBUTE_DEVICE_ORDINAL: c_int = 9;
/// `hipMemcpyDefault`: the direction is inferred from the addresses.
const BY_ADDRESSES: c_int = 4;

/// Of how many devices the primary contexts are remembered; those of others are retained at each use.
const DEVICES: usize = 32;

/// A runtime, loaded and initialized. Functions without a context argument use the current one; see `contexts::enter`.
#[derive(Default)]
pub(crate) struct Driver {
    pub(super) functions: Functions,
    pub(super) is_hip: bool,
    /// `hipGetErrorName`, which does not return a status.
    hip_error_name: Option<unsafe extern "C" fn(c_int) -> *const c_char>,
    /// The primary contexts of CUDA in use, by device, or 0; never released.
    pub(super) primary: [AtomicUsize; DEVICES],
}

/// The driver of a device, loaded and initialized.
///
/// # Errors
///
/// The library is missing or has no device, or the process forked after initializing it.
pub(crate) fn of(device: DLDevice) -> Result<&'static Driver, Error> {
    static CUDA: OnceLock<Result<Driver, Error>> = OnceLock::new();
    static HIP: OnceLock<Result<Driver, Error>> = OnceLock::new();
    let (place, is_hip) = match device.device_type {
        kDLCUDA | kDLCUDAManaged => (&CUDA, false),
        kDLROCM => (&HIP, true),
        _ => return Err(Error::NoStreams),
    };
    check_fork()?;
    let begun = || Driver::begin(is_hip);
    once(place, begun).as_ref().map_err(Error::clone)
}

/// Relaxed capture mode: until this is dropped, calls of this thread invalidate no thread's capture.
pub(crate) struct Relaxed<'a> {
    driver: &'a Driver,
    /// The mode before.
    mode: c_int,
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        // Fails only if the driver has shut down.
        call!(self.driver, exchange_capture_mode(&mut self.mode)).ok();
    }
}

impl Driver {
    fn begin(is_hip: bool) -> Result<Self, Error> {
        let cuda = if cfg!(windows) {
            "nvcuda.dll"
        } else {
            "libcuda.so.1"
        };
        let hip = [
            "libamdhip64.so.7",
            "libamdhip64.so.6",
            "libamdhip64.so",
            "amdhip64.dll",
        ];
        let library = if is_hip {
            load("DLX_LIBAMDHIP", "libamdhip64", &hip)?
        } else {
            load("DLX_LIBCUDA", "libcuda.so", &[cuda])?
        };
        // SAFETY: the signatures are those of `cuda.h` and `hip_runtime_api.h`; a symbol never changes its signature (S19).
        let functions = unsafe { Functions::find(library, is_hip) };
        let driver = Self {
            functions,
            is_hip,
            // SAFETY: as for the table (S19).
            hip_error_name: unsafe { symbol(library, "hipGetErrorName") }.filter(|_| is_hip),
            primary: Default::default(),
        };
        call!(driver, init(0))?;
        initialized();
        Ok(driver)
    }

    #[cold]
    pub(super) fn failed(&self, call: &'static str, code: c_int) -> Error {
        let mut name: *const c_char = null();
        if let Some(function) = self.hip_error_name {
            // SAFETY: accepts any code.
            name = unsafe { function(code) };
        } else if let (_, Some(function)) = self.functions.error_name {
            // SAFETY: the out-pointer is a local; the driver writes a static string or NULL.
            unsafe { function(code, &mut name) };
        }
        // SAFETY: a static string of the driver.
        let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) });
        let name = name.map_or("unknown".into(), CStr::to_string_lossy);
        let name = name.into_owned();
        Error::Failed { call, code, name }
    }

    /// The number of a stream, which no other stream of this process gets, even after its end; `None` if the driver has
    /// no such numbers. Invalidates a capture of the stream.
    pub(crate) fn number(&self, stream: RawStream) -> Result<Option<u64>, Error> {
        numbered(out(|number| call!(self, stream_id(stream.0, number))))
    }

    /// Sets this thread's capture mode to the relaxed one.
    pub(crate) fn relaxed(&self) -> Result<Relaxed<'_>, Error> {
        /// `CU_STREAM_CAPTURE_MODE_RELAXED`, and HIP's.
        const RELAXED: c_int = 2;
        let mut mode = RELAXED;
        call!(self, exchange_capture_mode(&mut mode))?;
        Ok(Relaxed { driver: self, mode })
    }

    /// Blocks until all work queued on `stream` is done. `stream` must not be capturing; no other capture is
    /// invalidated.
    pub(crate) fn synchronize(&self, stream: RawStream) -> Result<(), Error> {
        let _relaxed = self.relaxed()?;
        call!(self, synchronize_stream(stream.0))
    }

    /// The capture state of `stream`.
    pub(crate) fn capture(&self, stream: RawStream) -> Result<Capture, Error> {
        /// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT`, and HIP's.
        const CAPTURE_IMPLICIT: i32 = 906;
        let (stream, mut status, mut id) = (stream.0, 0, 0);
        match call!(self, is_capturing(stream, &mut status)) {
            Err(error) if error.code() == Some(CAPTURE_IMPLICIT) => return Ok(Capture::Implicit),
            answer => answer?,
        }
        match status {
            0 => return Ok(Capture::None),
            1 if self.is_hip => call!(self, capture_info_of_hip(stream, &mut status, &mut id))?,
            // Of the graph, its nodes and their number nothing is asked.
            1 => call!(self, capture_info(stream, &mut status, &mut id, 0, 0, 0))?,
            _ => return Ok(Capture::Invalidated),
        }
        Ok(Capture::Active(id))
    }

    /// Queues a copy.
    ///
    /// # Safety
    ///
    /// Both ranges are accessible to the driver until the work of `stream` is done, and nothing else reads or writes
    /// the range at `to` until then.
    pub(crate) unsafe fn copy(&self, run: Run, stream: RawStream) -> Result<(), Error> {
        let (from, to, bytes, stream) = (run.from.0, run.to.0, run.bytes, stream.0);
        match (run.devices(), self.is_hip) {
            (None, false) => call!(self, copy(to, from, bytes, stream)),
            (None, true) => call!(self, copy_of_hip(to, from, bytes, BY_ADDRESSES, stream)),
            (Some((here, there)), true) => {
                call!(self, copy_peer_of_hip(to, there, from, here, bytes, stream))
            }
            (Some((here, there)), false) => {
                let (here, there) = (self.primary(here)?, self.primary(there)?);
                call!(self, copy_peer(to, there, from, here, bytes, stream))
            }
        }
    }

    /// Allocates memory on the current context's device, from its pool, ordered on `stream`.
    pub(crate) fn allocate(&self, bytes: usize, stream: RawStream) -> Result<usize, Error> {
        out(|memory| call!(self, allocate(memory, bytes, stream.0)))
    }

    /// Frees memory from [`Self::allocate`], ordered on `stream`.
    ///
    /// # Safety
    ///
    /// No work that is queued later on any stream uses the memory, nor does any work that `stream` does not wait for.
    pub(crate) unsafe fn free(&self, memory: usize, stream: RawStream) -> Result<(), Error> {
        call!(self, free(memory, stream.0))
    }

    /// Allocates memory on the current context's device, for one without pools.
    pub(crate) fn allocate_unpooled(&self, bytes: usize) -> Result<usize, Error> {
        out(|memory| call!(self, allocate_unpooled(memory, bytes)))
    }

    /// Frees memory from [`Self::allocate_unpooled`] at once.
    ///
    /// # Safety
    ///
    /// No work uses the memory, nor will any.
    pub(crate) unsafe fn free_unpooled(&self, memory: usize) -> Result<(), Error> {
        call!(self, free_unpooled(memory))
    }

    /// The bytes of memory that a device has.
    pub(crate) fn memory(&self, device: i32) -> Result<usize, Error> {
        out(|bytes| call!(self, total_memory(bytes, device)))
    }

    /// The device of the memory at an address.
    pub(crate) fn device_of(&self, address: usize) -> Result<i32, Error> {
        let kind = POINTER_ATTRIBUTE_DEVICE_ORDINAL;
        out(|device| call!(self, pointer_attribute(device, kind, address)))
    }
}

/// The number that a driver was asked for, if it has such numbers.
pub(super) fn numbered(asked: Result<u64, Error>) -> Result<Option<u64>, Error> {
    match asked {
        Err(Error::Missing(_)) => Ok(None),
        answer => answer.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_of_cuda_11_numbers_neither_streams_nor_contexts() -> Result<(), Error> {
        let cuda = Driver::default();
        // SAFETY: no driver gets it.
        let stream = unsafe { RawStream::of_handle(0x5000) };
        assert_eq!(
            (cuda.number(stream)?, cuda.number_of_context(1)?),
            (None, None)
        );
        Ok(())
    }
}
