//! The functions of the CUDA driver API, as `cuda.h` declares them.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use libloading::Library;

use crate::driver::library::{functions, symbol};

/// The version whose signatures the table below declares; newer versions of a function may differ.
const VERSION: c_int = 12000;
/// `CU_GET_PROC_ADDRESS_LEGACY_STREAM`: stream 0 is not the per-thread stream. dlx never passes 0.
const LEGACY_STREAM: u64 = 1;

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

type GetProcAddress =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;

/// The functions of the driver's library.
pub(super) fn find(library: &Library) -> Functions {
    // SAFETY: the signatures are those of `cuda.h` at `VERSION`; a symbol without a version suffix never changes its
    // signature (S19).
    unsafe { Functions::find(|name, symbol| address(library, name, symbol)) }
}

/// The address of a function: from `cuGetProcAddress` for `VERSION`, else from its symbol.
fn address(library: &Library, name: &str, symbol_name: &str) -> *mut c_void {
    // SAFETY: the signature in `cuda.h`.
    let by_version = unsafe { symbol::<GetProcAddress>(library, "cuGetProcAddress_v2") };
    if let (Some(get), Ok(name)) = (by_version, CString::new(name)) {
        let (mut address, mut status) = (null_mut(), 0);
        // SAFETY: the driver's function; all pointers are to locals.
        let code = unsafe {
            get(
                name.as_ptr(),
                &mut address,
                VERSION,
                LEGACY_STREAM,
                &mut status,
            )
        };
        if code == 0 && !address.is_null() {
            return address;
        }
    }
    // SAFETY: this only takes the address.
    let address = unsafe { symbol::<*mut c_void>(library, symbol_name) };
    address.unwrap_or(null_mut())
}
