//! The vocabulary of tensors: data types, devices, layouts, and the errors that name them.
//!
//! Uses the driver only for its errors. Everything here is a plain value: no memory and no lifetimes.

pub(crate) mod device;
pub(crate) mod dtype;
pub(crate) mod error;
pub(crate) mod layout;
