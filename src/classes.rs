//! Exchange tables for classes that are not dlx's: the methods of the mixins, and types that `publish` gives a table.
//!
//! Uses `import`, and `api` for the check whether memory is writable. Does not know `convert`, which knows mixin
//! classes.

pub(crate) mod mixin;
pub(crate) mod publish;
