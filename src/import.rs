//! The way in: from any object to a snapshot.

pub(crate) mod aliases;
pub(crate) mod cache;
pub(crate) mod ladder;
pub(crate) mod protocol;
pub(crate) mod table;
