//! Conversions between libraries, import and export in one call: of a tensor (`convert`), of new memory (`empty`), and
//! of a function's arguments and results (`bridge`).
//!
//! The top room: it may use all others, and only `lib.rs` uses it.

pub(crate) mod bridge;
mod deliver;
pub(crate) mod empty;
pub(crate) mod function;
pub(crate) mod importer;
mod result;
mod source;
pub(crate) mod target;
