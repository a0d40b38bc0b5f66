//! The CUDA driver API.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::{NonNull, null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::library::{call, check_fork, failure, functions, initialized, load, of_both, once};

use super::error::Error;
use super::interface::{Capture, Context, Driver, RawEvent, RawStream, Run};

const CU_EVENT_DISABLE_TIMING: c_uint = 2;
const CUDA_ERROR_NOT_READY: c_int = 600;
const CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: c_int = 9;

/// Of how many devices the primary contexts are remembered; those of others are retained at each use.
const DEVICES: usize = 64;

functions! {
    cuInit(c_uint);
    cuGetErrorName(c_int, *mut *const c_char);
    cuDeviceTotalMem(*mut usize, c_int) as "cuDeviceTotalMem_v2";
    cuDevicePrimaryCtxRetain(*mut *mut c_void, c_int);
    cuDevicePrimaryCtxGetState(c_int, *mut c_uint, *mut c_int);
    cuCtxGetCurrent(*mut *mut c_void);
    cuCtxPushCurrent(*mut c_void) as "cuCtxPushCurrent_v2";
    cuCtxPopCurrent(*mut *mut c_void) as "cuCtxPopCurrent_v2";
    cuCtxGetDevice(*mut c_int);
    cuCtxGetId(*mut c_void, *mut u64);
    cuEventCreate(*mut *mut c_void, c_uint);
    cuEventDestroy(*mut c_void) as "cuEventDestroy_v2";
    cuEventRecord(*mut c_void, *mut c_void);
    cuEventQuery(*mut c_void);
    cuEventSynchronize(*mut c_void);
    cuStreamWaitEvent(*mut c_void, *mut c_void, c_uint);
    cuStreamSynchronize(*mut c_void);
    cuStreamGetCtx(*mut c_void, *mut *mut c_void);
    cuStreamGetId(*mut c_void, *mut u64);
    cuStreamIsCapturing(*mut c_void, *mut c_int);
    cuStreamGetCaptureInfo(
        *mut c_void,
        *mut c_int,
        *mut u64,
        *mut c_void,
        *mut c_void,
        *mut c_void,
    ) as "cuStreamGetCaptureInfo_v2";
    cuThreadExchangeStreamCaptureMode(*mut c_int);
    cuMemcpyAsync(u64, u64, usize, *mut c_void);
    cuMemcpyPeerAsync(u64, *mut c_void, u64, *mut c_void, usize, *mut c_void);
    cuMemAlloc(*mut u64, usize) as "cuMemAlloc_v2";
    cuMemFree(u64) as "cuMemFree_v2";
    cuMemAllocAsync(*mut u64, usize, *mut c_void);
    cuMemFreeAsync(u64, *mut c_void);
    cuPointerGetAttribute(*mut c_void, c_int, u64);
}

/// The loaded CUDA driver.
pub(super) struct Cuda {
    functions: Functions,
    /// The primary contexts in use, by device, or 0; never released.
    primary: [AtomicUsize; DEVICES],
}

/// The CUDA driver, loaded and initialized.
pub(super) fn get() -> Result<&'static Cuda, Error> {
    static CUDA: OnceLock<Result<Cuda, Error>> = OnceLock::new();
    check_fork()?;
    once(&CUDA, Cuda::load).as_ref().map_err(Error::clone)
}

impl Cuda {
    fn load() -> Result<Self, Error> {
        let files: &[&str] = if cfg!(windows) {
            &["nvcuda.dll"]
        } else {
            &["libcuda.so.1"]
        };
        let library = load("DLX_LIBCUDA", "libcuda.so", files)?;
        // SAFETY: the signatures are those of `cuda.h`, and a symbol never changes its signature (S19).
        let functions = unsafe { Functions::find(library) };
        let cuda = Self {
            functions,
            primary: [const { AtomicUsize::new(0) }; DEVICES],
        };
        call!(cuda, cuInit(0))?;
        initialized();
        Ok(cuda)
    }

    #[cold]
    fn failed(&self, call: &'static str, code: c_int) -> Error {
        let mut name: *const c_char = null();
        if let Some(function) = self.functions.cuGetErrorName {
            // SAFETY: the out-pointer is a local; the driver writes a static string or NULL.
            unsafe { function(code, &mut name) };
        }
        // SAFETY: a static string of the driver, or NULL.
        unsafe { failure(call, code, name) }
    }

    /// Where the primary context of a device is remembered.
    fn place(&self, device: i32) -> Option<&AtomicUsize> {
        self.primary.get(usize::try_from(device).ok()?)
    }

    fn known_primary(&self, device: i32) -> Option<Context> {
        let context = self.place(device)?.load(Ordering::Acquire);
        (context != 0).then_some(context)
    }

    /// The primary context of a device, retained once for the process.
    fn retained(&self, device: i32) -> Result<Context, Error> {
        if let Some(context) = self.known_primary(device) {
            return Ok(context);
        }
        // Two threads may both retain it, which is harmless: it is never released.
        let mut context = null_mut();
        call!(self, cuDevicePrimaryCtxRetain(&mut context, device))?;
        let context = context.expose_provenance();
        if let Some(place) = self.place(device) {
            place.store(context, Ordering::Release);
        }
        Ok(context)
    }

    fn current(&self) -> Result<Context, Error> {
        let mut context = null_mut();
        call!(self, cuCtxGetCurrent(&mut context))?;
        Ok(context.expose_provenance())
    }

