//! The owners of a snapshot's memory.

#![forbid(unsafe_code)]

use std::ptr::null_mut;

use pyo3::ffi;

use super::Snapshot;
use crate::abi::*;
use crate::cpython::interpreter::PythonOwner;
use crate::tensor::device_memory::DeviceMemory;
use crate::tensor::held_buffer::Buffer;
use crate::tensor::managed::{Managed, ManagedVersioned};
use crate::tensor::memory::Memory;

/// The owner of a snapshot's memory; dropping it releases the memory. Every snapshot has room for the largest variant.
pub(crate) enum Source {
    /// A tensor from a table or a `dltensor_versioned` capsule.
    Versioned(ManagedVersioned),
    /// A tensor from a `dltensor` capsule.
    Legacy(Managed<DLManagedTensor>),
    /// Memory owned by a Python object, passed to `from_pointer`.
    Python(PythonOwner),
    /// Memory that a Python buffer holds, and an object that may own it, too.
    Buffer(Buffer, Option<PythonOwner>),
    /// dlx's own host memory.
    Memory(#[expect(dead_code, reason = "held for its memory")] Memory),
    /// dlx's own device memory.
    Device(Box<DeviceMemory>),
    /// Memory described by another protocol, with its owner.
    Held(#[expect(dead_code, reason = "held for its memory")] Box<dyn Send + Sync>),
    /// Memory whose import a trace has noted.
    Traced(Box<Traced>),
    /// Another view of the same memory, and the other devices that it is on, if they were named for this one.
    View(Snapshot, Option<Box<Aliases>>),
    /// A view of more of the same memory.
    Part(Snapshot),
    /// Memory that the caller vouches for.
    Static,
}

impl From<ManagedVersioned> for Source {
    fn from(managed: ManagedVersioned) -> Self {
        Self::Versioned(managed)
    }
}

impl From<Managed<DLManagedTensor>> for Source {
    fn from(managed: Managed<DLManagedTensor>) -> Self {
        Self::Legacy(managed)
    }
}

impl Source {
    /// The Python objects to which this holds one reference each, if known; NULL for none.
    pub(crate) fn objects(&self) -> [*mut ffi::PyObject; 2] {
        match self {
            Self::Python(owner) => [owner.as_ptr(), null_mut()],
            Self::Buffer(buffer, owner) => {
                let owner = owner.as_ref().map_or(null_mut(), PythonOwner::as_ptr);
                [buffer.exporter(), owner]
            }
            Self::Traced(traced) => traced.source.objects(),
            Self::Part(whole) => whole.objects(),
            _ => [null_mut(); 2],
        }
    }

    /// What holds the memory, below all views.
    pub(super) fn root(&self) -> &Self {
        let mut source = self;
        // Views may be based on any number of others.
        while let Some(below) = source.below() {
            source = below;
        }
        source
    }

    /// What holds the memory for this one, unless it does that itself.
    fn below(&self) -> Option<&Self> {
        let whole = match self {
            Self::Versioned(managed) => managed.owner::<Snapshot>()?,
            Self::Legacy(managed) => managed.owner::<Snapshot>()?,
            Self::Traced(traced) => return Some(&traced.source),
            _ => self.whole()?,
        };
        Some(&whole.0.value().source)
    }

    /// What this is a view of.
    #[inline(always)]
    pub(crate) fn whole(&self) -> Option<&Snapshot> {
        match self {
            Self::View(whole, _) | Self::Part(whole) => Some(whole),
            _ => None,
        }
    }
}

/// The owner of traced memory.
pub(crate) struct Traced {
    pub(crate) number: u64,
    pub(crate) source: Source,
    /// Notes the end; dropped after the source.
    pub(crate) _end: Box<dyn Send + Sync>,
}

/// The other devices that a tensor is on, and the object to ask for it there.
pub(crate) struct Aliases {
    pub(crate) devices: Box<[DLDevice]>,
    /// `None` if a mixin class names them for a `dlx.Tensor`: no other object describes that memory.
    pub(crate) exporter: Option<PythonOwner>,
}
