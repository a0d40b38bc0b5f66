//! A loaded runtime: that of CUDA or that of HIP.

use std::ffi::{c_char, c_int, c_uint};
use std::ptr::{NonNull, null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use super::error::Error;
use super::functions::{Functions, call};
use super::interface::{Capture, RawEvent, RawStream, Run};
use super::library::{check_fork, failure, initialized, load, once, symbol};

/// The numbers of either header.
const EVENT_DISABLE_TIMING: c_uint = 2;
const NOT_READY: c_int = 600;
const POINTER_ATTRIBUTE_DEVICE_ORDINAL: c_int = 9;
/// `hipMemcpyDefault`: the direction is inferred from the addresses.
const HIP_MEMCPY_DEFAULT: c_int = 4;

/// Of how many devices the primary contexts are remembered; those of others are retained at each use.
const DEVICES: usize = 32;

/// A runtime, loaded and initialized. Functions without a context argument use the current one; see `current::enter`.
#[derive(Default)]
pub(crate) struct Driver {
    pub(super) functions: Functions,
    pub(super) is_hip: bool,
    /// `hipGetErrorName`, which does not return a status.
    hip_error_name: Option<unsafe extern "C" fn(c_int) -> *const c_char>,
    /// The primary contexts of CUDA in use, by device, or 0; never released.
    pub(super) primary: [AtomicUsize; DEVICES],
}

/// The CUDA driver.
pub(super) fn cuda() -> Result<&'static Driver, Error> {
    static CUDA: OnceLock<Result<Driver, Error>> = OnceLock::new();
    let file = if cfg!(windows) {
        "nvcuda.dll"
    } else {
        "libcuda.so.1"
    };
    get(&CUDA, || load("DLX_LIBCUDA", "libcuda.so", &[file]), false)
}

/// The HIP runtime.
pub(super) fn hip() -> Result<&'static Driver, Error> {
    static HIP: OnceLock<Result<Driver, Error>> = OnceLock::new();
    let files = [
        "libamdhip64.so.7",
        "libamdhip64.so.6",
        "libamdhip64.so",
        "amdhip64.dll",
    ];
    get(&HIP, || load("DLX_LIBAMDHIP", "libamdhip64", &files), true)
}

#[inline(always)]
fn get(
    place: &'static OnceLock<Result<Driver, Error>>,
    load: impl FnOnce() -> Result<&'static libloading::Library, Error>,
    is_hip: bool,
) -> Result<&'static Driver, Error> {
    check_fork()?;
    let begun = || load().and_then(|library| Driver::begin(library, is_hip));
    once(place, begun).as_ref().map_err(Error::clone)
}

impl Driver {
    fn begin(library: &libloading::Library, is_hip: bool) -> Result<Self, Error> {
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
        // SAFETY: a static string of the driver, or NULL.
        unsafe { failure(call, code, name) }
    }

    /// The number of a stream, which no other stream of this process gets, even after its end; `None` if the driver has
    /// no such numbers. Invalidates a capture of the stream.
    pub(crate) fn number(&self, stream: RawStream) -> Result<Option<u64>, Error> {
        let mut number = 0;
        let asked = call!(self, stream_id(stream.as_ptr(), &mut number));
        numbered(asked, number)
    }

    /// A new event in the current context, without timing.
    pub(super) fn create_event(&self) -> Result<RawEvent, Error> {
        let mut event = null_mut();
        call!(self, create_event(&mut event, EVENT_DISABLE_TIMING))?;
        NonNull::new(event).ok_or(Error::Missing(self.functions.create_event.0))
    }

    /// Destroys an event. Waits for it that are queued keep their order.
    pub(super) fn destroy_event(&self, event: RawEvent) {
        // The event may have ended with its context or its runtime.
        call!(self, destroy_event(event.as_ptr())).ok();
    }

    /// Records `event` after all work queued on `stream`.
    pub(super) fn record(&self, event: RawEvent, stream: RawStream) -> Result<(), Error> {
        call!(self, record_event(event.as_ptr(), stream.as_ptr()))
    }

    /// Makes `stream` wait for the last record of `event`.
    pub(super) fn wait(&self, stream: RawStream, event: RawEvent) -> Result<(), Error> {
        call!(self, wait_event(stream.as_ptr(), event.as_ptr(), 0))
    }

    /// Whether the last record of `event` has completed.
    pub(super) fn is_done(&self, event: RawEvent) -> Result<bool, Error> {
        match call!(self, code query_event(event.as_ptr()))? {
            NOT_READY => Ok(false),
            0 => Ok(true),
            code => Err(self.failed(self.functions.query_event.0, code)),
        }
    }

