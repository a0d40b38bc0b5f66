//! The Python API: `from_dlpack`, the methods of `Tensor` and `Stream`, `borrow`, `launcher`.
//!
//! Parses arguments and builds results; the rooms below do the work. A function with a fast entry (`fast.rs`) behaves
//! the same through either.

mod accepted;
mod agreed;
pub(crate) mod borrow;
pub(crate) mod entry;
pub(crate) mod fast;
pub(crate) mod from_buffer;
pub(crate) mod from_dlpack;
pub(crate) mod launched;
pub(crate) mod lent;
mod loan;
mod parts;
pub(crate) mod stream;
pub(crate) mod tensor;
pub(crate) mod tree;
pub(crate) mod writing;
