//! The runtimes that order work on devices: CUDA and HIP, loaded when they are first needed.
//!
//! Nothing here knows of Python, tensors or what is ordered after what; that is `stream/order.rs`. Handles of streams
//! are live when they are used: invariant S18 of `docs/safety.md`.

mod cuda;
mod current;
mod error;
mod event;
mod hip;
mod interface;
mod library;

pub(crate) use current::{Current, enter, of, relaxed};
pub(crate) use error::Error;
pub(crate) use event::Event;
pub(crate) use interface::{Capture, RawStream, Rows};
