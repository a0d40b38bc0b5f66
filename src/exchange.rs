//! Exchange tables of `dlpack.h` 1.3: those that dlx publishes, and those of other libraries.

mod foreign;
mod handed_back;
mod published;
pub(crate) mod slot;
pub(crate) mod tensor_table;

pub(crate) use foreign::{Table, header, header_in};
pub(crate) use published::{Exchange, publish};
