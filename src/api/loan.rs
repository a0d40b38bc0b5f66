//! The loan of a block: its tensors, their views, and the order of their streams.

#![forbid(unsafe_code)]

use std::iter::once_with;

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::abi::DLDevice;
use crate::api::accepted::Accepted;
use crate::api::agreed::Agreed;
use crate::api::lent::Lent;
use crate::api::writing;
use crate::cpython::interpreter::quietly;
use crate::driver::Capture;
use crate::import::lend::lend;
use crate::stream::end::End;
use crate::stream::namer::TENSORS;
use crate::stream::order::{self, Joined, Waits};
use crate::stream::{self, Namer, Stream, Wanted};
use crate::tensor::object::Tensor;
use crate::tensor::snapshot::Snapshot;
use crate::types::error::Error;

/// The tensors lent for a block, and the stream that uses them; `None` if nothing has to be ordered.
pub(super) struct Loan {
    stream: Option<Stream>,
    /// The views, in the order of the tensors; those of `ordered` come in when the block's stream waits for them.
    views: Vec<Py<Tensor>>,
    /// The tensors on devices with streams, with their places. The others are held by their views alone: the garbage
    /// collector looks only into those.
    ordered: Vec<(usize, Lent)>,
    /// Whether the block's stream has been made to wait, so that others must wait for it at the end.
    is_joined: bool,
    /// What the block's stream captured then, if that was asked.
    capture: Option<Capture>,
    /// The libraries of all `ordered` tensors, if they worked on the block's stream when it was entered.
    agreed: Option<Agreed>,
}

impl Loan {
    /// A loan with room for `count` views.
    pub(super) fn of(count: usize) -> Self {
        Self {
            stream: None,
            views: Vec::with_capacity(count),
            ordered: Vec::new(),
            is_joined: false,
            capture: None,
            agreed: None,
        }
    }

    /// Whether no tensor is on a device with streams.
    pub(super) fn needs_no_stream(&self) -> bool {
        self.ordered.is_empty()
    }

    /// The stream to launch on.
    pub(super) fn stream(&self) -> Option<&Stream> {
        self.stream.as_ref()
    }

    /// Lends `x`, and returns where it is. Its view is there after [`Self::join`] at the latest; the first tensor on a device
    /// with streams gives the stream, unless one is `wanted`.
    ///
    /// `written` names a tensor that will be written to; what is `accepted` is that of a number among the options.
    pub(super) fn lend(
        &mut self,
        x: &Bound<'_, PyAny>,
        wanted: Option<&Bound<'_, PyAny>>,
        written: Option<&str>,
        accepted: Option<(&Accepted, usize)>,
    ) -> PyResult<DLDevice> {
        for (_, earlier) in &mut self.ordered {
            // An interface may name another stream once the code of this tensor has run.
            earlier.then = None;
        }
        let lent = lend(x, self.stream.as_ref(), wanted);
        let (mut snapshot, library, now) = lent.map_err(|error| match written {
            Some(_) => writing::advised(x.py(), error),
            None => error,
        })?;
        if let Some(name) = written {
            snapshot = writing::writable(x, snapshot, name)?;
            // Refused where its library would not learn of it.
            writing::counter(x, &snapshot)?;
        }
        if let Some((accepted, index)) = accepted {
            accepted.check(index, &snapshot, written.is_some())?;
        }
        let device = snapshot.meta().device;
        if !stream::needs_order(device) {
            let view = Tensor::holding(x.py(), snapshot)?;
            self.views.push(view.unbind());
            return Ok(device);
        }
        if !stream::has_streams(device) {
            return Err(Error::refused(format!(
                "the tensor is on {device}, a device of a DLPack after 1.3: dlx lends nothing there, as it could not make \
                 a kernel wait for the tensor; pass dlx.from_dlpack(x, device='cpu'), if its library copies"
            ))
            .into());
        }
        // How many have been lent: a view of one in `ordered` is made later.
        let count = self.views.len() + self.ordered.len();
        // A value that is pushed is built elsewhere first.
        let lent = once_with(|| (count, Lent::new((snapshot, library, now))));
        self.ordered.extend(lent);
        if self.stream.is_none()
            && let Some((_, lent)) = self.ordered.last()
        {
            self.stream = stream_of(lent, wanted, x.py())?;
        }
        Ok(device)
    }

    /// Makes the block's stream wait for the tensors, whose views are all there then.
    pub(super) fn join(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.needs_no_stream() {
            return Ok(());
        }
        self.order(py)?;
        for (place, lent) in &mut self.ordered {
            let snapshot = match &self.stream {
                Some(stream) => lent.snapshot.ready_on(stream)?,
                None => lent.snapshot.clone(),
            };
            let view = Tensor::holding(py, snapshot)?;
            self.views.insert(*place, view.unbind());
        }
        if self.stream.is_none() {
            self.ordered.clear();
        }
        Ok(())
    }

