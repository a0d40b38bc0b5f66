//! Copies of tensors: on the host, by a driver, and what of both a request asks for.

pub(crate) mod by_driver;
pub(crate) mod host;
pub(crate) mod plan;
pub(crate) mod request;
pub(crate) mod strided;
