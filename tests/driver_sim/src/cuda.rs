//! What `libcuda.so.1` exports, by area.

mod context;
mod event;
mod green;
mod memory;
mod peer;
mod pointer;
pub(crate) mod proc_address;
mod stream;

pub(crate) use context::DEVICE_BYTES;
