//! The way in, from any object to a snapshot: the ladder, the table of a type, the Python protocol, what is remembered
//! of a type, and memory that is on several devices.
//!
//! Knows every adapter and all below. Knows nothing of who asks: neither Python functions nor mixin classes.

pub(crate) mod aliases;
pub(crate) mod cache;
pub(crate) mod ladder;
pub(crate) mod protocol;
pub(crate) mod table;
