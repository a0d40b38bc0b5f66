//! What Python calls: `from_dlpack`, the methods of `Tensor` and `Stream`, `borrow`.
//!
//! Parses arguments and words the answers; what is done is done below. A function with a fast entry (`fast.rs`) behaves
//! in both alike.

pub(crate) mod borrow;
pub(crate) mod fast;
pub(crate) mod from_dlpack;
pub(crate) mod lent;
pub(crate) mod stream;
pub(crate) mod tensor;
pub(crate) mod writing;
