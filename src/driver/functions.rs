//! The functions of the CUDA driver API and of the HIP runtime API.

use std::ffi::{c_char, c_int, c_uint};

use libloading::Library;

use super::error::Error;

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

// Handles and addresses are integers here: `CUdeviceptr` is one, as wide as a pointer, and passed as that is.
functions! {
    init(c_uint): "cuInit", "hipInit";
    error_name(c_int, *mut *const c_char): "cuGetErrorName", "";
    total_memory(*mut usize, c_int): "cuDeviceTotalMem_v2", "hipDeviceTotalMem";
    retain_primary(*mut usize, c_int): "cuDevicePrimaryCtxRetain", "";
    primary_state(c_int, *mut c_uint, *mut c_int): "cuDevicePrimaryCtxGetState", "";
    current_context(*mut usize): "cuCtxGetCurrent", "";
    push_context(usize): "cuCtxPushCurrent_v2", "";
    pop_context(*mut usize): "cuCtxPopCurrent_v2", "";
    context_id(usize, *mut u64): "cuCtxGetId", "";
    device(*mut c_int): "cuCtxGetDevice", "hipGetDevice";
    set_device(c_int): "", "hipSetDevice";
    create_event(*mut usize, c_uint): "cuEventCreate", "hipEventCreateWithFlags";
    destroy_event(usize): "cuEventDestroy_v2", "hipEventDestroy";
    record_event(usize, usize): "cuEventRecord", "hipEventRecord";
    query_event(usize): "cuEventQuery", "hipEventQuery";
    synchronize_event(usize): "cuEventSynchronize", "hipEventSynchronize";
    wait_event(usize, usize, c_uint): "cuStreamWaitEvent", "hipStreamWaitEvent";
    synchronize_stream(usize): "cuStreamSynchronize", "hipStreamSynchronize";
    stream_context(usize, *mut usize): "cuStreamGetCtx", "";
    stream_device(usize, *mut c_int): "", "hipStreamGetDevice";
    stream_id(usize, *mut u64): "cuStreamGetId", "";
    is_capturing(usize, *mut c_int): "cuStreamIsCapturing", "hipStreamIsCapturing";
    capture_info(usize, *mut c_int, *mut u64, usize, usize, usize):
        "cuStreamGetCaptureInfo_v2", "";
    capture_info_of_hip(usize, *mut c_int, *mut u64): "", "hipStreamGetCaptureInfo";
    exchange_capture_mode(*mut c_int):
        "cuThreadExchangeStreamCaptureMode", "hipThreadExchangeStreamCaptureMode";
    copy(usize, usize, usize, usize): "cuMemcpyAsync", "";
    copy_of_hip(usize, usize, usize, c_int, usize): "", "hipMemcpyAsync";
    copy_peer(usize, usize, usize, usize, usize, usize): "cuMemcpyPeerAsync", "";
    copy_peer_of_hip(usize, c_int, usize, c_int, usize, usize): "", "hipMemcpyPeerAsync";
    allocate(*mut usize, usize, usize): "cuMemAllocAsync", "hipMallocAsync";
    free(usize, usize): "cuMemFreeAsync", "hipFreeAsync";
    allocate_unpooled(*mut usize, usize): "cuMemAlloc_v2", "hipMalloc";
    free_unpooled(usize): "cuMemFree_v2", "hipFree";
    pointer_attribute(*mut c_int, c_int, usize): "cuPointerGetAttribute", "hipPointerGetAttribute";
}

/// Calls a function of a driver and turns its status into a result, and a function that is not there into
/// [`Error::Missing`].
macro_rules! call {
    ($driver:expr, $name:ident($($argument:expr),* $(,)?)) => {
        match $driver.functions.$name {
            // SAFETY: the driver's function has this signature (S19); stream handles are live (S18), events were created
            // by this driver, and every out-pointer is to a local of the caller, or of `out`.
            (name, Some(function)) => match unsafe { function($($argument),*) } {
                0 => Ok(()),
                code => Err($driver.failed(name, code)),
            },
            (name, None) => Err(Error::Missing(name)),
        }
    };
}

pub(super) use call;

/// What a function of a driver writes to the place that `call` passes to it.
pub(super) fn out<T: Default>(call: impl FnOnce(&mut T) -> Result<(), Error>) -> Result<T, Error> {
    let mut value = T::default();
    call(&mut value)?;
    Ok(value)
}
