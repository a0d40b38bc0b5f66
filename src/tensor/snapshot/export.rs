//! What a snapshot gives to others: managed tensors of their own over the same memory.

#![forbid(unsafe_code)]

use super::Snapshot;
use crate::abi::*;
use crate::tensor::managed;
use crate::tensor::managed::{Managed, ManagedTensor, Offer};
use crate::types::error::Error;

impl Snapshot {
    /// A managed tensor of its own that is offered to a peer.
    pub(crate) fn offer(&self, fresh: bool) -> Result<Offer<Self>, Error> {
        let (shape, strides) = (self.shape(), self.strides());
        Offer::new(
            self.dl_tensor(),
            shape,
            strides,
            self.flags(fresh),
            self.clone(),
        )
    }

    /// The flags of an export, `fresh` if nobody else has the memory.
    fn flags(&self, fresh: bool) -> u64 {
        if fresh {
            self.meta().flags
        } else {
            self.meta().flags & !DLPACK_FLAG_BITMASK_IS_COPIED
        }
    }

    /// A managed tensor of its own that shares the memory (R16).
    ///
    /// IS_COPIED says that the consumer is the only owner, so it is set only on memory made for this
    /// export: `fresh` (R37, R38).
    pub(crate) fn export<M: ManagedTensor>(&self, fresh: bool) -> Result<Managed<M>, Error> {
        let (shape, strides) = (self.shape(), self.strides());
        managed::export(
            self.dl_tensor(),
            shape,
            strides,
            self.flags(fresh),
            self.clone(),
        )
    }
}
