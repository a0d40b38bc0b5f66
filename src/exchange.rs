//! Exchange tables of `dlpack.h` 1.3: those that dlx publishes for its tensors and for classes (a slot each), and those
//! of other libraries, which are found on a type and called.
//!
//! Knows tensors and how to copy them. Does not choose: whether a table is to be used, `import` decides.

mod foreign;
mod handed_back;
mod published;
pub(crate) mod slot;
pub(crate) mod tensor_table;

pub(crate) use foreign::{Table, header, header_in};
pub(crate) use published::{Exchange, publish};
