//! Producers that need their own reading, one file each.

pub(crate) mod torch;
