//! What a tensor is: foreign ones, snapshots, exports, memory, and the Python object.

pub(crate) mod array_interface;
pub(crate) mod block;
pub(crate) mod buffer;
pub(crate) mod capsule;
pub(crate) mod checked;
pub(crate) mod device_memory;
pub(crate) mod managed;
pub(crate) mod memory;
pub(crate) mod numpy;
pub(crate) mod object;
pub(crate) mod repr;
pub(crate) mod snapshot;
