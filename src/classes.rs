//! Exchange tables for classes that are not dlx's: the mixins' methods, and types that `publish` gives a table.
//!
//! Knows how tensors come in (`import`) and are written (`api`). Does not know `convert`, which knows mixin classes.

pub(crate) mod mixin;
pub(crate) mod no_sync_export;
pub(crate) mod publish;