    fn push(&self, context: Context) -> Result<(), Error> {
        call!(
            self,
            cuCtxPushCurrent(std::ptr::with_exposed_provenance_mut(context))
        )
    }
}

impl Driver for Cuda {
    of_both! {
        cuEventCreate(CU_EVENT_DISABLE_TIMING), cuEventDestroy, cuEventRecord, cuEventQuery(CUDA_ERROR_NOT_READY),
        cuEventSynchronize, cuStreamWaitEvent, cuStreamSynchronize, cuStreamIsCapturing,
        cuStreamGetCaptureInfo(null_mut(), null_mut(), null_mut()), cuThreadExchangeStreamCaptureMode, cuDeviceTotalMem
    }

    fn primary(&self, device: i32) -> Result<Context, Error> {
        self.retained(device)
    }

    fn other_context(&self, device: i32) -> Result<Option<Context>, Error> {
        let current = self.current()?;
        if current == 0 || self.known_primary(device) == Some(current) {
            return Ok(None);
        }
        let mut of = 0;
        call!(self, cuCtxGetDevice(&mut of))?;
        if of != device {
            return Ok(None);
        }
        let (mut flags, mut active) = (0, 0);
        call!(
            self,
            cuDevicePrimaryCtxGetState(device, &mut flags, &mut active)
        )?;
        // Retaining an active context creates nothing.
        let is_primary = active != 0 && self.retained(device)? == current;
        Ok((!is_primary).then_some(current))
    }

    fn enter_context(&self, context: Context) -> Result<Option<Context>, Error> {
        let current = self.current()?;
        if current == context {
            return Ok(None);
        }
        self.push(context)?;
        Ok(Some(current))
    }

    fn leave(&self, _previous: Context) {
        let mut context = null_mut();
        // The current context is the one that `enter` pushed. A driver that is shutting down has no stack to restore.
        call!(self, cuCtxPopCurrent(&mut context)).ok();
    }

    fn context_of(&self, stream: RawStream) -> Result<Context, Error> {
        let mut context = null_mut();
        call!(self, cuStreamGetCtx(stream.as_ptr(), &mut context))?;
        Ok(context.expose_provenance())
    }

    fn number(&self, stream: RawStream) -> Result<Option<u64>, Error> {
        let mut number = 0;
        match call!(self, cuStreamGetId(stream.as_ptr(), &mut number)) {
            Err(Error::Missing(_)) => Ok(None),
            answer => answer.map(|()| Some(number)),
        }
    }

    fn number_of_context(&self, context: Context) -> Result<Option<u64>, Error> {
        let mut number = 0;
        let context = std::ptr::with_exposed_provenance_mut(context);
        match call!(self, cuCtxGetId(context, &mut number)) {
            Err(Error::Missing(_)) => Ok(None),
            answer => answer.map(|()| Some(number)),
        }
    }

    fn device_of_context(&self, context: Context) -> Result<i32, Error> {
        let entered = self.enter_context(context)?;
        let mut device = 0;
        let found = call!(self, cuCtxGetDevice(&mut device));
        if let Some(previous) = entered {
            self.leave(previous);
        }
        found.map(|()| device)
    }

    fn rerecords(&self) -> bool {
        true
    }

    unsafe fn copy(&self, run: Run, stream: RawStream) -> Result<(), Error> {
        let (from, to) = (run.from.0 as u64, run.to.0 as u64);
        let (bytes, stream) = (run.bytes, stream.as_ptr());
        let Some((here, there)) = run.devices() else {
            return call!(self, cuMemcpyAsync(to, from, bytes, stream));
        };
        let context = |device| (self.primary(device)).map(std::ptr::with_exposed_provenance_mut);
        let (here, there) = (context(here)?, context(there)?);
        call!(
            self,
            cuMemcpyPeerAsync(to, there, from, here, bytes, stream)
        )
    }

    fn allocate(&self, bytes: usize, stream: RawStream) -> Result<usize, Error> {
        let mut memory = 0;
        call!(self, cuMemAllocAsync(&mut memory, bytes, stream.as_ptr()))?;
        Ok(memory as usize)
    }

    unsafe fn free(&self, memory: usize, stream: RawStream) -> Result<(), Error> {
        call!(self, cuMemFreeAsync(memory as u64, stream.as_ptr()))
    }

    fn allocate_unpooled(&self, bytes: usize) -> Result<usize, Error> {
        let mut memory = 0;
        call!(self, cuMemAlloc(&mut memory, bytes))?;
        Ok(memory as usize)
    }

    unsafe fn free_unpooled(&self, memory: usize) -> Result<(), Error> {
        call!(self, cuMemFree(memory as u64))
    }

    fn device_of(&self, address: usize) -> Result<i32, Error> {
        let mut device: c_int = 0;
        call!(
            self,
            cuPointerGetAttribute(
                (&raw mut device).cast(),
                CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                address as u64,
            )
        )?;
        Ok(device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_of_cuda_11_numbers_neither_streams_nor_contexts() -> Result<(), Error> {
        let cuda = Cuda {
            functions: Functions::default(),
            primary: [const { AtomicUsize::new(0) }; DEVICES],
        };
        // SAFETY: no driver gets it.
        let stream = unsafe { RawStream::of_handle(0x5000) };
        assert_eq!(
            (cuda.number(stream)?, cuda.number_of_context(1)?),
            (None, None)
        );
        Ok(())
    }
}
