//! The error codes, which CUDA and HIP share by number, and their names.

#![forbid(unsafe_code)]

use std::ffi::CStr;

use crate::abi::Code;

/// What a part of a driver function answers.
pub(crate) type Answer<T = ()> = Result<T, Code>;

macro_rules! codes {
    ($($code:ident = $number:literal, $cuda:literal, $hip:literal;)*) => {
        $(
            #[doc = concat!("`CUDA_ERROR_", stringify!($code), "`")]
            #[allow(dead_code, reason = "some only come from tests, by number")]
            pub(crate) const $code: Code = $number;
        )*

        /// The name that `cuGetErrorName` gives.
        pub(crate) fn cuda_name(code: Code) -> Option<&'static CStr> {
            match code {
                0 => Some(c"CUDA_SUCCESS"),
                $($number => Some($cuda),)*
                _ => None,
            }
        }

        /// The name that `hipGetErrorName` gives.
        pub(crate) fn hip_name(code: Code) -> &'static CStr {
            match code {
                0 => c"hipSuccess",
                $($number => $hip,)*
                _ => c"hipErrorUnknown",
            }
        }
    };
}

/// A part of a call that has to wait first; `sim::call` tries it again then. No caller sees it.
pub(crate) const BLOCKED: Code = -1;

codes! {
    INVALID_VALUE = 1, c"CUDA_ERROR_INVALID_VALUE", c"hipErrorInvalidValue";
    OUT_OF_MEMORY = 2, c"CUDA_ERROR_OUT_OF_MEMORY", c"hipErrorOutOfMemory";
    NOT_INITIALIZED = 3, c"CUDA_ERROR_NOT_INITIALIZED", c"hipErrorNotInitialized";
    DEINITIALIZED = 4, c"CUDA_ERROR_DEINITIALIZED", c"hipErrorDeinitialized";
    NO_DEVICE = 100, c"CUDA_ERROR_NO_DEVICE", c"hipErrorNoDevice";
    INVALID_DEVICE = 101, c"CUDA_ERROR_INVALID_DEVICE", c"hipErrorInvalidDevice";
    INVALID_CONTEXT = 201, c"CUDA_ERROR_INVALID_CONTEXT", c"hipErrorInvalidContext";
    INVALID_HANDLE = 400, c"CUDA_ERROR_INVALID_HANDLE", c"hipErrorInvalidHandle";
    ILLEGAL_STATE = 401, c"CUDA_ERROR_ILLEGAL_STATE", c"hipErrorIllegalState";
    NOT_FOUND = 500, c"CUDA_ERROR_NOT_FOUND", c"hipErrorNotFound";
    NOT_READY = 600, c"CUDA_ERROR_NOT_READY", c"hipErrorNotReady";
    ILLEGAL_ADDRESS = 700, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"hipErrorIllegalAddress";
    CONTEXT_IS_DESTROYED = 709, c"CUDA_ERROR_CONTEXT_IS_DESTROYED", c"hipErrorContextIsDestroyed";
    NOT_PERMITTED = 800, c"CUDA_ERROR_NOT_PERMITTED", c"hipErrorNotPermitted";
    NOT_SUPPORTED = 801, c"CUDA_ERROR_NOT_SUPPORTED", c"hipErrorNotSupported";
    CAPTURE_UNSUPPORTED = 900, c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", c"hipErrorStreamCaptureUnsupported";
    CAPTURE_INVALIDATED = 901, c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", c"hipErrorStreamCaptureInvalidated";
    CAPTURE_MERGE = 902, c"CUDA_ERROR_STREAM_CAPTURE_MERGE", c"hipErrorStreamCaptureMerge";
    CAPTURE_UNMATCHED = 903, c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", c"hipErrorStreamCaptureUnmatched";
    CAPTURE_UNJOINED = 904, c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", c"hipErrorStreamCaptureUnjoined";
    CAPTURE_ISOLATION = 905, c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION", c"hipErrorStreamCaptureIsolation";
    CAPTURE_IMPLICIT = 906, c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", c"hipErrorStreamCaptureImplicit";
    CAPTURED_EVENT = 907, c"CUDA_ERROR_CAPTURED_EVENT", c"hipErrorCapturedEvent";
    CAPTURE_WRONG_THREAD = 908, c"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", c"hipErrorStreamCaptureWrongThread";
    STREAM_DETACHED = 917, c"CUDA_ERROR_STREAM_DETACHED", c"hipErrorUnknown";
    UNKNOWN = 999, c"CUDA_ERROR_UNKNOWN", c"hipErrorUnknown";
}
