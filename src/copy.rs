//! Copies of tensors, on the host and by a driver, and the request that says when one is made.
//!
//! Knows snapshots and streams, and no producer: what a library can copy by itself, `import` asks it for.

pub(crate) mod by_driver;
pub(crate) mod host;
pub(crate) mod plan;
pub(crate) mod request;
pub(crate) mod strided;
