//! The immutable description of a tensor, together with the owner of its memory.
//!
//! Shape and strides are copied on import, so a producer may change its own (torch's point into the live tensor)
//! without effect here. A `dlx.Tensor` and all its exports share one snapshot.

mod attached;
mod export;
mod import;
mod source;
mod view;
mod wrapped;

use std::mem::replace;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::abi::*;
use crate::cpython::depth::{later, nested, within};
use crate::stream::streams::Streams;
use crate::stream::usage::StreamUsage;
use crate::stream::{Namer, Stream, WorkStream, release};
use crate::tensor::block::{Beside, Shared};
use crate::tensor::checked::{Checked, Meta, Prototype};
use crate::tensor::managed::{Maker, PROTECTED};
use crate::tensor::memory::Memory;
use crate::types::error::Error;
use crate::types::{dtype, layout};

pub(crate) use source::{Aliases, Source, Traced};

struct Fields {
    flags: u64,
    source: Source,
    streams: Streams,
}

impl Beside for Fields {
    #[inline(always)]
    fn let_go(&mut self, tensor: &DLTensor, shape: &[i64]) {
        if !self.streams.are_none() {
            self.release(tensor, shape);
        }
        if self.source.whole().is_some() {
            self.let_view_go();
        }
    }
}

impl Fields {
    /// Releases the view that this one is based on, which may itself be based on another.
    #[cold]
    #[inline(never)]
    fn let_view_go(&mut self) {
        let view = replace(&mut self.source, Source::Static);
        nested(view, |view| *view = Source::Static);
    }

    /// Releases the memory, unless another view of the same import shares the streams.
    #[inline(never)]
    fn release(&mut self, tensor: &DLTensor, shape: &[i64]) {
        let device = tensor.device;
        let streams = replace(&mut self.streams, Streams::None);
        if let Some(Ok(usage)) = streams.into_usage(device).map(Arc::try_unwrap) {
            let bits = dtype::bits(tensor.dtype).next_multiple_of(8);
            let bytes = layout::nbytes(shape.iter().product(), bits);
            let mut held = Some((usage, replace(&mut self.source, Source::Static)));
            let mut let_go = move || {
                if let Some((usage, source)) = held.take() {
                    let ends = release::ends(&usage, source.whole().and_then(Snapshot::usage));
                    if !ends.is_empty() {
                        release::defer(ends, device, bytes, Box::new(source));
                    }
                }
            };
            if !within(&mut let_go) {
                later(let_go);
            }
        }
    }
}

/// A tensor: shared, immutable, freed with the last reference.
#[derive(Clone)]
pub(crate) struct Snapshot(Shared<Fields>);

