//! Tables for classes that are not dlx's: the mixins, and published types.

pub(crate) mod mixin;
pub(crate) mod no_sync_export;
pub(crate) mod publish;
