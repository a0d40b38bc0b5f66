//! The runtimes that order work on devices: CUDA and HIP, loaded on first use.
//!
//! Knows nothing of Python, of tensors, or of which work depends on which; that is `stream/order.rs`. Stream handles
//! are live when used: S18 of `docs/safety.md`.

mod cuda;
mod current;
mod error;
mod event;
mod hip;
mod interface;
mod library;

pub(crate) use current::{Current, Relaxed, device_of_stream, enter, of};
pub(crate) use error::Error;
pub(crate) use event::Event;
pub(crate) use interface::{Capture, Context, RawStream, Run};
