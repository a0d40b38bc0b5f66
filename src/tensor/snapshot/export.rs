//! Exports of a snapshot: new managed tensors over the same memory.

#![forbid(unsafe_code)]

use super::Snapshot;
use crate::abi::*;
use crate::tensor::managed::{self, Managed, ManagedTensor, Offer};
use crate::types::error::Error;

impl Snapshot {
    /// Offers a new managed tensor to a peer.
    pub(crate) fn offer(&self, fresh: bool) -> Result<Offer<Self>, Error> {
        let (tensor, flags) = (*self.dl_tensor(), self.flags(fresh));
        let (shape, strides) = (self.shape(), self.strides());
        Offer::new(tensor, shape, strides, flags, self.clone())
    }

    /// The flags of an export; `fresh` if nothing else uses the memory.
    fn flags(&self, fresh: bool) -> u64 {
        let cleared = u64::from(!fresh) * DLPACK_FLAG_BITMASK_IS_COPIED;
        self.meta().flags & !cleared
    }

    /// A new managed tensor that shares the memory (R16).
    ///
    /// IS_COPIED means that the consumer is the only owner, so it is set only for memory made for this export: `fresh`
    /// (R37, R38).
    #[inline(always)]
    pub(crate) fn export<M: ManagedTensor>(&self, fresh: bool) -> Result<Managed<M>, Error> {
        let (tensor, flags) = (*self.dl_tensor(), self.flags(fresh));
        let (shape, strides) = (self.shape(), self.strides());
        managed::export(tensor, shape, strides, flags, self.clone())
    }
}
