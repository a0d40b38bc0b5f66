//! The runtimes that order work on devices: CUDA and HIP, loaded on first use.
//!
//! Knows nothing of Python, of tensors, or of which work depends on which; that is `stream/order.rs`. Stream handles
//! are live when used: S18 of `docs/safety.md`.

mod contexts;
mod current;
mod error;
mod event;
mod functions;
mod interface;
mod library;
mod runtime;

pub(crate) use current::{Current, device_of_stream, enter, of};
pub(crate) use error::Error;
pub(crate) use event::Event;
pub(crate) use interface::{Capture, Context, RawStream, Run};
