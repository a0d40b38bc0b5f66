//! Exchange tables of `dlpack.h` 1.3: dlx publishes its own, one for `dlx.Tensor` and one (a slot) per class, and finds
//! and calls those of other libraries.
//!
//! Knows tensors and how to copy them. `import` decides whether to use a table.

mod foreign;
mod published;
pub(crate) mod slot;
pub(crate) mod tensor_table;

pub(crate) use foreign::{Table, header, header_in};
pub(crate) use published::{Exchange, publish};
