//! The words that describe tensors: data types, devices, layouts, and the errors that name them.
//!
//! Knows the driver for its errors alone. Has no memory and no lifetime: all values here are plain.

pub(crate) mod device;
pub(crate) mod dtype;
pub(crate) mod error;
pub(crate) mod layout;
