//! dlx's use of CPython: the guard around every `extern "C"` function, attaching and detaching, calls and attribute
//! lookups through functions outside the stable ABI, forks, and chains of owners that free each other.
//!
//! Uses only `abi`; knows nothing of tensors or devices.

pub(crate) mod boundary;
pub(crate) mod call;
pub(crate) mod depth;
pub(crate) mod derived;
pub(crate) mod fork;
pub(crate) mod head;
pub(crate) mod interpreter;
pub(crate) mod lookup;
pub(crate) mod modules;
pub(crate) mod once;
pub(crate) mod symbol;
pub(crate) mod type_map;
pub(crate) mod type_version;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) mod unwind;
pub(crate) mod vector;
