//! What the elements of a tensor on a device with streams wait for, and who still uses its memory.

#![forbid(unsafe_code)]

use std::sync::Arc;

use pyo3::prelude::*;

use crate::abi::DLDevice;
use crate::cpython::fork::{Lock, Locked};
use crate::cpython::interpreter::{Pending, PythonOwner, attach_uncounted};
use crate::driver;
use crate::driver::Event;
use crate::stream::handle::Stream;
use crate::stream::order;
use crate::stream::order::Joined;
use crate::stream::work_stream::WorkStream;
use crate::stream::{current, interface};
use crate::types::error::Error;

/// How memory that a stream has used is given back to its producer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Release {
    /// When the stream has passed the point at which the tensor died.
    Auto,
    /// At once, after the producer's stream was made to wait for the stream.
    WaitBack,
    /// At once: the producer was told at import, and holds the memory back itself.
    RecordStream,
    /// After the host has waited for the stream.
    Sync,
    /// At once.
    None,
}

impl Release {
    /// The names of the argument `release=`.
    const NAMES: [(&'static str, Self); 5] = [
        ("auto", Self::Auto),
        ("wait-back", Self::WaitBack),
        ("record_stream", Self::RecordStream),
        ("sync", Self::Sync),
        ("none", Self::None),
    ];

    /// The policy of this name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|&(_, release)| release)
    }

    /// What `of` accepts, for messages.
    pub(crate) fn names() -> String {
        let names = Self::NAMES.iter().map(|(name, _)| format!("'{name}'"));
        names.collect::<Vec<_>>().join(", ")
    }
}

/// What the elements wait for.
pub(crate) enum Ready {
    /// Nothing, or nothing that dlx was told of (`stream=-1`).
    Now,
    /// All that this stream has been given.
    After(Stream),
    /// A point in the work of a stream that need not live as long.
    Point(Event),
}

/// The streams of a tensor.
pub(crate) struct StreamUsage {
    /// Before its first use.
    pub(crate) ready: Ready,
    /// Where it is used, if the end of that counts when its memory is given back.
    pub(crate) used: Option<Stream>,
    /// How its memory is given back after that.
    pub(crate) release: Release,
    /// Where its producer works.
    pub(crate) producer: Option<Producer>,
    /// The ends of uses that the producer's stream was not made to wait for.
    pub(crate) uses: Lock<Vec<Arc<Event>>>,
    /// The streams that consumers were told of, which live as long as the tensor (R151).
    pub(crate) named: Lock<Vec<Stream>>,
}

/// Whom to ask for the stream that a library works on.
#[derive(Clone)]
pub(crate) enum Library {
    /// The function of its table.
    Table(WorkStream),
    /// An object whose `__cuda_array_interface__` names it.
    Interface(Arc<PythonOwner>),
}

impl Library {
    /// The stream that the library works on in this thread, as long as nobody runs code of its own; `None` where an
    /// interface names none.
    pub(crate) fn stream(&self, py: Python<'_>, device: DLDevice) -> PyResult<Option<Stream>> {
        match self {
            Self::Table(work_stream) => {
                let handle = work_stream.get(py, device)?;
                Ok(Some(Stream::of_table(handle, device)))
            }
            Self::Interface(object) => match object.bind(py) {
                Some(object) => interface::stream(object, device),
                None => Ok(None),
            },
        }
    }
}

/// Where a tensor comes from, and the stream that was.
#[derive(Clone)]
pub(crate) struct Producer {
    pub(crate) library: Library,
    /// The stream that it worked on when the tensor came in.
    pub(crate) then: Stream,
}

impl Producer {
    /// The stream that the producer works on in this thread; `None` where it cannot tell.
    pub(crate) fn now(&self) -> Option<Stream> {
        let device = self.then.device();
        let ask = |py: Python<'_>| {
            let _pending = Pending::save(py);
            // What an object raises is dropped, for which PyO3 must know of the attachment.
            Python::attach(|py| self.library.stream(py, device).ok().flatten())
        };
        attach_uncounted(ask).flatten()
    }

    /// Whether the tensor holds the object that names the stream, and so the stream (R151).
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.library, Library::Interface(_))
    }

    /// The stream of then, where it is alive and memory that is given out again there is used after what it was given:
    /// of a library that still works on it (R142), or of an object that is held (R151).
    pub(crate) fn steady(&self) -> Option<Stream> {
        let is_same = |now: Stream| now.is(&self.then);
        let is_steady = self.is_held() || self.now().is_some_and(is_same);
        is_steady.then(|| self.then.clone())
    }
}

