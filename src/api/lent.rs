//! One tensor lent for a block: its memory, and the streams that use it.

#![forbid(unsafe_code)]

use pyo3::prelude::*;

use crate::abi::DLDevice;
use crate::api::agreed::Agreed;
use crate::import::lend::Lending;
use crate::stream::end::End;
use crate::stream::order::Waits;
use crate::stream::usage::{Library, StreamUsage};
use crate::stream::{self, Namer, Stream};
use crate::tensor::snapshot::Snapshot;

/// A tensor lent for a `with` block.
pub(crate) struct Lent {
    pub(crate) snapshot: Snapshot,
    /// The library whose current stream uses the tensor; without it, the snapshot's usage tells.
    library: Option<Library>,
    /// The ends of earlier uses that the block has waited for.
    pub(super) covered: Vec<End>,
    /// The stream that its library worked on when the block was entered.
    pub(super) then: Option<Box<Stream>>,
}

impl Lent {
    pub(super) fn new((snapshot, library, then): Lending) -> Self {
        Self {
            snapshot,
            library,
            covered: Vec::new(),
            then,
        }
    }

    /// Where the tensor is.
    pub(crate) fn device(&self) -> DLDevice {
        self.snapshot.meta().device
    }

    /// Adds its library to those that are to be asked; returns whether it can be.
    pub(super) fn agrees(&self, agreed: &mut Agreed) -> bool {
        match self.library {
            Some(Library::Table(work_stream)) => agreed.add(self.device(), work_stream),
            _ => false,
        }
    }

    /// Who names the stream of the tensor, if anybody.
    pub(crate) fn namer(&self) -> Option<Namer> {
        match &self.library {
            Some(library) => Some(Namer::of(library)),
            None => self.snapshot.namer(),
        }
    }

    /// The streams of the tensor, which tell where it has no library to ask.
    fn usage(&self) -> Option<&StreamUsage> {
        self.snapshot.usage().filter(|_| self.library.is_none())
    }

    /// The stream that its library works on now, if the library can tell.
    fn now(&self, py: Python<'_>) -> PyResult<Option<Stream>> {
        match &self.library {
            Some(library) => library.stream(py, self.device()),
            None => Ok(self.usage().and_then(StreamUsage::now)),
        }
    }

    /// As [`Self::now`], when the block is entered: an interface has been read already.
    fn now_at_entry(&self, py: Python<'_>) -> PyResult<Option<Stream>> {
        match &self.then {
            Some(then) => Ok(Some(Stream::clone(then))),
            None => self.now(py),
        }
    }

    /// The stream for work on the tensor, if the block has no stream of its own.
    pub(crate) fn stream(&self, py: Python<'_>) -> PyResult<Stream> {
        if let Some(stream) = self.now_at_entry(py)? {
            return Ok(stream);
        }
        match self.snapshot.usage().and_then(StreamUsage::stream) {
            Some(stream) => Ok(stream.clone()),
            None => stream::of_thread(py, self.device()),
        }
    }

    /// Adds what the block's stream has to wait for.
    pub(super) fn collect(&mut self, py: Python<'_>, waits: &mut Waits) -> PyResult<()> {
        let now = self.now_at_entry(py)?;
        let mut covered = Vec::new();
        match self.usage() {
            Some(usage) => {
                // Before they are collected: of a use that another thread adds then, nothing is known.
                covered = usage.uses.lock().clone();
                usage.collect(waits, now.as_ref());
            }
            None => now.iter().for_each(|now| waits.add(now)),
        }
        (self.covered, self.then) = (covered, now.map(Box::new));
        Ok(())
    }

    /// Adds the streams that have to wait for the block's stream; returns whether the library has changed its stream
    /// since the block was entered, so that the earlier one, which may be gone, does not wait.
    pub(super) fn collect_back(&self, py: Python<'_>, back: &mut Waits) -> PyResult<bool> {
        let now = self.now(py)?;
        now.iter().for_each(|now| back.add(now));
        let own = self.usage().and_then(StreamUsage::stream);
        own.iter().for_each(|own| back.add(own));
        let is_now = |then: &Stream| now.as_ref().is_some_and(|now| then.is(now));
        Ok(self.then.as_deref().is_some_and(|then| !is_now(then)))
    }

    /// Whether the tensor itself has to remember the end of the block: it has no stream of its own that waits for it.
    pub(crate) fn remembers(&self) -> bool {
        self.usage().is_some_and(|usage| usage.stream().is_none())
    }

    /// Notes the end of the block.
    pub(crate) fn add_use(&self, end: &End) {
        if let Some(usage) = self.usage() {
            usage.add_use(end.clone(), &self.covered);
        }
    }
}
