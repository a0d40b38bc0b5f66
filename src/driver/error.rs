//! Why a driver could not do what it was asked.

#![forbid(unsafe_code)]

use std::fmt;

/// A failure of a driver, or of finding one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Error {
    /// The library could not be loaded.
    NotFound {
        /// Its file.
        file: String,
        /// What the loader says.
        why: String,
    },
    /// The library is older than a function that is needed.
    Missing(&'static str),
    /// A function failed.
    Failed {
        /// Its name.
        call: &'static str,
        /// What it returned.
        code: i32,
        /// The name of that.
        name: String,
    },
    /// The process was forked after the driver had been initialized.
    Forked,
    /// The device has no streams.
    NoStreams,
    /// A stream captures a graph, which the call would have ended.
    Captured,
}

impl Error {
    /// The number of a failed call.
    pub(crate) fn code(&self) -> Option<i32> {
        match self {
            Self::Failed { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether there is no driver at all, so that nothing can run on the device.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::NotFound { .. } | Self::NoStreams)
    }

    /// Whether the driver is gone for good, and with it all that it had.
    pub(crate) fn is_final(&self) -> bool {
        const DEINITIALIZED: i32 = 4;
        *self == Self::Forked || self.is_absent() || self.code() == Some(DEINITIALIZED)
    }

    /// Whether memory ran out.
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
                    "the driver has no {call}; CUDA 11.3 or later, or ROCm 5.3 or later, is accepted"
                )
            }
            Self::Failed { call, code, name } => write!(f, "{call} failed with {code} ({name})"),
            Self::Forked => f.write_str(
                "this process is a fork of one that used the device, and a driver does not survive a fork; \
                 start processes that use devices with the method 'spawn'",
            ),
            Self::Captured => f.write_str("a stream captures a graph"),
            Self::NoStreams => f.write_str("the device has no streams that dlx knows"),
        }
    }
}
