//! Who names the stream that a consumer of dlx's tensors runs on: the library of the tensor that a thread has passed on
//! last. It is asked anew each time: it may work on another stream by now, and a handle may have been destroyed.

#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use pyo3::prelude::*;

use crate::abi::DLDevice;
use crate::cpython::interpreter::PythonOwner;
use crate::stream::handle::{Stream, WeakStream, device_of_streams};
use crate::stream::set::set;
use crate::stream::usage::{Library, StreamUsage};
use crate::stream::work_stream::WorkStream;

/// A class that names the stream of its instances.
pub(crate) trait NamesStream: Sync {
    /// Whether the class is still there.
    fn is_there(&self) -> bool;

    /// The handle for `device`; 0 for the default stream.
    fn stream(&self, py: Python<'_>, device: DLDevice) -> PyResult<i64>;
}

/// Who names a stream.
#[derive(Clone)]
pub(crate) enum Namer {
    /// A library, by its table.
    Library(WorkStream),
    /// An object, by its `__cuda_array_interface__`, while it lives.
    Object(Weak<PythonOwner>),
    /// A tensor whose library names none: the stream that it is used on, while it lives.
    Tensor(Weak<StreamUsage>, WeakStream),
    /// A class, by its `__dlx_stream__`.
    Class(&'static dyn NamesStream),
    /// `dlx.stream`, in this thread.
    Set,
    /// Nobody: the default stream.
    Nobody,
}

impl Namer {
    /// The namer of a library's stream.
    pub(crate) fn of(library: &Library) -> Self {
        match library {
            Library::Table(work_stream) => Self::Library(*work_stream),
            Library::Interface(object) => Self::Object(Arc::downgrade(object)),
        }
    }

    /// The namer of a tensor's stream; `None` if it has none.
    pub(crate) fn of_tensor(usage: &Arc<StreamUsage>) -> Option<Self> {
        match &usage.producer {
            Some(producer) => Some(Self::of(&producer.library)),
            None => {
                let stream = usage.stream()?.downgrade();
                Some(Self::Tensor(Arc::downgrade(usage), stream))
            }
        }
    }

    /// The stream that is named for `device` now; `None` if what named it is gone.
    pub(crate) fn stream(&self, py: Python<'_>, device: DLDevice) -> PyResult<Option<Stream>> {
        match self {
            _ if !self.is_there() => Ok(None),
            Self::Library(work_stream) => Library::Table(*work_stream).stream(py, device),
            Self::Object(object) => match object.upgrade() {
                // It runs Python code, so PyO3 has to count the attachment.
                Some(object) => {
                    let named = Python::attach(|py| Library::Interface(object).stream(py, device))?;
                    Ok(Some(named.unwrap_or_else(|| Stream::default(device))))
                }
                None => Ok(None),
            },
            Self::Tensor(_, stream) => Ok(stream.upgrade()),
            Self::Class(class) => {
                let handle = class.stream(py, device)?;
                Ok(Some(Stream::of_table(handle, device)))
            }
            Self::Set => Ok(set(device)),
            Self::Nobody => Ok(Some(Stream::default(device))),
        }
    }

    /// Whether what names the stream is still there.
    pub(crate) fn is_there(&self) -> bool {
        match self {
            Self::Object(object) => object.strong_count() > 0,
            Self::Tensor(tensor, _) => tensor.strong_count() > 0,
            Self::Class(class) => class.is_there(),
            Self::Library(_) | Self::Set | Self::Nobody => true,
        }
    }

    /// Whether both are certainly the same.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Library(one), Self::Library(other)) => one.is(*other),
            (Self::Object(one), Self::Object(other)) => one.ptr_eq(other),
            (Self::Tensor(one, _), Self::Tensor(other, _)) => one.ptr_eq(other),
            (Self::Class(one), Self::Class(other)) => std::ptr::addr_eq(*one, *other),
            (Self::Set, Self::Set) | (Self::Nobody, Self::Nobody) => true,
            _ => false,
        }
    }
}

/// What is noted in a thread: who names the stream of the tensor that was passed on last, in all or by the table of a mixin
/// class, at its address; or the one on which all are ready.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Of(pub(crate) usize);

/// Of the tensors that were imported, or exported as a `dlx.Tensor`.
pub(crate) const TENSORS: Of = Of(0);
/// Of the stream that a consumer may have been told: all that was exported is ready there.
pub(crate) const READY: Of = Of(1);

type Notes = RefCell<Vec<(Of, DLDevice, Namer)>>;

thread_local! {
    static NOTES: Notes = const { RefCell::new(Vec::new()) };
}

/// Notes who names the stream.
pub(crate) fn note(of: Of, device: DLDevice, namer: Namer) {
    let device = device_of_streams(device);
    let place = |notes: &Notes| {
        let mut notes = notes.borrow_mut();
        let known = (notes.iter_mut()).find(|note| (note.0, note.1) == (of, device));
        match known {
            Some(known) => known.2 = namer,
            None => notes.push((of, device, namer)),
        }
    };
    // Fails only during thread teardown.
    NOTES.try_with(place).ok();
}

/// Who was noted, if anybody.
pub(crate) fn noted(of: Of, device: DLDevice) -> Option<Namer> {
    let device = device_of_streams(device);
    let find = |notes: &Notes| {
        let notes = notes.borrow();
        let known = notes.iter().find(|note| (note.0, note.1) == (of, device));
        known.map(|known| known.2.clone())
    };
    NOTES.try_with(find).ok().flatten()
}