    /// Makes the block's stream wait for the tensors.
    fn order(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some(stream) = &self.stream else {
            return Ok(());
        };
        let mut agreed = Agreed::NONE;
        let mut ordered = self.ordered.iter();
        if ordered.all(|(_, lent)| lent.agrees(&mut agreed)) && agreed.is_on(py, stream)? {
            (self.agreed, self.is_joined) = (Some(agreed), true);
            return Ok(());
        }
        let mut waits = Waits::default();
        for (_, lent) in &mut self.ordered {
            lent.collect(py, &mut waits)?;
        }
        let joined = order::all(stream, &waits, Joined::Back);
        // A refusal comes before the first wait, so nothing is joined; an error of the driver may come after one.
        self.is_joined = matches!(joined, Ok(_) | Err(Error::Driver(_)));
        if joined.is_err() {
            let ordered = self.ordered.iter_mut();
            ordered.for_each(|(_, lent)| lent.covered.clear());
        }
        self.capture = joined?;
        Ok(())
    }

    /// The views, then `last`; the borrower may keep them.
    pub(super) fn views<'py>(&self, last: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
        let py = last.py();
        let item = |place: usize| match self.views.get(place) {
            Some(view) => view.bind(py).as_any(),
            None => &last,
        };
        let count = self.views.len() + 1;
        PyTuple::new(py, (0..count).map(item))
    }

    /// The view of tensor number `place`.
    pub(super) fn view(&self, place: usize) -> Option<&Py<Tensor>> {
        self.views.get(place)
    }

    /// The memory of tensor number `place`, for its description.
    pub(super) fn lent(&self, place: usize) -> Option<&Snapshot> {
        Some(self.view(place)?.get().described())
    }

    /// Ends the views, and makes the streams of the tensors wait for that of the block.
    pub(super) fn end(self, py: Python<'_>) -> PyResult<()> {
        for view in &self.views {
            view.get().end();
        }
        // The stream of a view, which has ended, may be gone.
        if let Some((_, first)) = self.ordered.first() {
            let namer = first.namer().unwrap_or(Namer::Nobody);
            stream::note(TENSORS, first.device(), namer);
        }
        let ended = match self.stream.as_ref().filter(|_| self.is_joined) {
            None => Ok(()),
            Some(stream) => match self.agreed.map(|agreed| agreed.is_on(py, stream)) {
                Some(asked) => Agreed::end(asked, || stream.clone()),
                None => join_back(py, &self.ordered, stream, self.capture),
            },
        };
        for (_, lent) in self.ordered {
            quietly(py, || lent.snapshot.drop_attached(py));
        }
        ended
    }
}

/// The stream of a block: the one `wanted`, or else that of the first tensor on a device with streams.
fn stream_of(
    first: &Lent,
    wanted: Option<&Bound<'_, PyAny>>,
    py: Python<'_>,
) -> PyResult<Option<Stream>> {
    let device = first.device();
    Ok(match stream::wanted(wanted, device)? {
        Wanted::NoOrder => None,
        // The tensor's own stream belongs to its device, so there is nothing to check.
        Wanted::Stream(stream) if first.stream(py)?.is(&stream) => Some(stream.verified()),
        Wanted::Stream(stream) => Some(stream::check_device(stream, device)?),
        Wanted::Unset => Some(first.stream(py)?),
    })
}

/// Makes the streams of the tensors wait for that of the block, by one event.
fn join_back(
    py: Python<'_>,
    ordered: &[(usize, Lent)],
    stream: &Stream,
    entered: Option<Capture>,
) -> PyResult<()> {
    let lent = || ordered.iter().map(|(_, lent)| lent);
    let mut back = Waits::default();
    let mut result = Ok(());
    let mut has_changed = false;
    for lent in lent() {
        // Join every tensor, even if another one fails.
        match lent.collect_back(py, &mut back) {
            Ok(changed) => has_changed |= changed,
            Err(error) => result = result.and(Err(error)),
        }
    }
    let (point, joined) = order::leave(&back, stream, entered);
    result = result.and(joined.map_err(PyErr::from));
    // A stream that could not be joined back does not wait for the kernel, so the tensor has to remember it.
    let is_lost = result.is_err();
    let remembers = || lent().filter(|lent| is_lost || lent.remembers());
    if remembers().next().is_some()
        && let Some(end) = point.map(End::Point).or_else(|| End::of(stream))
    {
        remembers().for_each(|lent| lent.add_use(&end));
    }
    if has_changed {
        result = result.and(order::finish(stream).map_err(PyErr::from));
    }
    result
}
