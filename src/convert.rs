//! From one library to another: import and export in one call, for a value (`convert`), new memory (`empty`) and the
//! arguments of a function (`bridge`).
//!
//! The top room: it may use all others.

pub(crate) mod bridge;
mod deliver;
pub(crate) mod empty;
pub(crate) mod function;
mod source;
mod target;
