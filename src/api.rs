//! What Python calls.

pub(crate) mod borrow;
pub(crate) mod fast;
pub(crate) mod from_dlpack;
pub(crate) mod lent;
pub(crate) mod stream;
pub(crate) mod tensor;
pub(crate) mod writing;
