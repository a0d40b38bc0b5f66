//! The immutable description of a tensor, together with what keeps its memory alive.
//!
//! Shape and strides are copied when a tensor comes in, so that a producer that changes its own (torch's
//! point into the live tensor) changes nothing here. A `dlx.Tensor` and all its exports share one snapshot.

mod attached;
mod export;
mod import;
mod source;

use std::mem::replace;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use pyo3::ffi;

use crate::abi::*;
use crate::cpython::depth::{later, within};
use crate::stream::Stream;
use crate::stream::order::Joined;
use crate::stream::release;
use crate::stream::usage::StreamUsage;
use crate::tensor::block::{Beside, Shared};
use crate::tensor::checked::{Checked, Meta};
use crate::tensor::managed::PROTECTED;
use crate::tensor::memory::Memory;
use crate::types::error::Error;
use crate::types::layout;

pub(crate) use source::{Aliases, Hold, Source};

struct Fields {
    flags: u64,
    source: Source,
    /// Its streams, shared by all views of the same import; `None` where there is nothing to order.
    usage: Option<Arc<StreamUsage>>,
}

impl Beside for Fields {
    #[inline(always)]
    fn let_go(&mut self, dtype: DLDataType, shape: &[i64]) {
        if let Some(usage) = self.usage.take() {
            self.release(usage, dtype, shape);
        }
        if let Source::Snapshot(_) | Source::Aliased(_) = self.source {
            self.let_view_go();
        }
    }
}

impl Fields {
    /// Lets go of the view that this is another of, and which may be one of another again.
    #[cold]
    #[inline(never)]
    fn let_view_go(&mut self) {
        let mut view = replace(&mut self.source, Source::Static);
        if !within(|| view = Source::Static) {
            later(|| drop(view));
        }
    }

    /// Lets go of the memory, if no other view of the same import holds its streams.
    #[inline(never)]
    fn release(&mut self, usage: Arc<StreamUsage>, dtype: DLDataType, shape: &[i64]) {
        if let Ok(usage) = Arc::try_unwrap(usage) {
            let bytes = layout::nbytes(shape.iter().product(), dtype, true);
            let mut held = Some((usage, replace(&mut self.source, Source::Static)));
            let mut let_go = move || {
                if let Some((usage, source)) = held.take() {
                    let ends = release::ends(&usage, source.usage());
                    if !ends.is_empty() {
                        release::defer(ends, bytes, Box::new(source));
                    }
                }
            };
            if !within(&mut let_go) {
                later(let_go);
            }
        }
    }
}

/// A tensor: shared, immutable, freed with its last holder.
#[derive(Clone)]
pub(crate) struct Snapshot(Shared<Fields>);

impl Checked<'_> {
    /// The snapshot, whose memory `source` keeps alive.
    #[inline(always)]
    pub(crate) fn over(self, source: Source) -> Snapshot {
        self.with_usage(source, None)
    }

    /// The snapshot, whose memory `source` keeps alive and `usage` orders.
    #[inline(always)]
    pub(crate) fn with_usage(self, source: Source, usage: Option<Arc<StreamUsage>>) -> Snapshot {
        let Self {
            meta,
            shape,
            strides,
            ..
        } = self;
        match strides {
            Some(strides) => Snapshot::new(meta, source, usage, shape.len(), |index| {
                (shape[index], strides[index])
            }),
            None => Snapshot::new(meta, source, usage, shape.len(), |index| {
                (shape[index], layout::row_major(shape, index))
            }),
        }
    }
}

impl Snapshot {
    #[inline(always)]
    fn new(
        meta: Meta,
        source: Source,
        usage: Option<Arc<StreamUsage>>,
        ndim: usize,
        dimension: impl Fn(usize) -> (i64, i64),
    ) -> Self {
        let tensor = meta.tensor(ndim);
        let fields = Fields {
            flags: meta.flags,
            source,
            usage,
        };
        Self(Shared::new(fields, tensor, ndim, dimension))
    }

    /// A snapshot without streams of what needs no checking; `dimension` gives an extent and a stride in elements for
    /// each of at most 64 dimensions.
    #[inline(always)]
    pub(crate) fn unchecked(
        meta: Meta,
        source: Source,
        ndim: usize,
        dimension: impl Fn(usize) -> (i64, i64),
    ) -> Self {
        Self::new(meta, source, None, ndim, dimension)
    }

    /// Uninitialized memory of our own on the CPU, compact and row-major.
    pub(crate) fn allocate(shape: &[i64], dtype: DLDataType, flags: u64) -> Result<Self, Error> {
        let meta = Meta::on_cpu(NonNull::dangling().as_ptr(), dtype, flags);
        let mut checked = Checked::new(meta, shape, None)?;
        let padded = checked.meta.flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED != 0;
        let memory = Memory::new(layout::nbytes(checked.size, dtype, padded))?;
        checked.meta.data = memory.as_ptr();
        Ok(checked.over(Source::Memory(memory)))
    }

    /// Whether the memory is our own, and freed after all that `stream` is given before.
    pub(crate) fn is_freed_on(&self, stream: &Stream) -> bool {
        match &self.0.value().source {
            Source::Device(memory) => memory.is_freed_on(stream),
            Source::Snapshot(whole) => whole.is_freed_on(stream),
            Source::Aliased(whole) => whole.0.is_freed_on(stream),
            _ => false,
        }
    }

