//! Imports: from any object to a snapshot. Holds the ladder, exchange tables, the Python protocol, the cache of types,
//! device aliases, and hints for objects that cannot be imported.
//!
//! May use every adapter and the rooms below. Does not know its callers, neither Python functions nor mixin classes.

pub(crate) mod aliases;
pub(crate) mod cache;
pub(crate) mod export;
pub(crate) mod hint;
pub(crate) mod ladder;
pub(crate) mod lend;
pub(crate) mod protocol;
pub(crate) mod row_major;
pub(crate) mod table;
