//! The functions of the CUDA driver API and of the HIP runtime API.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libloading::Library;

/// Declares the table of status-returning functions, by their symbols in CUDA and in HIP: "" where one has none, or another
/// signature.
macro_rules! functions {
    ($($name:ident($($argument:ty),* $(,)?): $cuda:literal, $hip:literal;)*) => {
        /// The driver's functions, each with the name that its header gives it; `None` for those that it lacks.
        #[derive(Default)]
        pub(super) struct Functions {
            $(pub(super) $name: (
                &'static str,
                Option<unsafe extern "C" fn($($argument),*) -> c_int>,
            ),)*
        }

        impl Functions {
            /// Looks up every function.
            ///
            /// # Safety
            ///
            /// The functions that `library` has under these names have the signatures in the table.
            pub(super) unsafe fn find(library: &Library, is_hip: bool) -> Self {
                let symbol = |[cuda, hip]: [&'static str; 2]| if is_hip { hip } else { cuda };
                Self {
                    $($name: {
                        let symbol = symbol([$cuda, $hip]);
                        // SAFETY: the caller's.
                        let found = unsafe { super::library::symbol(library, symbol) };
                        (symbol.trim_end_matches("_v2"), found)
                    },)*
                }
            }
        }
    };
}

// An address is an integer here: `CUdeviceptr` is one, as wide as HIP's pointer, and passed as that is.
functions! {
    init(c_uint): "cuInit", "hipInit";
    error_name(c_int, *mut *const c_char): "cuGetErrorName", "";
    total_memory(*mut usize, c_int): "cuDeviceTotalMem_v2", "hipDeviceTotalMem";
    retain_primary(*mut *mut c_void, c_int): "cuDevicePrimaryCtxRetain", "";
    primary_state(c_int, *mut c_uint, *mut c_int): "cuDevicePrimaryCtxGetState", "";
    current_context(*mut *mut c_void): "cuCtxGetCurrent", "";
    push_context(*mut c_void): "cuCtxPushCurrent_v2", "";
    pop_context(*mut *mut c_void): "cuCtxPopCurrent_v2", "";
    context_id(*mut c_void, *mut u64): "cuCtxGetId", "";
    device(*mut c_int): "cuCtxGetDevice", "hipGetDevice";
    set_device(c_int): "", "hipSetDevice";
    create_event(*mut *mut c_void, c_uint): "cuEventCreate", "hipEventCreateWithFlags";
    destroy_event(*mut c_void): "cuEventDestroy_v2", "hipEventDestroy";
    record_event(*mut c_void, *mut c_void): "cuEventRecord", "hipEventRecord";
    query_event(*mut c_void): "cuEventQuery", "hipEventQuery";
    synchronize_event(*mut c_void): "cuEventSynchronize", "hipEventSynchronize";
    wait_event(*mut c_void, *mut c_void, c_uint): "cuStreamWaitEvent", "hipStreamWaitEvent";
    synchronize_stream(*mut c_void): "cuStreamSynchronize", "hipStreamSynchronize";
    stream_context(*mut c_void, *mut *mut c_void): "cuStreamGetCtx", "";
    stream_device(*mut c_void, *mut c_int): "", "hipStreamGetDevice";
    stream_id(*mut c_void, *mut u64): "cuStreamGetId", "";
    is_capturing(*mut c_void, *mut c_int): "cuStreamIsCapturing", "hipStreamIsCapturing";
    capture_info(*mut c_void, *mut c_int, *mut u64, *mut c_void, *mut c_void, *mut c_void):
        "cuStreamGetCaptureInfo_v2", "";
    capture_info_of_hip(*mut c_void, *mut c_int, *mut u64): "", "hipStreamGetCaptureInfo";
    exchange_capture_mode(*mut c_int):
        "cuThreadExchangeStreamCaptureMode", "hipThreadExchangeStreamCaptureMode";
    copy(usize, usize, usize, *mut c_void): "cuMemcpyAsync", "";
    copy_of_hip(usize, usize, usize, c_int, *mut c_void): "", "hipMemcpyAsync";
    copy_peer(usize, *mut c_void, usize, *mut c_void, usize, *mut c_void): "cuMemcpyPeerAsync", "";
    copy_peer_of_hip(usize, c_int, usize, c_int, usize, *mut c_void): "", "hipMemcpyPeerAsync";
    allocate(*mut usize, usize, *mut c_void): "cuMemAllocAsync", "hipMallocAsync";
    free(usize, *mut c_void): "cuMemFreeAsync", "hipFreeAsync";
    allocate_unpooled(*mut usize, usize): "cuMemAlloc_v2", "hipMalloc";
    free_unpooled(usize): "cuMemFree_v2", "hipFree";
    pointer_attribute(*mut c_void, c_int, usize): "cuPointerGetAttribute", "hipPointerGetAttribute";
}

/// Calls a function of a driver and turns its status into a result, and a function that is not there into
/// [`Error::Missing`](super::error::Error::Missing); `code` gives the raw status.
macro_rules! call {
    ($driver:expr, code $name:ident($($argument:expr),* $(,)?)) => {
        match $driver.functions.$name {
            // SAFETY: the driver's function has this signature (S19); stream handles are live (S18), events were created
            // by this driver, and every out-pointer is to a local of the caller.
            (_, Some(function)) => Ok(unsafe { function($($argument),*) }),
            (name, None) => Err(Error::Missing(name)),
        }
    };
    ($driver:expr, $name:ident($($argument:expr),* $(,)?)) => {
        match call!($driver, code $name($($argument),*)) {
            Ok(0) => Ok(()),
            Ok(code) => Err($driver.failed($driver.functions.$name.0, code)),
            Err(missing) => Err(missing),
        }
    };
}

pub(super) use call;
