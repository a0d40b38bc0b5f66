//! Tensors and their owners: foreign managed tensors, checked descriptions, snapshots and their exports (capsule,
//! buffer, array interface), dlx's own memory, and the Python object.
//!
//! Uses streams, which a snapshot carries. Knows neither the producer nor the consumer of a tensor: it calls no
//! producer and no exchange table.

pub(crate) mod array_interface;
pub(crate) mod block;
pub(crate) mod buffer;
pub(crate) mod bytes;
pub(crate) mod capsule;
pub(crate) mod checked;
pub(crate) mod device_memory;
pub(crate) mod element;
pub(crate) mod held_buffer;
pub(crate) mod indexing;
pub(crate) mod managed;
pub(crate) mod memory;
pub(crate) mod numpy;
pub(crate) mod object;
pub(crate) mod snapshot;
pub(crate) mod trace;
