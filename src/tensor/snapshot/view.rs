//! Views: other descriptions of the memory of a snapshot, which they hold.

#![forbid(unsafe_code)]

use std::sync::Arc;

use super::{Aliases, Snapshot, Source};
use crate::abi::*;
use crate::stream::usage::StreamUsage;
use crate::tensor::checked::{Checked, Meta};
use crate::tensor::managed::PROTECTED;
use crate::types::error::Error;
use crate::types::{device, dtype};

impl Snapshot {
    /// The same memory with another dtype of the same size.
    pub(crate) fn reinterpret(&self, dtype: DLDataType) -> Result<Self, Error> {
        self.other(|meta| meta.dtype = dtype)
    }

    /// The same memory, accessed by another device at the same address; the elements must be ready.
    pub(crate) fn on(&self, device: DLDevice) -> Result<Self, Error> {
        self.other(|meta| meta.device = device)
    }

    /// The same tensor, read-only.
    pub(crate) fn readonly(&self) -> Result<Self, Error> {
        self.other(|meta| meta.flags = meta.flags & !PROTECTED | DLPACK_FLAG_BITMASK_READ_ONLY)
    }

    /// The same tensor, writable.
    pub(crate) fn writable(&self) -> Result<Self, Error> {
        self.other(|meta| meta.flags &= !PROTECTED)
    }

    /// The same tensor, marked as a copy that the producer made on request (torch does not say so, R37).
    pub(crate) fn copied(self) -> Result<Self, Error> {
        if self.has(DLPACK_FLAG_BITMASK_IS_COPIED) {
            return Ok(self);
        }
        self.other(|meta| meta.flags |= DLPACK_FLAG_BITMASK_IS_COPIED)
    }

    /// The same tensor for somebody else, who is not its only owner as IS_COPIED would promise (R37).
    pub(crate) fn shared(&self) -> Result<Self, Error> {
        if !self.has(DLPACK_FLAG_BITMASK_IS_COPIED) {
            return Ok(self.clone());
        }
        self.other(|meta| meta.flags &= !DLPACK_FLAG_BITMASK_IS_COPIED)
    }

    /// The same tensor, with the other devices that it is on.
    pub(crate) fn aliased(self, aliases: Aliases) -> Result<Self, Error> {
        let usage = self.shared_usage().cloned();
        self.view(self.meta(), Some(Box::new(aliases)), usage)
    }

    /// The same tensor, also used on other streams.
    pub(crate) fn used(&self, usage: Arc<StreamUsage>) -> Result<Self, Error> {
        self.view(self.meta(), None, Some(usage))
    }

    /// The same elements, with a change to what describes them.
    fn other(&self, change: impl FnOnce(&mut Meta)) -> Result<Self, Error> {
        let mut meta = self.meta();
        change(&mut meta);
        self.view(meta, None, self.shared_usage().cloned())
    }

    /// The same elements as `meta` describes them.
    fn view(
        &self,
        meta: Meta,
        aliases: Option<Box<Aliases>>,
        usage: Option<Arc<StreamUsage>>,
    ) -> Result<Self, Error> {
        let checked = Checked::new(meta, self.shape(), Some(self.strides()))?;
        Ok(checked.with_usage(Source::View(self.clone(), aliases), usage))
    }

    /// Some of the elements, the first of them `offset` elements after that of `self`.
    ///
    /// Its producer knows only the whole on other devices, so a part has no aliases; and it is not solely owned, as
    /// IS_COPIED would promise (R37).
    pub(crate) fn part(&self, offset: i64, shape: &[i64], strides: &[i64]) -> Result<Self, Error> {
        let mut meta = self.meta();
        dtype::known(meta.dtype)?;
        meta.flags &= !DLPACK_FLAG_BITMASK_IS_COPIED;
        // Inside of the memory, whose bytes have been checked to fit.
        let start = i128::from(offset) * i128::from(meta.bits());
        if start % 8 != 0 && !shape.contains(&0) {
            return Err(Error::refused(format!(
                "the elements of {} are packed, and element {offset} does not begin with a byte",
                meta.dtype
            )));
        }
        let bytes = (start / 8) as i64;
        if device::has_addresses(meta.device) {
            meta.data = meta.data.wrapping_byte_offset(bytes as isize);
        } else {
            meta.byte_offset = meta.byte_offset.wrapping_add_signed(bytes);
        }
        self.within(meta, shape, Some(strides))
    }

    /// A tensor in the memory of `self`, as `meta` describes it.
    pub(crate) fn within(
        &self,
        meta: Meta,
        shape: &[i64],
        strides: Option<&[i64]>,
    ) -> Result<Self, Error> {
        let checked = Checked::new(meta, shape, strides)?;
        let usage = self.shared_usage().cloned();
        // A part of a part holds the whole alone.
        let whole = match &self.0.value().source {
            Source::Part(whole) => whole,
            _ => self,
        };
        Ok(checked.with_usage(Source::Part(whole.clone()), usage))
    }
}
