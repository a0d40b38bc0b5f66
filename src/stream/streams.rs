//! The streams of a tensor, as its snapshot holds them. Most tensors are used on one stream, which their library names: of that
//! a handle is noted, until somebody asks for more.

#![forbid(unsafe_code)]

use std::sync::{Arc, OnceLock};

use pyo3::prelude::*;

use crate::abi::DLDevice;
use crate::cpython::interpreter::before_exit;
use crate::stream::handle::Stream;
use crate::stream::usage::StreamUsage;
use crate::stream::work_stream::WorkStream;
use crate::types::error::unseen;

/// The streams of a tensor.
pub(crate) enum Streams {
    /// None: nothing needs ordering.
    None,
    /// One, on which the tensor is ready.
    One(Box<One>),
    /// Those of all views of the same import.
    Shared(Arc<StreamUsage>),
}

/// A stream that nothing has to keep alive ([`Stream::is_plain`]).
pub(crate) struct One {
    handle: i64,
    /// The library that worked on it at the import, if the tensor was imported for it.
    library: Option<WorkStream>,
    /// What was made of that.
    usage: OnceLock<Arc<StreamUsage>>,
}

impl Streams {
    /// Those of a tensor on `here` that is ready on `stream`, perhaps one of another device; it is used there from now on, if
    /// its `library` works there.
    pub(crate) fn ready_after(
        stream: &Stream,
        here: DLDevice,
        library: Option<WorkStream>,
    ) -> Self {
        if !stream.is(&Stream::plain(stream.handle(), here)) || !stream.is_plain() {
            return Self::Shared(StreamUsage::ready_after(stream.clone(), library));
        }
        Self::One(Box::new(One {
            handle: stream.handle(),
            library,
            usage: OnceLock::new(),
        }))
    }

    /// Whether there are none.
    #[inline(always)]
    pub(crate) fn are_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// All that is known of them; the tensor is on `device`.
    pub(crate) fn usage(&self, device: DLDevice) -> Option<&Arc<StreamUsage>> {
        match self {
            Self::None => None,
            Self::One(one) => Some(one.usage(device)),
            Self::Shared(usage) => Some(usage),
        }
    }

    /// The handle of the stream that it is ready on, whose number means the same now, and the library that works there; `None`
    /// if there is more to wait for.
    pub(crate) fn one(&self, device: DLDevice) -> Option<(i64, Option<WorkStream>)> {
        let Self::One(one) = self else {
            return None;
        };
        let is_used = one.usage.get().is_some_and(|of| !of.uses.lock().is_empty());
        let is_that = Stream::of_table(one.handle, device).is_plain();
        (is_that && !is_used).then_some((one.handle, one.library))
    }

    /// What the release has to look at.
    pub(crate) fn into_usage(self, device: DLDevice) -> Option<Arc<StreamUsage>> {
        match &self {
            Self::One(one) if one.library.is_none() => one.usage.get().cloned(),
            _ => self.usage(device).cloned(),
        }
    }

    /// Whether all uses are those of its library, which works on that stream now, as it did at the import. The thread is
    /// attached, with no exception set.
    pub(crate) fn are_over(&self, py: Python<'_>, device: DLDevice) -> bool {
        let Self::One(one) = self else {
            return self.are_none();
        };
        // Python code may run, and the interpreter exit meanwhile.
        let is_on = |library: WorkStream| {
            let now = before_exit(py, |py| library.get(py, device));
            let now = now.and_then(|now| now.map_err(unseen).ok());
            now.is_some_and(|now| Stream::of_table(now, device).is(&one.stream(device)))
        };
        one.usage.get().is_none() && one.library.is_none_or(is_on)
    }
}

impl One {
    fn stream(&self, device: DLDevice) -> Stream {
        Stream::plain(self.handle, device)
    }

    fn usage(&self, device: DLDevice) -> &Arc<StreamUsage> {
        let made = || StreamUsage::ready_after(self.stream(device), self.library);
        self.usage.get_or_init(made)
    }
}
