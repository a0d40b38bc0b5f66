//! What `libcuda.so.1` exports, by area.

mod context;
mod event;
mod memory;
mod pointer;
pub(crate) mod proc_address;
mod stream;
