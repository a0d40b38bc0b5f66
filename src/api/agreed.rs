//! Tensors for which no stream has to wait: the libraries of all of them work on one.
//!
//! A library is asked for its stream once before a kernel is launched and once after it, however many of its tensors there
//! are. Equal handles that libraries name for one device, at one moment and in one thread, are one stream, whichever context
//! is current, and whether or not it captures (R81): the driver need not be asked. Where they differ before, [`Loan`] orders
//! the tensors one by one; after, the host waits, as at the end of any block whose library has changed its stream.
//!
//! [`Loan`]: super::loan::Loan

#![forbid(unsafe_code)]

use pyo3::prelude::*;

use crate::abi::DLDevice;
use crate::stream::{Stream, WorkStream, order};
use crate::types::device;

/// The libraries of tensors on a device with streams.
pub(super) struct Agreed {
    /// Where the tensors are.
    device: DLDevice,
    /// Who is to be asked, where these are few.
    libraries: [Option<WorkStream>; 4],
    /// The stream that tensors of dlx are ready on.
    ready: Option<i64>,
}

impl Agreed {
    /// Those of no tensors.
    pub(super) const NONE: Self = Self {
        device: device::CPU,
        libraries: [None; 4],
        ready: None,
    };

    /// Adds a tensor, with its library; returns whether it is where the others are, and its library can be asked.
    #[inline(always)]
    pub(super) fn add(&mut self, there: DLDevice, work_stream: WorkStream) -> bool {
        let is_its = |place: &&mut Option<WorkStream>| place.is_none_or(|of| of.is(work_stream));
        let is_there = self.is_there(there);
        let place = self.libraries.iter_mut().find(is_its);
        is_there && place.map(|place| *place = Some(work_stream)).is_some()
    }

    /// Adds a tensor of dlx that is ready on a stream; returns whether the others are where it is, and on that stream.
    pub(super) fn add_ready(&mut self, there: DLDevice, on: i64) -> bool {
        self.is_there(there) && *self.ready.get_or_insert(on) == on
    }

    /// Whether a tensor is where the others are.
    #[inline(always)]
    fn is_there(&mut self, there: DLDevice) -> bool {
        if !self.has_stream() {
            self.device = there;
        }
        self.device == there
    }

    /// Whether the tensors are on a device with streams.
    pub(super) fn has_stream(&self) -> bool {
        self.libraries[0].is_some() || self.ready.is_some()
    }

    /// The handle that all of the libraries name now, and tensors are ready on; `None` if these differ, or there are none.
    #[inline(always)]
    pub(super) fn handle(&self, py: Python<'_>) -> PyResult<Option<i64>> {
        let mut named = self.ready;
        for library in self.libraries.iter().flatten() {
            let handle = Stream::number(library.get(py, self.device)?, self.device);
            if *named.get_or_insert(handle) != handle {
                return Ok(None);
            }
        }
        Ok(named)
    }

    /// The stream of this handle on the device of the tensors.
    pub(super) fn stream(&self, handle: i64) -> Stream {
        Stream::of_table(handle, self.device)
    }

    /// Whether all of the libraries work on `stream` now.
    pub(super) fn is_on(&self, py: Python<'_>, stream: &Stream) -> PyResult<bool> {
        let named = self.handle(py)?;
        Ok(named.is_some_and(|handle| self.stream(handle).is(stream)))
    }

    /// Ends the work on `stream`, of which the libraries were `asked` whether they still work there: if not, the host waits.
    pub(super) fn end(asked: PyResult<bool>, stream: impl FnOnce() -> Stream) -> PyResult<()> {
        match asked {
            Ok(true) => Ok(()),
            asked => asked.and(order::finish(&stream()).map_err(PyErr::from)),
        }
    }
}
