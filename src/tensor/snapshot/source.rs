//! What keeps the memory of a snapshot alive.

#![forbid(unsafe_code)]

use std::ptr::null_mut;

use pyo3::ffi;

use super::Snapshot;
use crate::abi::*;
use crate::cpython::interpreter::PythonOwner;
use crate::stream::usage::StreamUsage;
use crate::tensor::device_memory::DeviceMemory;
use crate::tensor::managed::Managed;
use crate::tensor::memory::Memory;

/// What another protocol gives to hold; dropping it lets go.
pub(crate) trait Hold: Send + Sync {
    /// The Python objects that it holds one reference to each, where it can tell; NULL for none.
    fn objects(&self) -> [*mut ffi::PyObject; 2] {
        [null_mut(); 2]
    }
}

impl Hold for PythonOwner {
    fn objects(&self) -> [*mut ffi::PyObject; 2] {
        [self.as_ptr(), null_mut()]
    }
}

impl Hold for (PythonOwner, PythonOwner) {
    fn objects(&self) -> [*mut ffi::PyObject; 2] {
        [self.0.as_ptr(), self.1.as_ptr()]
    }
}

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
    Held(Box<dyn Hold>),
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
    /// The Python objects that this holds one reference to each, where it can tell; NULL for none.
    pub(crate) fn objects(&self) -> [*mut ffi::PyObject; 2] {
        match self {
            Self::Python(owner) => owner.objects(),
            Self::Held(held) => held.objects(),
            _ => [null_mut(); 2],
        }
    }

    /// The streams of the other view.
    pub(crate) fn usage(&self) -> Option<&StreamUsage> {
        match self {
            Self::Snapshot(view) => view.usage(),
            Self::Aliased(aliased) => aliased.0.usage(),
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
