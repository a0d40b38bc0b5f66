//! Copies of tensors, on the host or by a driver, and the request that decides whether to copy.
//!
//! Knows snapshots and streams but no producers: `import` asks a library for the copies it can make itself.

pub(crate) mod by_driver;
pub(crate) mod host;
pub(crate) mod request;
pub(crate) mod strided;