impl Default for StreamUsage {
    /// Nothing to wait for, and nobody who could be asked.
    fn default() -> Self {
        Self {
            ready: Ready::Now,
            used: None,
            release: Release::Auto,
            producer: None,
            uses: Lock::default(),
            named: Lock::default(),
        }
    }
}

impl StreamUsage {
    /// What a tensor that is ready after `stream` waits for.
    pub(crate) fn ready_after(stream: Stream) -> Self {
        Self {
            ready: Ready::After(stream),
            ..Self::default()
        }
    }

    /// What a tensor waits for that is ready after all that `stream`, which need not live on, has been given so far.
    pub(crate) fn ready_now_on(stream: Stream, device: DLDevice) -> Result<Self, Error> {
        let kept = if stream.is_permanent() {
            Some(stream.clone())
        } else {
            current::set(device).filter(|set| set.is(&stream))
        };
        let ready = match kept {
            Some(stream) => Ready::After(stream),
            None => match order::point(&stream) {
                Ok(event) => Ready::Point(event),
                Err(error) if error.is_absent() => Ready::After(stream),
                Err(error) => return Err(error),
            },
        };
        Ok(Self {
            ready,
            ..Self::default()
        })
    }

    /// The stream that it is used on or becomes ready on.
    pub(crate) fn stream(&self) -> Option<&Stream> {
        match (&self.used, &self.ready) {
            (Some(stream), _) | (None, Ready::After(stream)) => Some(stream),
            _ => None,
        }
    }

    /// Makes `consumer` wait for all that is known of the elements (H12).
    ///
    /// What the producer has been given since the tensor came in is waited for too, where it can be asked.
    pub(crate) fn order(&self, consumer: &Stream, joined: Joined) -> Result<(), Error> {
        let covered = match &self.producer {
            Some(producer) => match producer.now() {
                Some(now) => {
                    order::after(consumer, &now, joined)?;
                    // Events of a stream come in its order.
                    now.is(&producer.then)
                }
                None => false,
            },
            None => false,
        };
        match &self.ready {
            Ready::After(stream) => order::after(consumer, stream, joined)?,
            Ready::Point(event) if !covered => order::wait(consumer, event)?,
            Ready::Now | Ready::Point(_) => {}
        }
        for end in self.uses().iter() {
            order::wait(consumer, end)?;
        }
        match &self.used {
            Some(used) if !matches!(&self.ready, Ready::After(stream) if stream.is(used)) => {
                order::after(consumer, used, joined)
            }
            _ => Ok(()),
        }
    }

    /// Notes the end of a use, which came after the ends that are `covered`.
    pub(crate) fn add_use(&self, end: Arc<Event>, covered: &[Arc<Event>]) {
        /// So many are kept before the driver is asked which of them have passed.
        const MANY: usize = 16;
        let mut uses = self.uses();
        uses.retain(|earlier| !covered.iter().any(|known| Arc::ptr_eq(known, earlier)));
        if uses.len() >= MANY {
            uses.retain(|earlier| !earlier.is_done().unwrap_or(true));
        }
        uses.push(end);
    }

    /// Keeps a stream alive that consumers are told of.
    pub(crate) fn keep(&self, stream: &Stream) {
        let mut named = self.named.lock();
        if stream.is_owned() && !named.iter().any(|known| known.is(stream)) {
            named.push(stream.clone());
        }
    }

    /// The ends of uses that are still to be waited for.
    pub(crate) fn uses(&self) -> Locked<'_, Vec<Arc<Event>>> {
        self.uses.lock()
    }

    /// Blocks until the elements are ready, and what their stream was given is done.
    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        // Who adds a use meanwhile does not wait for the device.
        let ends = self.uses().clone();
        for end in ends {
            end.synchronize()?;
        }
        if let Ready::Point(event) = &self.ready {
            if event.capture().is_some() {
                return Err(captured());
            }
            event.synchronize()?;
        }
        let ready = match &self.ready {
            Ready::After(stream) => Some(stream),
            _ => None,
        };
        for stream in ready.into_iter().chain(&self.used) {
            let raw = stream.raw()?;
            let current = driver::enter(stream.device())?;
            match current.capture(raw)? {
                driver::Capture::None => current.synchronize(raw)?,
                _ => return Err(captured()),
            }
        }
        Ok(())
    }
}

#[cold]
fn captured() -> Error {
    Error::refused(
        "the tensor's stream captures a graph, whose work has no end yet; synchronize after the capture",
    )
}
