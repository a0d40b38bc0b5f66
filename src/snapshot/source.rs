//! What keeps the memory of a snapshot alive.

#![forbid(unsafe_code)]

use super::Snapshot;
use crate::abi::*;
use crate::device_memory::DeviceMemory;
use crate::interpreter::PythonOwner;
use crate::managed::Managed;
use crate::memory::Memory;
use crate::work::Work;

/// What keeps the memory of a snapshot alive; dropping it lets go. Every snapshot has room for the largest.
pub(crate) enum Source {
    /// A tensor that came through the table or a `dltensor_versioned` capsule.
    Versioned(Managed<DLManagedTensorVersioned>),
    /// A tensor that came through a `dltensor` capsule.
    Legacy(#[expect(dead_code, reason = "held for its deleter")] Managed<DLManagedTensor>),
    /// Memory of a Python object, named by `from_pointer`.
    Python(PythonOwner),
    /// Memory of our own.
    Memory(#[expect(dead_code, reason = "held for its memory")] Memory),
    /// Memory of our own on a device.
    Device(Box<DeviceMemory>),
    /// Memory that another protocol describes, with whatever that gives to hold it.
    Held(#[expect(dead_code, reason = "held for its drop")] Box<dyn Send + Sync>),
    /// Another view of the same memory.
    Snapshot(Snapshot),
    /// Another view of the same memory, which is on more devices than one.
    Aliased(Box<(Snapshot, Aliases)>),
    /// Memory that the caller answers for.
    Static,
}

impl From<Managed<DLManagedTensorVersioned>> for Source {
    fn from(managed: Managed<DLManagedTensorVersioned>) -> Self {
        Self::Versioned(managed)
    }
}

impl From<Managed<DLManagedTensor>> for Source {
    fn from(managed: Managed<DLManagedTensor>) -> Self {
        Self::Legacy(managed)
    }
}

impl Source {
    /// The streams of the other view.
    pub(crate) fn work(&self) -> Option<&Work> {
        match self {
            Self::Snapshot(view) => view.work(),
            Self::Aliased(aliased) => aliased.0.work(),
            _ => None,
        }
    }
}

/// The devices that a tensor is on besides its own, and whom to ask for it there.
pub(crate) struct Aliases {
    pub(crate) devices: Box<[DLDevice]>,
    /// `None` where the class of a mixin says so of a `dlx.Tensor`: nobody but dlx describes that memory.
    pub(crate) exporter: Option<PythonOwner>,
}
