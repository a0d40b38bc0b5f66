//! CPython as dlx needs it: the guard of every `extern "C"` function, attaching and detaching, calls and lookups by
//! functions that the stable ABI lacks, forks, and owners that free each other in chains.
//!
//! Knows `abi` and nothing above it: no tensor, no device. Everything else stands on it.

pub(crate) mod boundary;
pub(crate) mod call;
pub(crate) mod depth;
pub(crate) mod fork;
pub(crate) mod interpreter;
pub(crate) mod lookup;
pub(crate) mod modules;
pub(crate) mod symbol;