impl Checked<'_> {
    /// The snapshot over memory that `source` keeps alive.
    #[inline(always)]
    pub(crate) fn over(self, source: Source) -> Snapshot {
        self.with_usage(source, None)
    }

    /// The snapshot over memory that `source` keeps alive, with the streams in `usage`.
    #[inline(always)]
    pub(crate) fn with_usage(self, source: Source, usage: Option<Arc<StreamUsage>>) -> Snapshot {
        let (meta, shape) = (self.meta, self.shape);
        match self.strides {
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
    /// A snapshot without checks; `dimension` returns the extent and the stride in elements of each of at most 64
    /// dimensions.
    #[inline(always)]
    pub(crate) fn new(
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
            streams: usage.map_or(Streams::None, Streams::Shared),
        };
        Self(Shared::new(fields, tensor, ndim, dimension))
    }

    /// The snapshot, with its streams, if it was just made and has none.
    pub(crate) fn on_streams(mut self, streams: Streams) -> Self {
        if let Some(fields) = self.0.get_mut() {
            fields.streams = streams;
        }
        self
    }

    /// The same tensor, ready on `stream`; itself, if it has no streams and nobody shares it.
    pub(crate) fn ready_on(&mut self, stream: &Stream) -> Result<Self, Error> {
        let here = self.0.tensor().device;
        match self.0.get_mut() {
            Some(fields) if fields.streams.are_none() => {
                fields.streams = Streams::ready_after(stream, here, None);
                Ok(self.clone())
            }
            _ => self.used(StreamUsage::ready_after(stream.clone(), None)),
        }
    }

    /// New uninitialized CPU memory, contiguous in row-major order.
    pub(crate) fn allocate(shape: &[i64], dtype: DLDataType, flags: u64) -> Result<Self, Error> {
        dtype::known(dtype)?;
        let meta = Meta::on_cpu(NonNull::dangling().as_ptr(), dtype, flags);
        let mut checked = Checked::new(meta, shape, None)?;
        let memory = Memory::new(layout::nbytes(checked.size, checked.meta.bits()))?;
        checked.meta.data = memory.as_ptr();
        Ok(checked.over(Source::Memory(memory)))
    }

    /// What holds the memory, below all views.
    fn root(&self) -> &Source {
        self.0.value().source.root()
    }

    /// Whether this is memory of dlx's, freed in the order of `stream`.
    pub(crate) fn is_freed_on(&self, stream: &Stream) -> bool {
        match self.root() {
            Source::Device(memory) => memory.is_freed_on(stream),
            _ => false,
        }
    }

    /// The other devices that the memory is on, if any.
    pub(crate) fn aliases(&self) -> Option<&Aliases> {
        match &self.0.value().source {
            Source::View(whole, aliases) => aliases.as_deref().or_else(|| whole.aliases()),
            _ => None,
        }
    }

    /// The Python objects to which the last reference to this snapshot, if `self` is that, holds one reference each;
    /// NULL for none.
    pub(crate) fn objects(&self) -> [*mut ffi::PyObject; 2] {
        if self.0.is_unique() {
            self.0.value().source.objects()
        } else {
            [null_mut(); 2]
        }
    }

    /// Whether something holds the memory, so that the caller need not vouch for it.
    pub(crate) fn is_kept(&self) -> bool {
        !matches!(self.root(), Source::Static)
    }

    /// Who made the managed tensor that holds the memory, if one does.
    pub(crate) fn maker(&self) -> Option<Maker> {
        match self.root() {
            Source::Versioned(managed) => Some(managed.maker()),
            Source::Legacy(managed) => Some(managed.maker()),
            _ => None,
        }
    }

    /// The object that lent the memory, or owns it, if one alone does.
    pub(crate) fn lender<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        match self.root() {
            Source::Python(owner) => Some(owner.bind(py).clone()),
            _ => None,
        }
    }

    /// Whether it has streams.
    #[inline(always)]
    pub(crate) fn has_streams(&self) -> bool {
        !self.0.value().streams.are_none()
    }

    /// As [`Streams::one`].
    pub(crate) fn one_stream(&self) -> Option<(i64, Option<WorkStream>)> {
        self.0.value().streams.one(self.0.tensor().device)
    }

    /// Its streams.
    pub(crate) fn usage(&self) -> Option<&StreamUsage> {
        self.shared_usage().map(|usage| &**usage)
    }

    fn shared_usage(&self) -> Option<&Arc<StreamUsage>> {
        self.0.value().streams.usage(self.0.tensor().device)
    }

    /// Who names the stream of the tensor; `None` if it has none.
    pub(crate) fn namer(&self) -> Option<Namer> {
        Namer::of_tensor(self.shared_usage()?)
    }

    /// Makes `consumer` wait until the elements are ready.
    ///
    /// # Errors
    ///
    /// `BufferError` if that would invalidate a capture, or without a driver.
    pub(crate) fn order(&self, consumer: &Stream) -> Result<(), Error> {
        match self.usage() {
            Some(usage) => usage.order(consumer),
            None => Ok(()),
        }
    }

    /// Everything but the shape.
    #[inline(always)]
    pub(crate) fn meta(&self) -> Meta {
        Meta::written(self.0.tensor(), self.0.value().flags)
    }

    /// Number of elements.
    pub(crate) fn size(&self) -> i64 {
        // Checked not to overflow, in any order.
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

    /// Bytes of the elements, without gaps.
    pub(crate) fn nbytes(&self) -> i64 {
        layout::nbytes(self.size(), self.meta().bits())
    }

    /// What an allocator would read to make such a tensor.
    pub(crate) fn prototype(&self) -> Prototype<'_> {
        let Meta { dtype, device, .. } = self.meta();
        Prototype {
            shape: self.shape(),
            dtype,
            device,
        }
    }

    /// Whether the layout is contiguous in row-major order.
    pub(crate) fn is_row_major(&self) -> bool {
        layout::is_row_major(self.shape(), self.strides())
    }

    /// A view whose shape and strides point into this snapshot, valid as long as it is (R129).
    #[inline(always)]
    pub(crate) fn dl_tensor(&self) -> &DLTensor {
        self.0.tensor()
    }

    /// Whether the memory is read-only, or may be.
    pub(crate) fn is_protected(&self) -> bool {
        self.has(PROTECTED)
    }
}
