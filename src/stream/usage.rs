//! The streams of a tensor: what its elements wait for, and what still uses its memory.

#![forbid(unsafe_code)]

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::abi::DLDevice;
use crate::cpython::fork::Lock;
use crate::cpython::interpreter::{Pending, PythonOwner, attach_uncounted};
use crate::driver::Event;
use crate::stream::end::End;
use crate::stream::handle::Stream;
use crate::stream::interface;
use crate::stream::order::{self, Joined, Waits};
use crate::stream::set::set;
use crate::stream::work_stream::WorkStream;
use crate::types::error::{Error, unseen};

/// When memory used by a stream is released to its producer.
///
/// There is no policy that makes the producer's stream wait and frees at once: allocators may give the block to another
/// stream.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum Release {
    /// Once the stream has passed the point at which the tensor died.
    #[default]
    Auto,
    /// Immediately: the producer was told at import, and itself defers reuse of the memory.
    RecordStream,
    /// Immediately.
    None,
}

impl Release {
    /// The policy of this name.
    pub(crate) fn of(name: &str) -> PyResult<Self> {
        match name {
            "auto" => Ok(Self::Auto),
            "record_stream" => Ok(Self::RecordStream),
            "none" => Ok(Self::None),
            _ => Err(PyValueError::new_err(format!(
                "release is {name:?}; expected one of 'auto', 'record_stream', 'none'"
            ))),
        }
    }
}

/// What must complete before the elements are valid.
#[derive(Default)]
pub(crate) enum Ready {
    /// Nothing, as far as dlx was told (`stream=-1`).
    #[default]
    Now,
    /// All work queued on this stream.
    After(Stream),
    /// A point in the work of a stream, which the stream need not outlive.
    Point(Arc<Event>),
}

/// The streams of a tensor; by default, nothing to wait for, and no producer to ask.
#[derive(Default)]
pub(crate) struct StreamUsage {
    /// What must complete before first use.
    pub(crate) ready: Ready,
    /// Whether the stream that it is ready on uses it, so that the release must wait for that.
    pub(crate) is_used: bool,
    /// How the memory is released after that.
    pub(crate) release: Release,
    /// Where the tensor comes from.
    pub(crate) producer: Option<Producer>,
    /// Ends of uses that are still to be waited for: the producer's stream has not been made to.
    pub(crate) uses: Lock<Vec<End>>,
    /// The streams reported to consumers, kept alive as long as the tensor (R151).
    pub(crate) named: Lock<Vec<Stream>>,
}

/// How to find the stream that a library works on.
#[derive(Clone)]
pub(crate) enum Library {
    /// Through the function of its table.
    Table(WorkStream),
    /// Through an object whose `__cuda_array_interface__` names it.
    Interface(Arc<PythonOwner>),
}

impl Library {
    /// The stream that the library currently works on in this thread, valid until other code runs there; `None` if an
    /// interface names none.
    pub(crate) fn stream(&self, py: Python<'_>, device: DLDevice) -> PyResult<Option<Stream>> {
        match self {
            Self::Table(work_stream) => {
                let handle = work_stream.get(py, device)?;
                Ok(Some(Stream::of_table(handle, device)))
            }
            Self::Interface(object) => interface::stream(object.bind(py), device),
        }
    }
}

/// The library that a tensor comes from, and its stream at import.
#[derive(Clone)]
pub(crate) struct Producer {
    pub(crate) library: Library,
    /// The stream that it worked on when the tensor was imported.
    pub(crate) then: Stream,
}

impl Producer {
    /// The stream that the producer works on in this thread, or `None` if it cannot tell.
    pub(crate) fn now(&self) -> Option<Stream> {
        let ask = |py: Python<'_>| {
            let _pending = Pending::save(py);
            // An interface runs Python code, so PyO3 must count the attachment.
            let named = Python::attach(|py| self.library.stream(py, self.then.device()));
            named.map_err(unseen).unwrap_or(None)
        };
        attach_uncounted(ask).flatten()
    }

    /// Whether the tensor holds the object that names the stream, and thereby the stream (R151).
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.library, Library::Interface(_))
    }
}

