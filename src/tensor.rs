//! A tensor and what keeps its memory alive: foreign managed tensors, checked descriptions, snapshots, their exports by
//! capsule, buffer and array interface, memory of dlx's own, and the Python object.
//!
//! Knows streams, which a snapshot carries. Knows neither where a tensor comes from nor whom it is for: it calls no
//! producer and no exchange table.

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
