//! The words of tensors: data types, devices, layouts, errors. Knows the driver only for its errors.

pub(crate) mod device;
pub(crate) mod dtype;
pub(crate) mod error;
pub(crate) mod layout;