impl StreamUsage {
    /// The usage of a tensor that is ready once `stream` has completed its work, and used there if its `library` works there.
    pub(crate) fn ready_after(stream: Stream, library: Option<WorkStream>) -> Arc<Self> {
        let producer = library.map(|work_stream| Producer {
            library: Library::Table(work_stream),
            then: stream.clone(),
        });
        Arc::new(Self {
            is_used: producer.is_some(),
            ready: Ready::After(stream),
            producer,
            ..Self::default()
        })
    }

    /// The usage of a tensor that is ready after the work queued on `stream` so far; `stream` need not outlive it.
    pub(crate) fn ready_now_on(stream: Stream, device: DLDevice) -> Result<Arc<Self>, Error> {
        let kept = if stream.is_permanent() {
            Some(stream.clone())
        } else {
            set(device).filter(|set| set.is(&stream))
        };
        let ready = match kept {
            Some(stream) => Ready::After(stream),
            None => match order::point(&stream) {
                Ok(event) => Ready::Point(event),
                Err(error) if error.is_absent() => Ready::After(stream),
                Err(error) => return Err(error),
            },
        };
        Ok(Arc::new(Self {
            ready,
            ..Self::default()
        }))
    }

    /// The stream that the tensor becomes ready on.
    pub(crate) fn stream(&self) -> Option<&Stream> {
        match &self.ready {
            Ready::After(stream) => Some(stream),
            Ready::Now | Ready::Point(_) => None,
        }
    }

    /// The stream that uses the tensor, if the release must wait for it.
    pub(crate) fn used(&self) -> Option<&Stream> {
        self.stream().filter(|_| self.is_used)
    }

    /// Makes `consumer` wait for everything that is known of the elements (H12).
    ///
    /// This includes work queued on the producer's stream since the import, if the producer can name that stream.
    pub(crate) fn order(&self, consumer: &Stream) -> Result<(), Error> {
        let mut waits = Waits::default();
        self.collect(&mut waits, self.now().as_ref());
        order::all(consumer, &waits, Joined::Never).map(|_| ())
    }

    /// The stream that the producer works on in this thread, if it can tell.
    pub(crate) fn now(&self) -> Option<Stream> {
        self.producer.as_ref().and_then(Producer::now)
    }

    /// Adds all that a consumer has to wait for; the producer works on the stream `now`.
    pub(crate) fn collect(&self, waits: &mut Waits, now: Option<&Stream>) {
        if let Some(now) = now {
            waits.add(now);
        }
        match &self.ready {
            Ready::After(stream) => waits.add(stream),
            Ready::Point(point) if !self.covers(now) => waits.add_point(point),
            Ready::Now | Ready::Point(_) => {}
        }
        for end in self.uses.lock().iter() {
            end.collect(waits);
        }
    }

    /// Whether the work on `now` follows the point at which the tensor became ready: it is the stream of the import, which
    /// has been alive since, and not a new one with the handle of one that was destroyed.
    fn covers(&self, now: Option<&Stream>) -> bool {
        let (Some(now), Some(producer)) = (now, &self.producer) else {
            return false;
        };
        now.is(&producer.then) && (now.is_permanent() || producer.is_held())
    }

    /// Notes the end of a use that came after the ends in `covered`.
    pub(crate) fn add_use(&self, end: End, covered: &[End]) {
        /// Number of uses kept before asking the driver which have completed, and at each doubling of it.
        const MANY: usize = 16;
        let is_covered = |earlier: &End| covered.iter().any(|known| known.is(earlier));
        let mut uses = self.uses.lock();
        uses.retain(|earlier| !is_covered(earlier));
        uses.push(end);
        if uses.len() < MANY || !uses.len().is_power_of_two() {
            return;
        }
        // Not under the lock, because the driver may block; others see all of them meanwhile.
        let all = uses.clone();
        drop(uses);
        for end in all {
            if end.clone().left().is_none() {
                self.uses.lock().retain(|known| !known.is(&end));
            }
        }
    }

    /// Keeps alive a stream reported to consumers.
    pub(crate) fn keep(&self, stream: &Stream) {
        let mut named = self.named.lock();
        if stream.is_kept() && !named.iter().any(|known| known.is(stream)) {
            named.push(stream.clone());
        }
    }

    /// Blocks until the elements are ready and all work on their stream is done.
    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        let mut waits = Waits::default();
        self.collect(&mut waits, None);
        waits.synchronize()?;
        // Asked now: the library may drop it during a wait.
        self.now().as_ref().map_or(Ok(()), order::synchronize)
    }
}