    /// The same memory seen as another dtype of the same size.
    pub(crate) fn reinterpret(&self, dtype: DLDataType) -> Result<Self, Error> {
        let mut meta = self.meta();
        meta.dtype = dtype;
        self.other(meta)
    }

    /// The same tensor, known to be a copy that a producer made on demand (torch does not say so, R37).
    pub(crate) fn copied(self) -> Result<Self, Error> {
        if self.has(DLPACK_FLAG_BITMASK_IS_COPIED) {
            return Ok(self);
        }
        let mut meta = self.meta();
        meta.flags |= DLPACK_FLAG_BITMASK_IS_COPIED;
        self.other(meta)
    }

    /// The same tensor, which is on other devices too.
    pub(crate) fn aliased(self, aliases: Aliases) -> Result<Self, Error> {
        let checked = Checked::new(self.meta(), self.shape(), Some(self.strides()))?;
        let source = Source::Aliased(Box::new((self.clone(), aliases)));
        Ok(checked.with_usage(source, self.0.value().usage.clone()))
    }

    /// The devices that the memory is on besides its own, if there are any.
    pub(crate) fn aliases(&self) -> Option<&Aliases> {
        match &self.0.value().source {
            Source::Aliased(aliased) => Some(&aliased.1),
            Source::Snapshot(snapshot) => snapshot.aliases(),
            _ => None,
        }
    }

    /// The same memory as another device reaches it, at the same address; the elements are ready.
    pub(crate) fn on(&self, device: DLDevice) -> Result<Self, Error> {
        let mut meta = self.meta();
        meta.device = device;
        self.other(meta)
    }

    /// Another description of the same elements.
    fn other(&self, meta: Meta) -> Result<Self, Error> {
        let checked = Checked::new(meta, self.shape(), Some(self.strides()))?;
        let usage = self.0.value().usage.clone();
        Ok(checked.with_usage(Source::Snapshot(self.clone()), usage))
    }

    /// The same tensor, used in the order of other streams too.
    pub(crate) fn used(&self, usage: StreamUsage) -> Result<Self, Error> {
        let checked = Checked::new(self.meta(), self.shape(), Some(self.strides()))?;
        Ok(checked.with_usage(Source::Snapshot(self.clone()), Some(Arc::new(usage))))
    }

    /// The Python objects that its last holder, if `self` is that, holds one reference to each; NULL for none.
    pub(crate) fn objects(&self) -> [*mut ffi::PyObject; 2] {
        if self.0.is_unique() {
            self.0.value().source.objects()
        } else {
            [null_mut(); 2]
        }
    }

    /// Its streams.
    pub(crate) fn usage(&self) -> Option<&StreamUsage> {
        self.0.value().usage.as_deref()
    }

    /// Makes `consumer` wait until the elements are ready.
    ///
    /// # Errors
    ///
    /// `BufferError` where that would end the capture of a graph, or there is no driver to do it.
    pub(crate) fn order(&self, consumer: &Stream) -> Result<(), Error> {
        match self.usage() {
            Some(usage) => usage.order(consumer, Joined::Never),
            None => Ok(()),
        }
    }

    /// Everything but the shape.
    #[inline(always)]
    pub(crate) fn meta(&self) -> Meta {
        let DLTensor {
            data,
            byte_offset,
            device,
            dtype,
            ..
        } = *self.0.tensor();
        Meta {
            data,
            byte_offset,
            device,
            dtype,
            flags: self.0.value().flags,
        }
    }

    /// Number of elements.
    pub(crate) fn size(&self) -> i64 {
        // It was checked that this fits, whatever the order.
        self.shape().iter().product()
    }

    /// Number of dimensions.
    pub(crate) fn ndim(&self) -> usize {
        self.0.ndim()
    }

    /// Extents.
    pub(crate) fn shape(&self) -> &[i64] {
        self.0.shape()
    }

    /// Strides in elements.
    pub(crate) fn strides(&self) -> &[i64] {
        self.0.strides()
    }

    /// Whether any of these flags is set.
    pub(crate) fn has(&self, flags: u64) -> bool {
        self.meta().flags & flags != 0
    }

    /// Bytes of the elements alone.
    pub(crate) fn nbytes(&self) -> i64 {
        let padded = self.has(DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED);
        layout::nbytes(self.size(), self.meta().dtype, padded)
    }

    /// Whether the elements lie in row-major order with nothing between them.
    pub(crate) fn is_row_major(&self) -> bool {
        layout::is_row_major(self.shape(), self.strides())
    }

    /// As [`Self::dl_tensor`], where it lies.
    #[inline(always)]
    pub(crate) fn as_dl_tensor(&self) -> &DLTensor {
        self.0.tensor()
    }

    /// A view whose shape and strides point into this snapshot, valid as long as it is (R129).
    #[inline(always)]
    pub(crate) fn dl_tensor(&self) -> DLTensor {
        *self.0.tensor()
    }

    /// Whether its producer says that the memory must not be written, or cannot say.
    pub(crate) fn is_protected(&self) -> bool {
        self.has(PROTECTED)
    }

    /// The same tensor as one that must not be written.
    pub(crate) fn readonly(&self) -> Result<Self, Error> {
        let mut meta = self.meta();
        meta.flags = meta.flags & !PROTECTED | DLPACK_FLAG_BITMASK_READ_ONLY;
        self.other(meta)
    }

    /// The same tensor as one that may be written.
    pub(crate) fn writable(&self) -> Result<Self, Error> {
        let mut meta = self.meta();
        meta.flags &= !PROTECTED;
        self.other(meta)
    }
}
