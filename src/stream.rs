//! Streams: the one that a library or a caller works on, which stream waits for which, and when memory is released.
//!
//! Uses the driver and the types of tensors, but no tensor: a snapshot describes its streams ([`usage`]) and hands
//! over memory to be freed later as a value to drop ([`release`]).

mod argument;
pub(crate) mod current;
pub(crate) mod end;
mod handle;
pub(crate) mod interface;
pub(crate) mod namer;
mod object;
pub(crate) mod order;
pub(crate) mod release;
mod set;
pub(crate) mod streams;
pub(crate) mod usage;
mod work_stream;

pub(crate) use argument::{
    Wanted, check_device, named_handle, synchronize, wanted, warn_if_experimental,
};
pub(crate) use current::{current, exported, namer, of_thread, told, working};
pub(crate) use handle::{NO_SYNC, Stream, checked, default, has_streams, needs_order, no_streams};
pub(crate) use namer::{Namer, NamesStream, note};
pub(crate) use object::PyStream;
pub(crate) use work_stream::WorkStream;
