//! The owners of a snapshot's memory.

#![forbid(unsafe_code)]

use std::ptr::null_mut;

use pyo3::ffi;

use super::Snapshot;
use crate::abi::*;
use crate::cpython::interpreter::PythonOwner;
use crate::stream::usage::StreamUsage;
use crate::tensor::device_memory::DeviceMemory;
use crate::tensor::held_buffer::Buffer;
use crate::tensor::managed::{Managed, ManagedVersioned};
use crate::tensor::memory::Memory;

/// An owner from another protocol; dropping it releases the memory.
pub(crate) trait Hold: Send + Sync {
    /// The Python objects to which it holds one reference each, if known; NULL for none.
    fn objects(&self) -> [*mut ffi::PyObject; 2] {
        [null_mut(); 2]
    }

    /// The number that a trace gave it, if one did, and what was the owner before.
    fn traced(&self) -> Option<(u64, &Source)> {
        None
    }
}

impl Hold for (PythonOwner, PythonOwner) {
    fn objects(&self) -> [*mut ffi::PyObject; 2] {
        [self.0.as_ptr(), self.1.as_ptr()]
    }
}

/// The owner of a snapshot's memory; dropping it releases the memory. Every snapshot has room for the largest variant.
pub(crate) enum Source {
    /// A tensor from a table or a `dltensor_versioned` capsule.
    Versioned(ManagedVersioned),
    /// A tensor from a `dltensor` capsule.
    Legacy(Managed<DLManagedTensor>),
    /// Memory owned by a Python object, passed to `from_pointer`.
    Python(PythonOwner),
    /// Memory that a Python buffer holds.
    Buffer(Buffer),
    /// dlx's own host memory.
    Memory(#[expect(dead_code, reason = "held for its memory")] Memory),
    /// dlx's own device memory.
    Device(Box<DeviceMemory>),
    /// Memory described by another protocol, with its owner.
    Held(Box<dyn Hold>),
    /// Another view of the same memory.
    Snapshot(Snapshot),
    /// A view of more of the same memory.
    Part(Snapshot),
    /// Another view of the same memory, with the other devices that it is on.
    Aliased(Box<(Snapshot, Aliases)>),
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
            Self::Buffer(buffer) => [buffer.exporter(), null_mut()],
            Self::Held(held) => held.objects(),
            Self::Part(whole) => whole.objects(),
            _ => [null_mut(); 2],
        }
    }

    /// What holds the memory, below all views.
    pub(super) fn root(&self) -> &Self {
        let mut source = self;
        // Views may be based on any number of others.
        loop {
            let view = match source {
                Self::Versioned(managed) => managed.owner::<Snapshot>(),
                Self::Legacy(managed) => managed.owner::<Snapshot>(),
                Self::Snapshot(view) | Self::Part(view) => Some(view),
                Self::Aliased(aliased) => Some(&aliased.0),
                Self::Held(held) => match held.traced() {
                    Some((_, before)) => {
                        source = before;
                        continue;
                    }
                    None => None,
                },
                _ => None,
            };
            match view {
                Some(view) => source = &view.0.value().source,
                None => return source,
            }
        }
    }

    /// The streams of the view that this one is based on.
    pub(crate) fn usage(&self) -> Option<&StreamUsage> {
        match self {
            Self::Snapshot(view) | Self::Part(view) => view.usage(),
            Self::Aliased(aliased) => aliased.0.usage(),
            _ => None,
        }
    }
}

/// The other devices that a tensor is on, and the object to ask for it there.
pub(crate) struct Aliases {
    pub(crate) devices: Box<[DLDevice]>,
    /// `None` if a mixin class names them for a `dlx.Tensor`: no other object describes that memory.
    pub(crate) exporter: Option<PythonOwner>,
}