    /// Blocks until the last record of `event` has completed.
    pub(super) fn synchronize_event(&self, event: RawEvent) -> Result<(), Error> {
        call!(self, synchronize_event(event.as_ptr()))
    }

    /// Blocks until all work queued on `stream` is done.
    pub(super) fn synchronize_stream(&self, stream: RawStream) -> Result<(), Error> {
        call!(self, synchronize_stream(stream.as_ptr()))
    }

    /// The capture state of `stream`.
    pub(crate) fn capture(&self, stream: RawStream) -> Result<Capture, Error> {
        /// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT`, and HIP's.
        const CAPTURE_IMPLICIT: i32 = 906;
        let (stream, mut status, mut id) = (stream.as_ptr(), 0, 0);
        match call!(self, is_capturing(stream, &mut status)) {
            Err(error) if error.code() == Some(CAPTURE_IMPLICIT) => return Ok(Capture::Implicit),
            answer => answer?,
        }
        match status {
            0 => return Ok(Capture::None),
            1 if self.is_hip => call!(self, capture_info_of_hip(stream, &mut status, &mut id))?,
            1 => {
                let (graph, nodes, count) = (null_mut(), null_mut(), null_mut());
                call!(
                    self,
                    capture_info(stream, &mut status, &mut id, graph, nodes, count)
                )?;
            }
            _ => return Ok(Capture::Invalidated),
        }
        Ok(Capture::Active(id))
    }

    /// Sets this thread's capture mode (2 is relaxed) and returns the previous one.
    pub(super) fn exchange_capture_mode(&self, mut mode: i32) -> Result<i32, Error> {
        call!(self, exchange_capture_mode(&mut mode))?;
        Ok(mode)
    }

    /// Queues a copy.
    ///
    /// # Safety
    ///
    /// Both ranges are accessible to the driver until the work of `stream` is done, and nothing else reads or writes
    /// the range at `to` until then.
    pub(crate) unsafe fn copy(&self, run: Run, stream: RawStream) -> Result<(), Error> {
        let (from, to, bytes, stream) = (run.from.0, run.to.0, run.bytes, stream.as_ptr());
        match (run.devices(), self.is_hip) {
            (None, false) => call!(self, copy(to, from, bytes, stream)),
            (None, true) => call!(
                self,
                copy_of_hip(to, from, bytes, HIP_MEMCPY_DEFAULT, stream)
            ),
            (Some((here, there)), true) => {
                call!(self, copy_peer_of_hip(to, there, from, here, bytes, stream))
            }
            (Some((here, there)), false) => {
                let context =
                    |device| (self.primary(device)).map(std::ptr::with_exposed_provenance_mut);
                let (here, there) = (context(here)?, context(there)?);
                call!(self, copy_peer(to, there, from, here, bytes, stream))
            }
        }
    }

    /// Allocates memory on the current context's device, from its pool, ordered on `stream`.
    pub(crate) fn allocate(&self, bytes: usize, stream: RawStream) -> Result<usize, Error> {
        let mut memory = 0;
        call!(self, allocate(&mut memory, bytes, stream.as_ptr()))?;
        Ok(memory)
    }

    /// Frees memory from [`Self::allocate`], ordered on `stream`.
    ///
    /// # Safety
    ///
    /// No work that is queued later on any stream uses the memory, nor does any work that `stream` does not wait for.
    pub(crate) unsafe fn free(&self, memory: usize, stream: RawStream) -> Result<(), Error> {
        call!(self, free(memory, stream.as_ptr()))
    }

    /// Allocates memory on the current context's device, for one without pools.
    pub(crate) fn allocate_unpooled(&self, bytes: usize) -> Result<usize, Error> {
        let mut memory = 0;
        call!(self, allocate_unpooled(&mut memory, bytes))?;
        Ok(memory)
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
        let mut bytes = 0;
        call!(self, total_memory(&mut bytes, device))?;
        Ok(bytes)
    }

    /// The device of the memory at an address.
    pub(crate) fn device_of(&self, address: usize) -> Result<i32, Error> {
        let mut device: c_int = 0;
        let place = (&raw mut device).cast();
        call!(
            self,
            pointer_attribute(place, POINTER_ATTRIBUTE_DEVICE_ORDINAL, address)
        )?;
        Ok(device)
    }
}

/// The number that a driver was asked for, if it has such numbers.
pub(super) fn numbered(asked: Result<(), Error>, number: u64) -> Result<Option<u64>, Error> {
    match asked {
        Err(Error::Missing(_)) => Ok(None),
        answer => answer.map(|()| Some(number)),
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
