//! The HIP runtime API.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::{NonNull, null, null_mut};
use std::sync::OnceLock;

use super::error::Error;
use super::interface::{Capture, Context, Driver, RawEvent, RawStream, Run};
use super::library::{
    call, check_fork, failure, functions, initialized, load, of_both, once, symbol,
};

const HIP_EVENT_DISABLE_TIMING: c_uint = 2;
const HIP_ERROR_NOT_READY: c_int = 600;
/// `hipMemcpyDefault`: the direction is inferred from the addresses.
const HIP_MEMCPY_DEFAULT: c_int = 4;
/// `HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL`.
const HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL: c_int = 9;

functions! {
    hipInit(c_uint);
    hipGetDevice(*mut c_int);
    hipSetDevice(c_int);
    hipDeviceTotalMem(*mut usize, c_int);
    hipEventCreateWithFlags(*mut *mut c_void, c_uint);
    hipEventDestroy(*mut c_void);
    hipEventRecord(*mut c_void, *mut c_void);
    hipEventQuery(*mut c_void);
    hipEventSynchronize(*mut c_void);
    hipStreamWaitEvent(*mut c_void, *mut c_void, c_uint);
    hipStreamSynchronize(*mut c_void);
    hipStreamGetDevice(*mut c_void, *mut c_int);
    hipStreamIsCapturing(*mut c_void, *mut c_int);
    hipStreamGetCaptureInfo(*mut c_void, *mut c_int, *mut u64);
    hipThreadExchangeStreamCaptureMode(*mut c_int);
    hipMemcpyAsync(*mut c_void, *const c_void, usize, c_int, *mut c_void);
    hipMemcpyPeerAsync(
        *mut c_void,
        c_int,
        *const c_void,
        c_int,
        usize,
        *mut c_void,
    );
    hipMalloc(*mut *mut c_void, usize);
    hipFree(*mut c_void);
    hipMallocAsync(*mut *mut c_void, usize, *mut c_void);
    hipFreeAsync(*mut c_void, *mut c_void);
    hipPointerGetAttribute(*mut c_void, c_int, *mut c_void);
}

/// The loaded HIP runtime.
pub(super) struct Hip {
    functions: Functions,
    /// `hipGetErrorName`, which does not return a status.
    error_name: Option<unsafe extern "C" fn(c_int) -> *const c_char>,
}

/// The HIP runtime, loaded and initialized.
pub(super) fn get() -> Result<&'static Hip, Error> {
    static HIP: OnceLock<Result<Hip, Error>> = OnceLock::new();
    check_fork()?;
    once(&HIP, Hip::load).as_ref().map_err(Error::clone)
}

impl Hip {
    fn load() -> Result<Self, Error> {
        let files = [
            "libamdhip64.so.7",
            "libamdhip64.so.6",
            "libamdhip64.so",
            "amdhip64.dll",
        ];
        let library = load("DLX_LIBAMDHIP", "libamdhip64", &files)?;
        // SAFETY: the signatures are those of `hip_runtime_api.h`; symbols without a suffix keep them (S19).
        let functions = unsafe { Functions::find(library) };
        // SAFETY: as for the table (S19).
        let error_name = unsafe { symbol(library, "hipGetErrorName") };
        let hip = Self {
            functions,
            error_name,
        };
        call!(hip, hipInit(0))?;
        initialized();
        Ok(hip)
    }

    #[cold]
    fn failed(&self, call: &'static str, code: c_int) -> Error {
        let name = self.error_name.map_or(null(), |function| {
            // SAFETY: accepts any code.
            unsafe { function(code) }
        });
        // SAFETY: a static string of the runtime, or NULL.
        unsafe { failure(call, code, name) }
    }
}

impl Driver for Hip {
    of_both! {
        hipEventCreateWithFlags(HIP_EVENT_DISABLE_TIMING), hipEventDestroy, hipEventRecord, hipEventQuery(HIP_ERROR_NOT_READY),
        hipEventSynchronize, hipStreamWaitEvent, hipStreamSynchronize, hipStreamIsCapturing, hipStreamGetCaptureInfo(),
        hipThreadExchangeStreamCaptureMode, hipDeviceTotalMem
    }

    fn primary(&self, device: i32) -> Result<Context, Error> {
        Ok(device as Context)
    }

    fn enter_context(&self, context: Context) -> Result<Option<Context>, Error> {
        let mut current = 0;
        call!(self, hipGetDevice(&mut current))?;
        if current as Context == context {
            return Ok(None);
        }
        call!(self, hipSetDevice(context as c_int))?;
        Ok(Some(current as Context))
    }

    fn leave(&self, previous: Context) {
        // This device was current before; a runtime that is shutting down has none.
        call!(self, hipSetDevice(previous as c_int)).ok();
    }

    fn context_of(&self, stream: RawStream) -> Result<Context, Error> {
        let mut device = 0;
        call!(self, hipStreamGetDevice(stream.as_ptr(), &mut device))?;
        Ok(device as Context)
    }

    fn device_of_context(&self, context: Context) -> Result<i32, Error> {
        Ok(context as i32)
    }

    fn rerecords(&self) -> bool {
        false
    }

    unsafe fn copy(&self, run: Run, stream: RawStream) -> Result<(), Error> {
        let from = std::ptr::with_exposed_provenance(run.from.0);
        let to = std::ptr::with_exposed_provenance_mut(run.to.0);
        let (bytes, stream) = (run.bytes, stream.as_ptr());
        let Some((here, there)) = run.devices() else {
            return call!(
                self,
                hipMemcpyAsync(to, from, bytes, HIP_MEMCPY_DEFAULT, stream)
            );
        };
        call!(
            self,
            hipMemcpyPeerAsync(to, there, from, here, bytes, stream)
        )
    }

    fn allocate(&self, bytes: usize, stream: RawStream) -> Result<usize, Error> {
        let mut memory = null_mut();
        call!(self, hipMallocAsync(&mut memory, bytes, stream.as_ptr()))?;
        Ok(memory.expose_provenance())
    }

    unsafe fn free(&self, memory: usize, stream: RawStream) -> Result<(), Error> {
        let memory = std::ptr::with_exposed_provenance_mut(memory);
        call!(self, hipFreeAsync(memory, stream.as_ptr()))
    }

    fn allocate_unpooled(&self, bytes: usize) -> Result<usize, Error> {
        let mut memory = null_mut();
        call!(self, hipMalloc(&mut memory, bytes))?;
        Ok(memory.expose_provenance())
    }

    unsafe fn free_unpooled(&self, memory: usize) -> Result<(), Error> {
        call!(self, hipFree(std::ptr::with_exposed_provenance_mut(memory)))
    }

    fn device_of(&self, address: usize) -> Result<i32, Error> {
        let mut device: c_int = 0;
        let address = std::ptr::with_exposed_provenance_mut(address);
        call!(
            self,
            hipPointerGetAttribute(
                (&raw mut device).cast(),
                HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                address,
            )
        )?;
        Ok(device)
    }
}
