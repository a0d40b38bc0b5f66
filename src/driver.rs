//! The runtimes that order work on devices: CUDA and HIP, loaded on first use.
//!
//! Knows nothing of Python, of tensors, or of which work depends on which; that is `stream/order.rs`. Stream handles
//! are live when used: S18 of `docs/safety.md`.

mod contexts;
mod error;
mod event;
mod functions;
mod interface;
mod library;
mod runtime;

pub(crate) use contexts::{Current, device_of_stream, enter};
pub(crate) use error::Error;
pub(crate) use event::Event;
pub(crate) use interface::{Capture, Context, RawStream, Run};
pub(crate) use runtime::of;
