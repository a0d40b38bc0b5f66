//! Errors of drivers.

#![forbid(unsafe_code)]

use std::fmt;

/// A failure of a driver, or to load it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Error {
    /// The library could not be loaded.
    NotFound {
        /// The library's file.
        file: String,
        /// The loader's message.
        why: String,
    },
    /// The library is too old to have this function.
    Missing(&'static str),
    /// A function failed.
    Failed {
        /// The function.
        call: &'static str,
        /// The code that it returned.
        code: i32,
        /// The name of that code.
        name: String,
    },
    /// The process was forked after the driver had been initialized.
    Forked,
    /// The device has no streams.
    NoStreams,
}

impl Error {
    /// The code of a failed call.
    pub(crate) fn code(&self) -> Option<i32> {
        match self {
            Self::Failed { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether there is no driver at all, so nothing can run on the device.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::NotFound { .. } | Self::NoStreams)
    }

    /// Whether nothing runs any more, for good: there is no driver, it finds no device, it has shut down, or an error has
    /// ended all work of the context.
    pub(crate) fn is_final(&self) -> bool {
        /// `CUDA_ERROR_DEINITIALIZED`, and the errors of which `cuda.h` says that the process must be relaunched, that
        /// the context is destroyed, or that all later work fails. HIP has the same numbers.
        const FINAL: [i32; 16] = [
            4, 214, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911,
        ];
        let is_final = |code| FINAL.contains(&code);
        let is_initialization = matches!(self, Self::Failed { call, .. } if call.ends_with("Init"));
        let is_over = *self == Self::Forked || self.is_absent() || is_initialization;
        is_over || self.code().is_some_and(is_final)
    }

    /// Whether a handle is not, or no longer, one of the driver's.
    pub(crate) fn is_invalid_handle(&self) -> bool {
        self.code() == Some(400)
    }

    /// Whether a handle is not, or no longer, one of a context that lives.
    pub(crate) fn is_handle_gone(&self) -> bool {
        const CONTEXT_IS_DESTROYED: i32 = 709;
        self.is_invalid_handle() || self.code() == Some(CONTEXT_IS_DESTROYED)
    }

    /// Whether a stream was destroyed, or the green context that it belonged to.
    pub(crate) fn is_stream_gone(&self) -> bool {
        /// `CUDA_ERROR_STREAM_DETACHED`
        const DETACHED: i32 = 917;
        self.is_invalid_handle() || self.code() == Some(DETACHED)
    }

    /// Whether the device has no such function, such as pools of memory.
    pub(crate) fn is_not_supported(&self) -> bool {
        self.code() == Some(801)
    }

    /// Whether the device is out of memory.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.code() == Some(2)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { file, why } => {
                write!(f, "the driver {file} could not be loaded: {why}")
            }
            Self::Missing(call) => {
                write!(
                    f,
                    "the driver has no {call}; expected CUDA 11.3 or later, or ROCm 5.3 or later"
                )
            }
            Self::Failed { call, code, name } => write!(f, "{call} failed with {code} ({name})"),
            Self::Forked => f.write_str(
                "this process is a fork of one that used the device, and a driver does not survive a fork; \
                 start processes that use devices with the method 'spawn'",
            ),
            Self::NoStreams => f.write_str("the device has no streams that dlx knows"),
        }
    }
}
