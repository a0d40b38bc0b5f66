//! Streams: which of them work on devices runs in, who waits for whom, and when memory goes back.
//!
//! The room knows the driver and the types of tensors, and no tensor: a snapshot tells it what its streams are
//! ([`usage`]), and hands over what is to be freed later as something to drop ([`release`]).

mod argument;
pub(crate) mod current;
mod handle;
pub(crate) mod interface;
mod object;
pub(crate) mod order;
pub(crate) mod release;
pub(crate) mod usage;
mod work_stream;

pub(crate) use argument::{Wanted, check_device, named_handle, wanted};
pub(crate) use current::{current, note_producer, set, working};
pub(crate) use handle::{NO_SYNC, Stream, checked, default, has_streams, no_streams};
pub(crate) use object::PyStream;
pub(crate) use work_stream::WorkStream;
