//! From one library to another: import and export in one call, for a value (`convert`), for new memory (`empty`) and for
//! the arguments of a function (`bridge`).
//!
//! The top room: it may use all others, and only `lib.rs` uses it.

pub(crate) mod bridge;
mod deliver;
pub(crate) mod empty;
pub(crate) mod function;
mod source;
mod target;
